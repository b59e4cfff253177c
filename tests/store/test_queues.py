"""Queues over every store: who goes next, who must wait, and what is let in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from perdure.errors import CheckpointCorrupt, DeliveriesExhausted, QueueFull, RunPaused, UsageError
from perdure.records import Queue, Run, RunState, sealed_run
from perdure.store.lease import Park, write_park
from perdure.store.portable import adopted
from perdure.store.postgres.presence import RETURN_SECONDS, life_key
from tests.store.journals import AGENT, PARDON, TERMS, claimed, created, ending, held_run, land, letter, new_run, step
from tests.store.places import PostgresPlace, asks_who_lives

if TYPE_CHECKING:
    from perdure.store.protocol import Store
    from tests.store.conftest import ManualClock
    from tests.store.places import Place

MINUTE = 60.0


def ready(
    store: Store,
    *queues: str,
    agents: tuple[str, ...] = (AGENT,),
    version: str = "",
    now: float = 0.0,
    limit: int = 100,
) -> list[str]:
    found = store.list_ready(
        agents=agents, queues=queues, version=version, now=now, stall_seconds=TERMS.stall_seconds, limit=limit
    )
    return [run.run_id for run in found]


def served(store: Store, count: int, **options: Any) -> list[str]:
    """Take what is first, complete it, and so on: in which order runs are served."""
    order = []
    for _ in range(count):
        first = ready(store, limit=1, **options)[0]
        land(store, ending(claimed(store, first)))
        order.append(first)
    return order


class TestTurns:
    def test_higher_priority_goes_first_and_equals_in_order_of_arrival(self, store: Store) -> None:
        for number, priority in enumerate([0, 5, 0, -3, 5]):
            created(store, f"run-{number}", priority=priority)
        assert ready(store) == ["run-1", "run-4", "run-0", "run-2", "run-3"]

    def test_a_tenant_with_many_runs_does_not_keep_another_waiting(self, store: Store) -> None:
        for number in range(6):
            created(store, f"bulk-{number}", tenant="bulk")
        for number in range(3):
            created(store, f"small-{number}", tenant="small", at=200.0)
        assert ready(store) == [
            *("bulk-0", "small-0", "bulk-1", "small-1", "bulk-2", "small-2"),
            *("bulk-3", "bulk-4", "bulk-5"),
        ]

    def test_a_tenant_that_comes_late_has_not_saved_up_turns(self, store: Store) -> None:
        for number in range(8):
            created(store, f"bulk-{number}", tenant="bulk")
        assert served(store, 4) == [f"bulk-{number}" for number in range(4)]
        for number in range(3):
            created(store, f"small-{number}", tenant="small", at=200.0)
        assert ready(store) == ["bulk-4", "small-0", "bulk-5", "small-1", "bulk-6", "small-2", "bulk-7"]

    def test_turns_are_of_one_priority_alone(self, store: Store) -> None:
        for number in range(3):
            created(store, f"low-{number}", tenant="bulk")
        created(store, "high", tenant="bulk", priority=1)
        assert ready(store) == ["high", "low-0", "low-1", "low-2"]
        created(store, "small", tenant="small", at=200.0)
        assert ready(store) == ["high", "low-0", "small", "low-1", "low-2"]

    def test_the_store_gives_the_turn_and_seals_the_row(self, store: Store, other: Store) -> None:
        turns = [created(store, f"run-{number}").turn for number in range(3)]
        assert turns == [0, 1, 2]
        seen = other.read_run("run-2")
        assert seen is not None
        assert seen.turn == 2

    def test_who_claims_at_creation_needs_no_turn(self, store: Store) -> None:
        created(store, "run-1")
        run, first = new_run("run-2", state=RunState.RUNNING, epoch=1, holder=store.join().worker_id)
        assert store.create_run(run, first, claimed=()).turn == 0

    def test_a_run_that_comes_back_goes_before_those_that_never_began(self, store: Store) -> None:
        for number in range(4):
            created(store, f"run-{number}")
        run = claimed(store, "run-0")
        land(store, ending(run, RunState.QUEUED))
        assert ready(store) == ["run-0", "run-1", "run-2", "run-3"]

    def test_a_run_that_comes_back_does_not_set_the_turns_of_others_back(self, store: Store) -> None:
        for number in range(6):
            created(store, f"bulk-{number}", tenant="bulk")
        old = claimed(store, "bulk-0")
        served(store, 3)
        land(store, ending(old, RunState.QUEUED))
        for number in range(2):
            created(store, f"small-{number}", tenant="small", at=200.0)
        assert ready(store) == ["bulk-0", "bulk-4", "small-0", "bulk-5", "small-1"]


class TestLines:
    def test_every_queue_and_agent_comes_to_its_turn_however_long_the_others_are(self, store: Store) -> None:
        for number in range(5):
            created(store, f"mail-{number}", queue="mail")
        created(store, "web", queue="web", at=900.0)
        created(store, "other", agent="other.agent", at=900.0)
        first = ready(store, agents=(AGENT, "other.agent"))[:3]
        assert sorted(first) == ["mail-0", "other", "web"]

    def test_a_worker_with_room_for_one_run_serves_all_of_them(self, store: Store) -> None:
        for number in range(5):
            created(store, f"mail-{number}", queue="mail")
        created(store, "web", queue="web", at=900.0)
        created(store, "other", agent="other.agent", at=900.0)
        agents = (AGENT, "other.agent")
        first = {ready(store, agents=agents, now=float(now), limit=1)[0] for now in range(30)}
        assert first == {"mail-0", "web", "other"}

    def test_priority_goes_before_the_turn_of_a_line(self, store: Store) -> None:
        created(store, "mail", queue="mail")
        for number in range(3):
            created(store, f"web-{number}", queue="web", priority=1)
        assert ready(store) == ["web-0", "web-1", "web-2", "mail"]

    def test_worker_of_some_queues_sees_nothing_of_the_others(self, store: Store, place: Place) -> None:
        created(store, "mail-new", queue="mail")
        created(store, "web-new", queue="web")
        held_run(store, "mail-held", queue="mail")
        held_run(store, "web-held", queue="web")
        land(store, ending(held_run(store, "mail-due", queue="mail"), RunState.WAITING, wake_at=50.0))
        land(store, ending(held_run(store, "web-due", queue="web"), RunState.WAITING, wake_at=50.0))
        land(store, ending(held_run(store, "mail-post", queue="mail"), RunState.WAITING))
        land(store, ending(held_run(store, "web-post", queue="web"), RunState.WAITING))
        store.post(letter("mail-post"))
        store.post(letter("web-post"))
        store.close()
        after = place.open()
        assert ready(after, "mail", now=60.0) == ["mail-held", "mail-post", "mail-due", "mail-new"]
        assert ready(after, "web", now=60.0) == ["web-held", "web-post", "web-due", "web-new"]
        assert ready(after, "nothing", now=60.0) == []
        assert len(ready(after, now=60.0)) == 8

    def test_unknown_agents_are_left_for_workers_that_know_them(self, store: Store) -> None:
        for number in range(50):
            created(store, f"unknown-{number}", agent="unknown.agent", priority=9)
        created(store, "known")
        assert ready(store, limit=1) == ["known"]

    def test_damaged_run_is_named_to_who_claims_it_and_keeps_nobody_from_the_others(
        self, store: Store, place: Place
    ) -> None:
        for run_id in ("damaged", "whole"):
            created(store, run_id)
        place.damage_run("damaged", detail="changed")
        assert ready(store) == ["damaged", "whole"]
        with pytest.raises(CheckpointCorrupt, match="damaged"):
            claimed(store, "damaged")
        assert claimed(store, "whole").state == RunState.RUNNING

    def test_limit_holds_for_each_kind(self, store: Store, place: Place) -> None:
        for number in range(3):
            created(store, f"new-{number}", queue=f"queue-{number}")
            held_run(store, f"held-{number}", queue=f"queue-{number}", at=float(number))
            run = held_run(store, f"due-{number}", queue=f"queue-{number}")
            land(store, ending(run, RunState.WAITING, wake_at=50.0 - number))
        store.close()
        after = place.open()
        found = ready(after, now=60.0, limit=2)
        assert found[:4] == ["held-0", "held-1", "due-2", "due-1"]
        assert [run_id[:3] for run_id in found[4:]] == ["new", "new"]


class TestVersions:
    def test_pinned_run_is_seen_by_workers_of_its_version_alone(self, store: Store) -> None:
        created(store, "any")
        created(store, "old", version="v1")
        assert ready(store) == ["any"]
        assert sorted(ready(store, version="v1")) == ["any", "old"]
        assert ready(store, version="v2") == ["any"]

    @asks_who_lives
    def test_also_once_its_holder_is_gone_or_it_is_due(self, store: Store, place: Place) -> None:
        held_run(store, "held")
        land(store, ending(held_run(store, "due"), RunState.WAITING, wake_at=50.0))
        land(store, ending(held_run(store, "post"), RunState.WAITING))
        store.post(letter("post"))
        store.close()
        after = place.open()
        for run_id in ("held", "due", "post"):
            after.pin_run(run_id, "v1", by="ada")
        assert ready(after, now=60.0) == []
        assert ready(after, version="v2", now=60.0) == []
        assert ready(after, version="v1", now=60.0) == ["held", "post", "due"]

    def test_its_holder_may_pin_a_run_when_it_leaves(self, store: Store) -> None:
        run = held_run(store)
        land(store, ending(run, RunState.WAITING, wake_at=50.0, version="v1"))
        assert ready(store, now=60.0) == []
        assert ready(store, version="v1", now=60.0) == ["run-1"]


class TestDelay:
    def test_delayed_run_is_not_ready_before_it_is_woken(self, store: Store) -> None:
        created(store, wake_at=500.0)
        assert ready(store, now=600.0) == []
        assert store.wake_due(now=499.0) == 0
        assert store.wake_due(now=500.0) == 1
        assert ready(store, now=500.0) == ["run-1"]

    def test_woken_run_gets_its_turn_then(self, store: Store) -> None:
        created(store, "late", tenant="small", wake_at=500.0)
        for number in range(4):
            created(store, f"bulk-{number}", tenant="bulk")
        served(store, 2)
        store.wake_due(now=500.0)
        assert ready(store) == ["bulk-2", "late", "bulk-3"] or ready(store) == ["late", "bulk-2", "bulk-3"]
        woken = store.read_run("late")
        assert woken is not None
        assert (woken.wake_at, woken.turn, woken.updated_at) == (0.0, 2, 500.0)

    def test_soonest_are_woken_first_and_no_more_than_asked_for(self, store: Store) -> None:
        for number in (3, 1, 2):
            created(store, f"run-{number}", wake_at=100.0 + number)
        assert store.wake_due(now=200.0, limit=2) == 2
        assert ready(store) == ["run-1", "run-2"]
        assert store.wake_due(now=200.0, limit=2) == 1
        assert store.wake_due(now=200.0, limit=2) == 0

    def test_woken_together_they_take_turns_like_those_that_came_one_by_one(self, store: Store) -> None:
        for number in range(3):
            created(store, f"bulk-{number}", tenant="bulk", wake_at=100.0)
        for number in range(2):
            created(store, f"small-{number}", tenant="small", wake_at=101.0, at=200.0)
        assert store.wake_due(now=200.0) == 5
        assert ready(store) == ["bulk-0", "small-0", "bulk-1", "small-1", "bulk-2"]

    def test_damaged_run_does_not_keep_the_others_asleep(self, store: Store, place: Place) -> None:
        created(store, "damaged", wake_at=100.0)
        created(store, "whole", wake_at=101.0)
        place.damage_run("damaged", priority=7)
        assert store.wake_due(now=200.0) == 1
        assert ready(store) == ["whole"]

    def test_waiting_run_is_no_delayed_one(self, store: Store) -> None:
        land(store, ending(held_run(store), RunState.WAITING, wake_at=50.0))
        assert store.wake_due(now=60.0) == 0

    def test_who_asks_by_name_does_not_wait(self, store: Store) -> None:
        created(store, wake_at=500.0)
        run = claimed(store, terms=PARDON)
        assert (run.state, run.wake_at) == (RunState.RUNNING, 0.0)
        assert store.wake_due(now=600.0) == 0

    def test_repaired_run_that_waited_for_a_time_is_ready(self, store: Store, place: Place) -> None:
        run = land(store, step(held_run(store)))
        land(store, ending(run, RunState.WAITING, wake_at=10_000.0))
        place.damage_record("run-1", 2)
        assert store.repair_run("run-1") > 0
        assert ready(store) == ["run-1"]

    def test_repaired_run_that_was_delayed_stays_so(self, store: Store, place: Place) -> None:
        run, first = new_run(wake_at=500.0)
        store.create_run(run, first)
        parked = msgspec.structs.replace(run, detail='{"code":"commits_lost"}')
        place.damage_run("run-1", detail=parked.detail, digest=sealed_run(parked).digest)
        store.repair_run("run-1")
        assert ready(store) == []
        assert store.wake_due(now=500.0) == 1
        assert ready(store) == ["run-1"]


class TestMail:
    def test_upkeep_takes_nothing_from_a_run_that_has_not_heard_of_its_mail(self, store: Store) -> None:
        run = held_run(store)
        mail = store.post(letter())
        store.wake_due(now=0.0)
        land(store, ending(run, RunState.WAITING, heard=mail.mail_id - 1))
        store.wake_due(now=0.0)
        assert ready(store) == ["run-1"]

    def test_new_mail_wakes_a_run_however_much_it_has_heard_of_before(self, store: Store) -> None:
        mail = store.post(letter(created(store).run_id))
        land(store, ending(claimed(store), RunState.WAITING, heard=mail.mail_id))
        store.wake_due(now=0.0)
        assert ready(store) == []
        assert store.read_mail("run-1") == [mail]
        store.post(letter())
        store.wake_due(now=0.0)
        assert ready(store) == ["run-1"]
        assert [run.run_id for run in store.list_due(now=0.0)] == ["run-1"]

    def test_upkeep_leaves_untaken_mail_for_who_resumes_a_failed_run(self, store: Store) -> None:
        run = held_run(store)
        mail = store.post(letter())
        land(store, ending(run, RunState.FAILED))
        store.wake_due(now=0.0)
        again = claimed(store)
        land(store, step(again, taken=(mail.mail_id,)))
        assert store.read_mail("run-1")[0].taken == again.length + 1


class TestHolders:
    def test_run_whose_holder_lost_its_session_is_ready_long_before_its_lease_ends(
        self, place: Place, manual_clock: ManualClock
    ) -> None:
        if not isinstance(place, PostgresPlace) or "portable" in place.url:
            pytest.skip("only a server knows sessions, and only where it is asked for them")
        store, other = place.open(), place.open()
        held_run(store)
        assert ready(other) == []
        number = life_key(store.join().worker_id) % 2**64
        halves = (number >> 32, number & 0xFFFFFFFF)
        found = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s"
        place.write(f"SELECT pg_terminate_backend(pid, 10000) FROM ({found})", halves)  # noqa: S608 - of ours
        ready(other)
        manual_clock.advance(RETURN_SECONDS)
        assert ready(other) == ["run-1"]


class TestPaused:
    def paused(self, store: Store, run_id: str) -> None:
        park = write_park(Park(code=RunPaused.code, message="paused"))
        land(store, ending(held_run(store, run_id), RunState.WAITING, reason="parked", detail=park, wake_at=50.0))

    def test_paused_runs_are_not_due_and_hide_nobody(self, store: Store) -> None:
        for number in range(5):
            self.paused(store, f"paused-{number}")
            store.post(letter(f"paused-{number}"))
        land(store, ending(held_run(store, "due"), RunState.WAITING, wake_at=55.0))
        assert ready(store, now=60.0, limit=1) == ["due"]
        assert ready(store, now=60.0) == ["due"]

    def test_paused_run_is_due_once_it_was_let_go(self, store: Store) -> None:
        self.paused(store, "run-1")
        store.post(msgspec.structs.replace(letter(), kind="unpause"))
        assert ready(store, now=60.0) == ["run-1"]


class TestDeclared:
    def test_default_queue_is_always_known(self, store: Store) -> None:
        assert store.list_queues() == [Queue("default")]

    def test_newest_declaration_counts_for_everybody(self, store: Store, other: Store) -> None:
        store.declare_queue(Queue("mail", 5, 2, 1.5, 10, "openai"))
        assert other.list_queues() == [Queue("default"), Queue("mail", 5, 2, 1.5, 10, "openai")]
        other.declare_queue(Queue("mail"))
        assert store.list_queues() == [Queue("default"), Queue("mail")]

    def test_queue_that_ever_had_a_run_is_known_and_keeps_its_limits(self, store: Store, other: Store) -> None:
        store.declare_queue(Queue("web", concurrency=3))
        for queue in ("web", "mail", "web"):
            created(store, f"run-{queue}", queue=queue)
        assert other.list_queues() == [Queue("default"), Queue("mail"), Queue("web", concurrency=3)]

    def test_queue_of_an_imported_run_is_known(self, store: Store, tmp_path: object) -> None:
        created(store, queue="mail")
        whole = store.load_whole("run-1")
        copy = msgspec.structs.replace(whole, run=sealed_run(msgspec.structs.replace(whole.run, queue="elsewhere")))
        store.import_run(renamed(copy))
        assert [queue.name for queue in store.list_queues()] == ["default", "elsewhere", "mail"]

    def test_imported_run_keeps_its_queue_and_gets_a_new_turn(self, store: Store) -> None:
        for number in range(3):
            created(store, f"run-{number}", queue="mail", priority=4, tenant="ada", version="v1")
        run = adopted(store.load_whole("run-2"), exported_at=1.0).run
        assert (run.queue, run.priority, run.tenant, run.version, run.turn) == ("mail", 4, "ada", "v1", 0)


class TestGate:
    def limited(self, store: Store, runs: int = 3, **limits: Any) -> None:
        store.declare_queue(Queue("mail", **limits))
        for number in range(runs):
            created(store, f"run-{number}", queue="mail")

    def test_no_more_are_let_in_than_may_be_running(self, store: Store, other: Store) -> None:
        self.limited(store, concurrency=2)
        claimed(store, "run-0")
        claimed(other, "run-1")
        with pytest.raises(QueueFull) as refused:
            claimed(store, "run-2")
        assert refused.value.seconds > 0
        assert "mail" in refused.value.message

    def test_refused_claim_writes_nothing_and_counts_no_delivery(self, store: Store) -> None:
        self.limited(store, concurrency=1)
        claimed(store, "run-0")
        before = store.load_whole("run-1")
        with pytest.raises(QueueFull):
            claimed(store, "run-1")
        assert store.load_whole("run-1") == before

    @pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.QUEUED])
    def test_run_that_ends_or_comes_back_frees_its_place(self, store: Store, state: RunState) -> None:
        self.limited(store, concurrency=1)
        land(store, ending(claimed(store, "run-0"), state))
        assert claimed(store, "run-1").state == RunState.RUNNING

    def test_waiting_and_parked_runs_hold_no_place_and_need_one_to_go_on(self, store: Store) -> None:
        self.limited(store, concurrency=1)
        land(store, ending(claimed(store, "run-0"), RunState.WAITING, reason="time", wake_at=50.0))
        held = claimed(store, "run-1")
        with pytest.raises(QueueFull):
            claimed(store, "run-0")
        land(store, ending(held, RunState.WAITING, reason="parked"))
        assert claimed(store, "run-0").deliveries == 2

    @asks_who_lives
    def test_run_of_a_dead_worker_keeps_its_place_and_needs_no_other(self, store: Store, place: Place) -> None:
        self.limited(store, concurrency=1)
        claimed(store, "run-0")
        store.close()
        after = place.open()
        with pytest.raises(QueueFull):
            claimed(after, "run-1")
        assert claimed(after, "run-0").deliveries == 2

    def test_own_run_can_be_claimed_again(self, store: Store) -> None:
        self.limited(store, concurrency=1)
        claimed(store, "run-0")
        assert claimed(store, "run-0").epoch == 2

    def test_person_who_asks_by_name_passes_and_takes_a_place(self, store: Store) -> None:
        self.limited(store, concurrency=1)
        claimed(store, "run-0")
        first = claimed(store, "run-1", PARDON)
        with pytest.raises(QueueFull):
            claimed(store, "run-2")
        land(store, ending(first))
        with pytest.raises(QueueFull):
            claimed(store, "run-2")

    def test_other_queues_are_not_held_up(self, store: Store) -> None:
        self.limited(store, concurrency=1)
        claimed(store, "run-0")
        created(store, "web", queue="web")
        assert claimed(store, "web").state == RunState.RUNNING

    def test_limit_that_is_lowered_ends_nothing_and_lets_nobody_in(self, store: Store) -> None:
        self.limited(store, runs=4, concurrency=3)
        runs = [claimed(store, f"run-{number}") for number in range(3)]
        store.declare_queue(Queue("mail", concurrency=1))
        land(store, step(runs[0]))
        for run in runs[1:]:
            with pytest.raises(QueueFull):
                claimed(store, "run-3")
            land(store, ending(run))
        with pytest.raises(QueueFull):
            claimed(store, "run-3")

    def test_spent_run_is_parked_though_its_queue_is_full(self, store: Store) -> None:
        self.limited(store, concurrency=1)
        land(store, ending(claimed(store, "run-0"), RunState.QUEUED, deliveries=3))
        claimed(store, "run-1")
        with pytest.raises(DeliveriesExhausted):
            claimed(store, "run-0")

    def test_finished_run_is_returned_though_its_queue_is_full(self, store: Store) -> None:
        self.limited(store, concurrency=1)
        land(store, ending(claimed(store, "run-0")))
        claimed(store, "run-1")
        assert claimed(store, "run-0").state == RunState.COMPLETED

    def test_full_queue_does_not_hide_the_runs_of_others(self, store: Store, place: Place) -> None:
        self.limited(store, runs=30, concurrency=2)
        claimed(store, "run-0")
        land(store, ending(claimed(store, "run-1"), RunState.WAITING, wake_at=50.0))
        land(store, ending(claimed(store, "run-2"), RunState.WAITING))
        store.post(letter("run-2"))
        created(store, "web", queue="web", priority=-9)
        assert ready(store, now=60.0, limit=3) == ["run-2", "web"]
        claimed(store, "run-2")
        assert ready(store, now=60.0, limit=3) == ["web"]
        store.close()
        assert ready(place.open(), now=60.0, limit=3) == ["run-0", "run-2", "web"]

    def test_what_is_listed_would_be_let_in(self, store: Store) -> None:
        self.limited(store, runs=10, concurrency=4, rate=1 / MINUTE, burst=3)
        land(store, ending(claimed(store, "run-0"), RunState.QUEUED))
        found = ready(store)
        assert found == ["run-0", "run-1", "run-2"]
        for run_id in found:
            claimed(store, run_id)
        assert ready(store) == []


class TestRate:
    def test_first_delivery_takes_a_token_and_later_ones_do_not(self, store: Store, manual_clock: ManualClock) -> None:
        store.declare_queue(Queue("mail", rate=1 / MINUTE, burst=2))
        for number in range(4):
            created(store, f"run-{number}", queue="mail")
        land(store, ending(claimed(store, "run-0"), RunState.QUEUED))
        claimed(store, "run-0")
        claimed(store, "run-1")
        with pytest.raises(QueueFull) as refused:
            claimed(store, "run-2")
        assert MINUTE - 10 < refused.value.seconds <= MINUTE
        manual_clock.advance(MINUTE)
        claimed(store, "run-2")
        with pytest.raises(QueueFull):
            claimed(store, "run-3")

    def test_run_without_a_place_takes_no_token(self, store: Store) -> None:
        store.declare_queue(Queue("mail", concurrency=1, rate=1 / MINUTE, burst=2))
        for number in range(3):
            created(store, f"run-{number}", queue="mail")
        first = claimed(store, "run-0")
        for _ in range(5):
            with pytest.raises(QueueFull):
                claimed(store, "run-1")
        land(store, ending(first))
        assert claimed(store, "run-1").deliveries == 1

    def test_queues_with_one_bucket_share_its_tokens(self, store: Store, other: Store) -> None:
        for name in ("mail", "web"):
            store.declare_queue(Queue(name, rate=1 / MINUTE, burst=1, bucket="openai"))
            created(store, name, queue=name)
        claimed(store, "mail")
        with pytest.raises(QueueFull):
            claimed(other, "web")
        assert store.take_tokens("openai", rate=1 / MINUTE, burst=1) > 0

    def test_queues_without_a_bucket_have_one_each_whatever_others_are_called(self, store: Store) -> None:
        for name in ("mail", "web"):
            store.declare_queue(Queue(name, rate=1 / MINUTE, burst=1))
            created(store, name, queue=name)
        assert store.take_tokens("mail", rate=1 / MINUTE, burst=1) == 0
        claimed(store, "mail")
        claimed(store, "web")

    def test_person_who_asks_by_name_takes_no_token(self, store: Store) -> None:
        store.declare_queue(Queue("mail", rate=1 / MINUTE, burst=1))
        for number in range(2):
            created(store, f"run-{number}", queue="mail")
        claimed(store, "run-0", PARDON)
        assert claimed(store, "run-1").state == RunState.RUNNING

    def test_queue_without_tokens_does_not_hide_the_runs_of_others(self, store: Store) -> None:
        store.declare_queue(Queue("mail", rate=1 / MINUTE, burst=1))
        for number in range(30):
            created(store, f"run-{number}", queue="mail", priority=9)
        created(store, "web", queue="web")
        claimed(store, "run-0")
        assert ready(store, limit=3) == ["web"]


class TestTokens:
    def test_burst_comes_at_once_and_then_no_more_than_the_rate(self, store: Store, manual_clock: ManualClock) -> None:
        def take(tokens: int = 1) -> float:
            return store.take_tokens("openai", tokens, rate=1 / MINUTE, burst=3)

        assert [take(), take(2)] == [0.0, 0.0]
        assert MINUTE - 10 < take() <= MINUTE
        assert 2 * MINUTE - 10 < take(2) <= 2 * MINUTE
        manual_clock.advance(MINUTE)
        assert take() == 0.0
        assert take() > 0

    def test_bucket_never_holds_more_than_its_burst(self, store: Store, manual_clock: ManualClock) -> None:
        assert store.take_tokens("openai", rate=1 / MINUTE, burst=3) == 0.0
        manual_clock.advance(1000 * MINUTE)
        assert store.take_tokens("openai", 3, rate=1 / MINUTE, burst=3) == 0.0
        assert store.take_tokens("openai", 1, rate=1 / MINUTE, burst=3) > 0

    def test_refused_take_takes_nothing(self, store: Store) -> None:
        assert store.take_tokens("openai", 2, rate=1 / MINUTE, burst=3) == 0.0
        for _ in range(5):
            assert store.take_tokens("openai", 2, rate=1 / MINUTE, burst=3) > 0
        assert store.take_tokens("openai", 1, rate=1 / MINUTE, burst=3) == 0.0

    def test_everybody_takes_from_the_same_bucket(self, store: Store, other: Store) -> None:
        assert store.take_tokens("openai", rate=1 / MINUTE, burst=1) == 0.0
        assert other.take_tokens("openai", rate=1 / MINUTE, burst=1) > 0
        assert other.take_tokens("another", rate=1 / MINUTE, burst=1) == 0.0

    def test_more_than_a_bucket_holds_is_refused_in_words(self, store: Store) -> None:
        with pytest.raises(UsageError, match="4 tokens"):
            store.take_tokens("openai", 4, rate=1.0, burst=3)

    def test_no_rate_is_no_limit(self, store: Store) -> None:
        assert [store.take_tokens("openai", 100, rate=0.0, burst=0) for _ in range(3)] == [0.0] * 3

    def test_higher_rate_is_felt_at_once(self, store: Store) -> None:
        assert store.take_tokens("openai", 2, rate=0.001, burst=2) == 0.0
        assert store.take_tokens("openai", 1, rate=0.001, burst=2) > 100
        assert store.take_tokens("openai", 1, rate=1000.0, burst=2) < 1


def renamed(whole: Any) -> Any:
    """The same run under another id, which no journal of here has."""
    run: Run = whole.run
    fresh, first = new_run("run-2", queue=run.queue)
    return msgspec.structs.replace(whole, run=fresh, records=(first,), mail=())
