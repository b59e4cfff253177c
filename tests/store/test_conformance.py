"""What every store guarantees, one test for each sentence of the port."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from perdure import clock
from perdure.bodies import Delivery, Ended, Repaired, read_body
from perdure.errors import (
    CheckpointCorrupt,
    CommitsLost,
    DeliveriesExhausted,
    InternalError,
    LeaseLost,
    RunHeld,
    StoreError,
    UnknownRun,
)
from perdure.records import Append, Kind, RunState, WaitReason, extended
from perdure.store import blobs
from perdure.store.lease import Park, Presence, claim, read_park, write_park
from perdure.store.protocol import Finding, Which
from tests.store.journals import (
    AGENT,
    PARDON,
    QUIET_SECONDS,
    TERMS,
    append,
    claimed,
    created,
    ending,
    held_run,
    intent,
    land,
    large_step,
    letter,
    new_run,
    outcome_of,
    step,
)
from tests.store.places import asks_who_lives

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.records import Run
    from perdure.store.protocol import Store
    from tests.store.conftest import ManualClock
    from tests.store.places import Place


def parked_for_loss(run: Run) -> Run:
    """The changes a noticed loss makes to an unfinished run."""
    park = Park(code=CommitsLost.code, message="The store lost 3 acknowledged records.", hint="perdure repair")
    return msgspec.structs.replace(run, state=RunState.WAITING, reason=WaitReason.PARKED, detail=write_park(park))


@asks_who_lives
class TestJoin:
    def test_makes_this_process_known_to_others(self, store: Store, other: Store) -> None:
        worker = store.join()
        known = other.read_worker(worker.worker_id)
        assert known is not None
        assert (known.pid, known.host) == (os.getpid(), clock.host_name())

    def test_once_is_enough(self, store: Store) -> None:
        assert store.join() == store.join()

    def test_gives_every_store_a_worker_of_its_own(self, store: Store, other: Store) -> None:
        assert store.join().worker_id != other.join().worker_id

    def test_unknown_worker_is_nobody(self, store: Store) -> None:
        assert store.read_worker("nobody") is None


class TestCreate:
    def test_row_and_first_record_are_committed_when_it_returns(self, store: Store, other: Store) -> None:
        run, first = new_run()
        assert store.create_run(run, first) == run
        assert other.read_run("run-1") == run
        assert other.load_journal("run-1") == [first]

    def test_a_creator_that_claims_holds_the_run_from_the_start(self, store: Store, other: Store) -> None:
        run, first = new_run()
        claimed = claim(run, store.join(), None, Presence.NONE, TERMS)
        store.create_run(claimed.run, first, claimed=claimed.records)
        assert [record.kind for record in other.load_journal("run-1")] == [Kind.STARTED, Kind.DELIVERY]
        with pytest.raises(RunHeld):
            other.claim_run("run-1", other.join().worker_id, TERMS)
        assert store.holds("run-1", claimed.run.epoch)

    def test_known_id_returns_the_row_that_is_there_and_writes_nothing(self, store: Store, other: Store) -> None:
        run = land(store, step(held_run(store)))
        again = other.create_run(*new_run(name="another name", arguments=b"other arguments"))
        assert again == run == store.read_run("run-1")
        assert [record.kind for record in other.load_journal("run-1")] == [Kind.STARTED, Kind.DELIVERY, Kind.STEP]

    def test_keeps_the_large_values_of_the_first_record(self, store: Store, other: Store) -> None:
        digest, stored = blobs.pack(b"long " * 10_000)
        store.create_run(*new_run(), [(digest, stored)])
        assert other.load_blob(digest) == b"long " * 10_000


@asks_who_lives
class TestClaim:
    def test_grows_the_epoch_and_counts_the_delivery_before_any_work(self, store: Store, other: Store) -> None:
        before = created(store)
        run = claimed(store)
        assert (run.epoch, run.deliveries) == (before.epoch + 1, 1)
        assert (run.state, run.holder) == (RunState.RUNNING, store.join().worker_id)
        assert other.read_run("run-1") == run

    def test_records_who_took_the_run(self, store: Store, other: Store) -> None:
        held_run(store)
        record = other.load_journal("run-1")[-1]
        body: Delivery = read_body(record)
        assert (record.kind, record.epoch) == (Kind.DELIVERY, 1)
        assert (body.worker, body.pid, body.host) == (store.join().worker_id, os.getpid(), clock.host_name())
        assert (body.delivery, body.before) == (1, "")

    def test_every_claim_has_a_greater_epoch(self, store: Store) -> None:
        created(store)
        assert [claimed(store, terms=PARDON).epoch for _ in range(5)] == [1, 2, 3, 4, 5]

    def test_live_holder_is_never_robbed(self, store: Store, other: Store, manual_clock: ManualClock) -> None:
        run = held_run(store)
        manual_clock.advance(QUIET_SECONDS)
        with pytest.raises(RunHeld) as refused:
            claimed(other)
        for part in (
            run.name,
            store.join().worker_id,
            f"pid {os.getpid()}",
            clock.host_name(),
            f"{QUIET_SECONDS:.0f} s ago",
        ):
            assert part in refused.value.message
        assert store.read_run("run-1") == run
        assert store.holds("run-1", run.epoch)

    def test_pardon_does_not_rob_a_live_holder(self, store: Store, other: Store) -> None:
        held_run(store)
        with pytest.raises(RunHeld):
            claimed(other, terms=PARDON)

    def test_beat_keeps_the_lease(self, store: Store, other: Store, manual_clock: ManualClock) -> None:
        held_run(store)
        manual_clock.advance(QUIET_SECONDS)
        store.beat(store.join().worker_id)
        manual_clock.advance(QUIET_SECONDS)
        with pytest.raises(RunHeld):
            claimed(other)

    def test_is_a_sign_of_life(self, store: Store, other: Store, manual_clock: ManualClock) -> None:
        store.join()
        created(store)
        manual_clock.advance(TERMS.stall_seconds * 10)
        claimed(store)
        with pytest.raises(RunHeld):
            claimed(other)

    def test_silent_holder_is_taken_over(self, store: Store, other: Store, manual_clock: ManualClock) -> None:
        run = held_run(store)
        manual_clock.advance(TERMS.stall_seconds + 1)
        assert not other.is_running(run, stall_seconds=TERMS.stall_seconds)
        taken = claimed(other)
        assert (taken.epoch, taken.holder) == (run.epoch + 1, other.join().worker_id)
        assert "no sign of life" in read_body(other.load_journal("run-1")[-1]).before
        assert isinstance(outcome_of(store, step(run)), LeaseLost)

    def test_closed_store_holds_nothing(self, store: Store, other: Store) -> None:
        run = held_run(store)
        assert other.is_running(run, stall_seconds=TERMS.stall_seconds)
        store.close()
        assert not other.is_running(run, stall_seconds=TERMS.stall_seconds)
        assert claimed(other).epoch == run.epoch + 1
        assert read_body(other.load_journal("run-1")[-1]).before == "its process died"

    def test_own_run_can_be_claimed_again(self, store: Store) -> None:
        run = held_run(store)
        assert claimed(store).epoch == run.epoch + 1

    @pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.CANCELLED])
    def test_finished_run_is_returned_as_it_is(self, store: Store, other: Store, state: RunState) -> None:
        run = land(store, ending(held_run(store), state))
        journal = store.load_journal("run-1")
        assert claimed(other) == run == other.read_run("run-1")
        assert other.load_journal("run-1") == journal

    @pytest.mark.parametrize("state", [RunState.QUEUED, RunState.WAITING, RunState.FAILED, RunState.COMPLETED])
    def test_claim_that_names_the_end_of_the_journal_is_refused_once_somebody_wrote_there(
        self, store: Store, state: RunState
    ) -> None:
        before = held_run(store)
        run = land(store, ending(before, state))
        journal = store.load_journal("run-1")
        with pytest.raises(RunHeld):
            claimed(store, terms=msgspec.structs.replace(PARDON, head=before.head))
        assert (store.read_run("run-1"), store.load_journal("run-1")) == (run, journal)

    def test_claim_that_names_the_end_of_the_journal_succeeds_while_it_is_the_end(self, store: Store) -> None:
        before = held_run(store)
        assert claimed(store, terms=msgspec.structs.replace(PARDON, head=before.head)).epoch == before.epoch + 1

    @pytest.mark.parametrize("state", [RunState.QUEUED, RunState.WAITING, RunState.FAILED])
    def test_unfinished_run_runs_again(self, store: Store, other: Store, state: RunState) -> None:
        run = land(store, ending(held_run(store), state, reason="", detail=""))
        again = claimed(other)
        assert (again.state, again.epoch) == (RunState.RUNNING, run.epoch + 1)

    def test_three_deliveries_without_a_step_park_the_run(self, store: Store, place: Place) -> None:
        created(store)
        for delivery in (1, 2, 3):
            worker = place.open()
            assert claimed(worker).deliveries == delivery
            worker.close()
        with pytest.raises(DeliveriesExhausted, match="3 workers in a row"):
            claimed(store)
        run = store.read_run("run-1")
        assert run is not None
        assert (run.state, run.reason, run.holder) == (RunState.WAITING, WaitReason.PARKED, "")
        assert read_park(run).code == DeliveriesExhausted.code
        ended: Ended = read_body(store.load_journal("run-1")[-1])
        assert (ended.state, ended.code) == (RunState.WAITING, DeliveriesExhausted.code)

    def test_parked_run_stays_parked_and_unchanged(self, store: Store) -> None:
        created(store)
        for _ in range(3):
            claimed(store)
        for _ in range(2):
            with pytest.raises(DeliveriesExhausted):
                claimed(store)
        assert [record.kind for record in store.load_journal("run-1")].count(Kind.ENDED) == 1

    def test_parking_fences_the_holder_it_gave_up_on(
        self, store: Store, other: Store, manual_clock: ManualClock
    ) -> None:
        created(store)
        for _ in range(3):
            run = claimed(store)
        manual_clock.advance(TERMS.stall_seconds + 1)
        with pytest.raises(DeliveriesExhausted):
            claimed(other)
        assert not store.holds("run-1", run.epoch)
        assert isinstance(outcome_of(store, step(run)), LeaseLost)

    def test_step_between_deliveries_resets_their_count(self, store: Store) -> None:
        created(store)
        for _ in range(4):
            claimed(store)
            run = claimed(store)
            assert run.deliveries == 2
            land(store, step(run))

    def test_person_who_asks_by_name_pardons_a_parked_run(self, store: Store) -> None:
        created(store)
        for _ in range(3):
            claimed(store)
        with pytest.raises(DeliveriesExhausted):
            claimed(store)
        run = claimed(store, terms=PARDON)
        assert (run.deliveries, run.state, run.detail) == (1, RunState.RUNNING, "")

    def test_run_parked_for_lost_commits_waits_for_a_person(self, store: Store) -> None:
        run = held_run(store)
        parked = parked_for_loss(run)
        changes = {name: getattr(parked, name) for name in ("state", "reason", "detail")}
        land(store, step(run, **changes))
        with pytest.raises(CommitsLost, match="lost 3"):
            claimed(store)
        assert claimed(store, terms=PARDON).state == RunState.RUNNING

    def test_unknown_run_is_named(self, store: Store) -> None:
        with pytest.raises(UnknownRun, match="run-9"):
            claimed(store, "run-9")

    def test_worker_claims_for_itself_alone(self, store: Store, other: Store) -> None:
        created(store)
        with pytest.raises(InternalError):
            store.claim_run("run-1", other.join().worker_id, TERMS)


class TestAppend:
    def test_record_keeps_a_time_that_is_not_that_of_its_row(self, store: Store, other: Store) -> None:
        """A record is bound by its own digest, whichever way a store finds short."""
        run = held_run(store)
        record = msgspec.structs.replace(step(run).records[0], at=run.updated_at + 1)
        after, records = extended(run, at=run.updated_at + 2, records=(record,), deliveries=0, steps=1)
        assert store.append_all([Append(after, records)], power=True) == [None]
        assert [each.at for each in other.load_journal("run-1")][-1] == run.updated_at + 1

    def test_row_and_records_land_together(self, store: Store, other: Store) -> None:
        one = step(held_run(store))
        assert outcome_of(store, one) is None
        assert other.read_run("run-1") == one.run
        assert other.load_journal("run-1")[-1] == one.records[0]

    def test_stale_epoch_writes_nothing(self, store: Store, place: Place) -> None:
        stale = held_run(store)
        posted = store.post(letter())
        content = b"never " * 10_000
        store.close()
        other = place.open()
        run = claimed(other)
        late = msgspec.structs.replace(large_step(stale, content), taken=(posted.mail_id,))
        (outcome,) = place.open().append_all([late], power=True)
        assert isinstance(outcome, LeaseLost)
        assert other.read_run("run-1") == run
        assert len(other.load_journal("run-1")) == run.length
        assert other.read_mail("run-1") == [posted]
        with pytest.raises(CheckpointCorrupt, match="missing"):
            other.load_blob(blobs.pack(content)[0])

    def test_right_epoch_and_wrong_length_writes_nothing(self, store: Store) -> None:
        before = held_run(store)
        run = land(store, step(before))
        assert isinstance(outcome_of(store, step(before, value="2")), LeaseLost)
        assert isinstance(outcome_of(store, step(step(run).run)), LeaseLost)
        assert store.read_run("run-1") == run
        assert len(store.load_journal("run-1")) == run.length

    def test_append_beside_another_process_writes_nothing(self, store: Store, other: Store) -> None:
        """Whoever wrote last has no right to write next."""
        mine = land(store, step(land(store, step(held_run(store)))))
        theirs = land(other, step(mine, value="2"))
        assert isinstance(outcome_of(store, step(mine, value="3")), LeaseLost)
        assert store.read_run("run-1") == theirs
        assert len(store.load_journal("run-1")) == theirs.length
        after = land(store, step(theirs))
        assert store.read_run("run-1") == after

    @pytest.mark.parametrize("by", [-1, 1])
    def test_other_epoch_and_right_length_writes_nothing(self, store: Store, by: int) -> None:
        run = land(store, step(land(store, step(held_run(store)))))
        assert isinstance(outcome_of(store, step(msgspec.structs.replace(run, epoch=run.epoch + by))), LeaseLost)
        assert store.read_run("run-1") == run
        assert len(store.load_journal("run-1")) == run.length

    @pytest.mark.parametrize(
        "change",
        [
            {"state": RunState.WAITING, "holder": ""},
            {"reason": WaitReason.SIGNAL},
            {"detail": "until the letter comes"},
            {"wake_at": 7.5},
            {"heard": 7},
            {"deliveries": 2},
            {"suspects": 1},
            {"tokens": 7},
            {"dollars": 0.25},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_every_column_of_the_row_lands_after_steps_that_left_it_alone(
        self, store: Store, change: dict[str, Any]
    ) -> None:
        changed = step(land(store, step(land(store, step(held_run(store))))), **change)
        assert outcome_of(store, changed) is None
        assert store.read_run("run-1") == changed.run
        after = land(store, step(changed.run))
        assert store.read_run("run-1") == after

    def test_step_of_a_run_that_waited_until_now_lands_with_its_row(self, store: Store) -> None:
        run = land(store, step(held_run(store)))
        waits: dict[str, Any] = {
            "state": RunState.WAITING,
            "reason": WaitReason.SIGNAL,
            "detail": "mail",
            "wake_at": 7.5,
            "heard": 7,
        }
        waited = land(store, step(run, **waits))
        after = land(store, step(waited, **{name: getattr(run, name) for name in waits}))
        assert store.read_run("run-1") == after

    def test_delivery_lands_with_the_holder_and_the_version_that_it_brings(self, store: Store) -> None:
        run = land(store, step(held_run(store)))
        body = Delivery(worker="w-2", pid=2, host="there", delivery=1)
        after = land(store, append(run, Kind.DELIVERY, body, holder="w-2", version="v2"))
        assert store.read_run("run-1") == after

    def test_unknown_run_is_nobodys(self, store: Store) -> None:
        run, _ = new_run("run-9")
        assert isinstance(outcome_of(store, step(run)), LeaseLost)
        assert store.read_run("run-9") is None

    def test_refused_append_does_not_disturb_others_of_its_batch(self, store: Store) -> None:
        one, two = held_run(store, "run-1"), held_run(store, "run-2")
        stale = msgspec.structs.replace(one, epoch=one.epoch - 1)
        outcomes = store.append_all([step(two), step(stale), step(one)], power=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), LeaseLost, type(None)]
        assert store.read_run("run-2") == step(two).run
        assert store.read_run("run-1") == step(one).run

    def test_appends_of_one_run_land_in_their_order(self, store: Store) -> None:
        first = step(held_run(store))
        second = step(first.run, value="2")
        run = land(store, first, second)
        assert store.load_journal("run-1")[-2:] == [*first.records, *second.records]
        assert store.read_run("run-1") == run

    def test_nothing_lands_after_a_refused_append_of_the_same_run(self, store: Store) -> None:
        run = held_run(store)
        stale = step(msgspec.structs.replace(run, epoch=0))
        outcomes = store.append_all([stale, step(stale.run)], power=True)
        assert [type(outcome) for outcome in outcomes] == [LeaseLost, LeaseLost]
        assert store.read_run("run-1") == run

    def test_append_without_records_changes_the_row_alone(self, store: Store) -> None:
        run = held_run(store)
        one = step(run)
        bare = msgspec.structs.replace(one, run=run, records=())
        assert outcome_of(store, bare) is None
        assert store.read_run("run-1") == run

    def test_empty_batch_is_nothing(self, store: Store) -> None:
        assert store.append_all([], power=True) == []

    @pytest.mark.parametrize("power", [True, False])
    def test_is_visible_to_others_whatever_its_durability(self, store: Store, other: Store, power: bool) -> None:
        one = step(held_run(store))
        assert store.append_all([one], power=power) == [None]
        assert other.read_run("run-1") == one.run


@asks_who_lives
class TestHolds:
    def test_newest_epoch_holds_and_older_ones_do_not(self, store: Store, other: Store) -> None:
        created(store)
        epochs = [claimed(store).epoch for _ in range(3)]
        assert [other.holds("run-1", epoch) for epoch in epochs] == [False, False, True]

    def test_unknown_run_is_held_by_nobody(self, store: Store) -> None:
        assert not store.holds("run-9", 0)


class TestRead:
    def test_unknown_run_is_none(self, store: Store) -> None:
        assert store.read_run("run-9") is None

    def test_damaged_row_is_refused(self, store: Store, place: Place) -> None:
        created(store)
        place.damage_run("run-1", state="completed")
        with pytest.raises(CheckpointCorrupt, match="name-of-run-1"):
            store.read_run("run-1")
        with pytest.raises(CheckpointCorrupt):
            store.list_runs()
        with pytest.raises(CheckpointCorrupt):
            claimed(store)
        with pytest.raises(CheckpointCorrupt):
            store.create_run(*new_run())
        with pytest.raises(CheckpointCorrupt):
            store.load_journal("run-1")

    def test_list_is_newest_first(self, store: Store) -> None:
        for run_id, at in (("run-1", 10.0), ("run-2", 30.0), ("run-3", 20.0), ("run-4", 20.0)):
            created(store, run_id, at=at)
        assert [run.run_id for run in store.list_runs()] == ["run-2", "run-4", "run-3", "run-1"]
        assert [run.run_id for run in store.list_runs(limit=2)] == ["run-2", "run-4"]

    def test_list_is_narrowed_by_call_or_by_name(self, store: Store) -> None:
        created(store, "run-1", agent="a", arguments=b"x", name="one")
        created(store, "run-2", agent="a", arguments=b"y", name="two")
        created(store, "run-3", agent="b", arguments=b"x", name="one", at=200.0)
        assert [run.run_id for run in store.list_runs(agent="a", arguments=b"x")] == ["run-1"]
        assert [run.run_id for run in store.list_runs(name="one")] == ["run-3", "run-1"]
        assert store.list_runs(agent="c", arguments=b"x") == []


def ids(runs: Iterable[Run]) -> list[str]:
    return [run.run_id for run in runs]


class TestFind:
    @pytest.fixture(autouse=True)
    def runs(self, store: Store) -> None:
        """Five runs, from the oldest to the newest: queued, running, in doubt, failed, completed."""
        created(store, "run-1", at=10.0, agent="shop.outreach", name="calm-elk")
        held_run(store, "run-2", at=20.0, agent="outreach", name="calm-fox", tags='{"team":"sales","tier":"1"}')
        waiting = held_run(store, "run-3", at=30.0, agent="shop.refund", name="run-of-elks")
        land(store, intent(waiting, state=RunState.WAITING, reason=WaitReason.IN_DOUBT))
        land(store, ending(held_run(store, "run-4", at=40.0, name="calm-elk", tags='{"team":"ops"}'), RunState.FAILED))
        land(store, ending(held_run(store, "fifth", at=40.0, agent="shop.great_outreach")))

    @pytest.mark.parametrize(
        ("which", "expected"),
        [
            (Which(), ["fifth", "run-4", "run-3", "run-2", "run-1"]),
            (Which(states=("queued", "failed")), ["run-4", "run-1"]),
            (Which(reasons=("in_doubt", "human")), ["run-3"]),
            (Which(unfinished=True), ["run-4", "run-3", "run-2", "run-1"]),
            (Which(unfinished=True, states=("completed",)), []),
            (Which(agent="shop.outreach"), ["run-1"]),
            (Which(agent="outreach"), ["run-2", "run-1"]),
            (Which(agent="each"), []),
            (Which(agent="shop"), []),
            (Which(beginning="calm-"), ["run-4", "run-2", "run-1"]),
            (Which(beginning="run-"), ["run-4", "run-3", "run-2", "run-1"]),
            (Which(beginning="run-3"), ["run-3"]),
            (Which(beginning="alm"), []),
            (Which(beginning="calm%"), []),
            (Which(beginning="CALM"), []),
            (Which(since_at=30.0), ["fifth", "run-4", "run-3"]),
            (Which(until_at=30.0), ["run-2", "run-1"]),
            (Which(since_at=20.0, until_at=40.0), ["run-3", "run-2"]),
            (Which(tags={"team": "sales"}), ["run-2"]),
            (Which(tags={"team": "sales", "tier": "1"}), ["run-2"]),
            (Which(tags={"team": "sales", "tier": "2"}), []),
            (Which(tags={"sales": "team"}), []),
            (Which(agent="outreach", states=("running",), tags={"tier": "1"}), ["run-2"]),
        ],
    )
    def test_finds_and_counts_the_runs_that_are_meant_newest_first(
        self, other: Store, which: Which, expected: list[str]
    ) -> None:
        assert ids(other.find_runs(which)) == expected
        assert other.count_runs(which) == len(expected)

    def test_skip_and_limit_page_through_them_without_gap_or_repetition(self, store: Store) -> None:
        pages = [store.find_runs(Which(), limit=2, skip=skip) for skip in (0, 2, 4, 6)]
        assert [ids(page) for page in pages] == [["fifth", "run-4"], ["run-3", "run-2"], ["run-1"], []]

    @pytest.mark.parametrize("text", ["'", '"', "\\", "%", "calm-elk' OR '1'='1", "\U0010ffff", "ünï"])
    def test_what_is_asked_for_is_a_value_and_never_a_part_of_the_question(self, store: Store, text: str) -> None:
        for which in (Which(agent=text), Which(beginning=text), Which(states=(text,)), Which(tags={text: text})):
            assert store.find_runs(which) == []
            assert store.count_runs(which) == 0
        created(store, f"{text}-run", name=f"{text}-name", agent=f"a.{text}", tags=json.dumps({text: text}))
        for which in (Which(agent=text), Which(beginning=text), Which(tags={text: text})):
            assert ids(store.find_runs(which)) == [f"{text}-run"]

    def test_a_damaged_row_among_them_is_refused(self, store: Store, place: Place) -> None:
        place.damage_run("run-2", steps=40)
        with pytest.raises(CheckpointCorrupt, match="calm-fox"):
            store.find_runs(Which())
        assert ids(store.find_runs(Which(states=("queued",)))) == ["run-1"]


class TestJournal:
    def test_is_complete_and_in_order(self, store: Store) -> None:
        run = held_run(store)
        for _ in range(5):
            run = land(store, step(run))
        journal = store.load_journal("run-1")
        assert [record.seq for record in journal] == list(range(run.length))
        assert journal[-1].digest == run.head

    def test_of_an_unknown_run_is_an_error(self, store: Store) -> None:
        with pytest.raises(UnknownRun, match="run-9"):
            store.load_journal("run-9")

    @pytest.mark.parametrize("seq", [0, 1, 2, 3])
    def test_damaged_record_is_named(self, store: Store, place: Place, seq: int) -> None:
        run = land(store, step(held_run(store)))
        land(store, step(run))
        place.damage_record("run-1", seq)
        with pytest.raises(CheckpointCorrupt, match=f"record {seq} is damaged"):
            store.load_journal("run-1")

    @pytest.mark.parametrize(("seq", "named"), [(0, "record 0 is missing"), (3, "ends after 3 records, 4 were")])
    def test_missing_record_is_named(self, store: Store, place: Place, seq: int, named: str) -> None:
        run = land(store, step(held_run(store)))
        land(store, step(run))
        place.delete_record("run-1", seq)
        with pytest.raises(CheckpointCorrupt, match=named):
            store.load_journal("run-1")


class TestBlobs:
    def test_come_back_as_they_went_in(self, store: Store, other: Store) -> None:
        content = bytes(range(256)) * 1000
        land(store, large_step(held_run(store), content))
        assert other.load_blob(blobs.pack(content)[0]) == content

    def test_same_content_is_kept_once_for_many_runs(self, store: Store) -> None:
        content = b"page " * 10_000
        for run_id in ("run-1", "run-2"):
            land(store, large_step(held_run(store, run_id), content))
        assert store.load_blob(blobs.pack(content)[0]) == content

    def test_missing_is_named(self, store: Store) -> None:
        with pytest.raises(CheckpointCorrupt, match="missing"):
            store.load_blob(b"\1" * 32)

    @pytest.mark.parametrize("content", [b"page " * 10_000, random.Random(1).randbytes(40_000)], ids=["text", "noise"])
    def test_damage_is_named(self, store: Store, place: Place, content: bytes) -> None:
        land(store, large_step(held_run(store), content))
        place.damage_blob(blobs.pack(content)[0])
        with pytest.raises(CheckpointCorrupt, match="damaged"):
            store.load_blob(blobs.pack(content)[0])

    def test_damaged_value_is_mended_by_the_same_value_made_anew(self, store: Store, place: Place) -> None:
        content = b"page " * 10_000
        run = land(store, large_step(held_run(store), content))
        place.damage_blob(blobs.pack(content)[0])
        land(store, large_step(run, content))
        assert store.load_blob(blobs.pack(content)[0]) == content


class TestMail:
    def test_is_committed_and_untaken_when_post_returns(self, store: Store, other: Store) -> None:
        created(store)
        posted = store.post(letter())
        assert posted.taken == 0
        assert other.read_mail("run-1") == [posted]

    def test_is_read_oldest_first(self, store: Store, other: Store) -> None:
        created(store)
        bodies = [store.post(letter(body=f'"{n}"', at=300.0 - n)).body for n in range(5)]
        assert [mail.body for mail in other.read_mail("run-1")] == bodies

    def test_stays_with_its_run(self, store: Store) -> None:
        created(store, "run-1")
        created(store, "run-2")
        store.post(letter("run-2"))
        assert store.read_mail("run-1") == []
        assert len(store.read_mail("run-2")) == 1

    def test_for_an_unknown_run_is_refused(self, store: Store) -> None:
        with pytest.raises(UnknownRun, match="run-9"):
            store.post(letter("run-9"))
        assert store.read_mail("run-9") == []

    def test_can_be_posted_while_another_holds_the_run(self, store: Store, other: Store) -> None:
        run = held_run(store)
        posted = other.post(letter())
        land(store, step(run, taken=(posted.mail_id,)))

    def test_is_taken_with_the_append_that_consumes_it(self, store: Store, other: Store) -> None:
        run = held_run(store)
        kept, gone = store.post(letter(body='"kept"')), store.post(letter(body='"gone"'))
        run = land(store, step(run, taken=(gone.mail_id,)))
        assert [(mail.mail_id, mail.taken) for mail in other.read_mail("run-1")] == [
            (kept.mail_id, 0),
            (gone.mail_id, run.length),
        ]

    def test_is_taken_once(self, store: Store) -> None:
        posted = (held_run(store), store.post(letter()))[1]
        before = store.read_run("run-1")
        assert before is not None
        first = land(store, step(before, taken=(posted.mail_id,)))
        land(store, step(first, taken=(posted.mail_id,)))
        assert [mail.taken for mail in store.read_mail("run-1")] == [first.length]

    def test_refused_append_takes_nothing(self, store: Store) -> None:
        run = held_run(store)
        posted = store.post(letter())
        claimed(store)
        assert isinstance(outcome_of(store, step(run, taken=(posted.mail_id,))), LeaseLost)
        assert store.read_mail("run-1") == [posted]

    def test_of_another_run_is_not_taken(self, store: Store) -> None:
        run = held_run(store, "run-1")
        created(store, "run-2")
        posted = store.post(letter("run-2"))
        land(store, step(run, taken=(posted.mail_id, 99)))
        assert store.read_mail("run-2") == [posted]

    @pytest.mark.parametrize("damage", [{"body": '{"outcome":"fail"}'}, {"taken": 2}, {"key": ".1"}])
    def test_damaged_mail_is_refused(self, store: Store, place: Place, damage: dict[str, object]) -> None:
        created(store)
        posted = store.post(letter())
        place.damage_mail(posted.mail_id, **damage)
        with pytest.raises(CheckpointCorrupt, match=f"Mail {posted.mail_id}"):
            store.read_mail("run-1")

    def test_taken_mail_cannot_be_made_untaken_unnoticed(self, store: Store, place: Place) -> None:
        run = held_run(store)
        posted = store.post(letter())
        land(store, step(run, taken=(posted.mail_id,)))
        place.damage_mail(posted.mail_id, taken=0)
        with pytest.raises(CheckpointCorrupt):
            store.read_mail("run-1")


class TestCheck:
    def test_whole_store_is_each_of_its_runs(self, store: Store) -> None:
        runs = [land(store, large_step(held_run(store, f"run-{n}"), b"page " * 10_000)) for n in range(3)]
        store.post(letter("run-0"))
        assert sorted(store.check(), key=lambda found: getattr(found, "run_id", "")) == runs

    def test_store_can_be_used_while_walking(self, store: Store) -> None:
        for n in range(3):
            created(store, f"run-{n}")
        for found in store.check():
            assert not isinstance(found, Finding)
            assert len(store.load_journal(found.run_id)) == 1

    def test_names_every_damage_and_still_lists_what_is_whole(self, store: Store, place: Place) -> None:
        content = b"page " * 10_000
        for n in range(5):
            run = held_run(store, f"run-{n}")
            land(store, step(run) if n != 2 else large_step(run, content))
        posted = store.post(letter("run-4"))
        place.damage_record("run-0", 2)
        place.damage_run("run-1", steps=7)
        place.damage_blob(blobs.pack(content)[0])
        place.damage_mail(posted.mail_id, body="{ }")
        found = list(store.check())
        findings = [item for item in found if isinstance(item, Finding)]
        assert {item.run_id: item.trusted for item in findings if item.run_id} == {"run-0": 2, "run-1": 3, "run-2": 2}
        assert any("mail" in item.where for item in findings)
        assert sorted(item.run_id for item in found if not isinstance(item, Finding)) == ["run-3", "run-4"]

    def test_changes_nothing(self, store: Store, place: Place) -> None:
        run = land(store, step(held_run(store)))
        place.damage_record("run-1", 1)
        list(store.check())
        assert store.read_run("run-1") == run


@asks_who_lives
class TestRepair:
    def test_run_without_damage_is_left_as_it_is(self, store: Store) -> None:
        run = land(store, ending(held_run(store)))
        journal = store.load_journal("run-1")
        assert store.repair_run("run-1") == 0
        assert store.read_run("run-1") == run
        assert store.load_journal("run-1") == journal

    def test_keeps_the_trusted_prefix_and_sets_the_rest_aside(self, store: Store, place: Place) -> None:
        run = held_run(store)
        for _ in range(6):
            run = land(store, step(run))
        land(store, ending(run))
        place.damage_record("run-1", 4)
        assert store.repair_run("run-1") == 5
        journal = store.load_journal("run-1")
        assert [record.kind for record in journal] == [
            Kind.STARTED,
            Kind.DELIVERY,
            Kind.STEP,
            Kind.STEP,
            Kind.REPAIRED,
        ]
        body: Repaired = read_body(journal[-1])
        assert body.set_aside == 5
        assert "record 4 is damaged" in body.why

    def test_repaired_run_can_go_on_with_its_effects_in_doubt(self, store: Store, place: Place) -> None:
        run = land(store, step(held_run(store)))
        run = land(store, intent(run), step(intent(run).run))
        land(store, ending(run))
        place.damage_record("run-1", 3)
        store.repair_run("run-1")
        repaired = store.read_run("run-1")
        assert repaired is not None
        assert (repaired.state, repaired.steps, repaired.holder) == (RunState.QUEUED, 1, "")
        assert repaired.suspects == 2  # three records were set aside, and an effect writes two
        assert repaired.epoch > run.epoch
        again = claimed(store)
        land(store, step(again))
        assert [found for found in store.check() if isinstance(found, Finding)] == []

    def test_lost_row_is_rebuilt_from_the_journal(self, store: Store, place: Place) -> None:
        run = land(store, step(held_run(store)))
        land(store, ending(run))
        place.damage_run("run-1", agent="somebody:else", epoch=2**62, length=2**62, durability="process")
        assert store.repair_run("run-1") == 0
        repaired = store.read_run("run-1")
        assert repaired is not None
        assert (repaired.agent, repaired.arguments) == (run.agent, run.arguments)
        assert (repaired.steps, repaired.durability, repaired.created_at) == (1, "power", run.created_at)
        assert repaired.suspects == 1
        assert 1 < repaired.epoch < 10
        assert len(store.load_journal("run-1")) == 5

    def test_damaged_large_value_is_made_anew(self, store: Store, place: Place) -> None:
        content = b"page " * 10_000
        run = land(store, step(held_run(store)))
        land(store, large_step(run, content))
        land(store, ending(large_step(run, content).run))
        place.damage_blob(blobs.pack(content)[0])
        assert store.repair_run("run-1") == 2
        again = claimed(store)
        land(store, large_step(again, content))
        assert store.load_blob(blobs.pack(content)[0]) == content

    def test_doubts_of_an_earlier_loss_are_kept(self, store: Store) -> None:
        run = held_run(store)
        parked = parked_for_loss(run)
        changes = {name: getattr(parked, name) for name in ("state", "reason", "detail")}
        land(store, step(run, suspects=4, holder="", **changes))
        assert store.repair_run("run-1") == 0
        repaired = store.read_run("run-1")
        assert repaired is not None
        assert (repaired.suspects, repaired.state, repaired.detail) == (4, RunState.QUEUED, "")
        assert claimed(store).state == RunState.RUNNING

    def test_second_repair_finds_nothing_to_do(self, store: Store, place: Place) -> None:
        land(store, ending(land(store, step(held_run(store)))))
        place.damage_record("run-1", 2)
        assert store.repair_run("run-1") == 2
        run = store.read_run("run-1")
        assert store.repair_run("run-1") == 0
        assert store.read_run("run-1") == run

    def test_live_holder_is_not_robbed(self, store: Store, other: Store, place: Place) -> None:
        run = land(store, step(held_run(store)))
        place.damage_record("run-1", 1)
        with pytest.raises(RunHeld):
            other.repair_run("run-1")
        assert store.holds("run-1", run.epoch)

    def test_run_without_a_first_record_cannot_be_repaired(self, store: Store, place: Place) -> None:
        land(store, ending(held_run(store)))
        place.damage_record("run-1", 0)
        with pytest.raises(CheckpointCorrupt, match="even its arguments"):
            store.repair_run("run-1")

    def test_unknown_run_is_named(self, store: Store) -> None:
        with pytest.raises(UnknownRun, match="run-9"):
            store.repair_run("run-9")


@asks_who_lives
class TestClose:
    def test_nothing_was_ever_lost_here(self, store: Store) -> None:
        assert store.losses() == []

    def test_twice_is_harmless(self, store: Store) -> None:
        store.join()
        store.close()
        store.close()

    def test_closed_store_answers_with_an_error(self, store: Store, other: Store) -> None:
        run = held_run(store)
        store.close()
        with pytest.raises(StoreError):
            store.read_run("run-1")
        assert isinstance(outcome_of(store, step(run)), StoreError)
        assert other.read_run("run-1") == run

    def test_closed_worker_is_forgotten(self, store: Store, other: Store) -> None:
        worker = store.join()
        store.close()
        assert other.read_worker(worker.worker_id) is None


@asks_who_lives
class TestReady:
    def ready(self, store: Store, *agents: str, now: float = 0.0, limit: int = 100) -> list[str]:
        return [
            run.run_id
            for run in store.list_ready(
                agents=agents or (AGENT,), now=now, stall_seconds=TERMS.stall_seconds, limit=limit
            )
        ]

    def test_run_that_nobody_took_is_ready_for_who_knows_its_agent(self, store: Store, other: Store) -> None:
        created(store)
        assert self.ready(other) == ["run-1"]
        assert self.ready(other, "another.agent") == []
        assert self.ready(other, "another.agent", AGENT) == ["run-1"]

    def test_run_that_somebody_works_on_is_not(self, store: Store, other: Store) -> None:
        held_run(store)
        assert self.ready(other) == []

    def test_run_whose_holder_is_gone_comes_first(self, store: Store, other: Store, place: Place) -> None:
        created(other, "run-2")
        held_run(store)
        store.close()
        assert self.ready(place.open()) == ["run-1", "run-2"]

    def test_run_whose_holder_is_silent_is_ready(self, store: Store, other: Store, manual_clock: ManualClock) -> None:
        held_run(store)
        manual_clock.advance(TERMS.stall_seconds + 1)
        assert self.ready(other) == ["run-1"]

    def test_waiting_run_is_ready_when_it_is_due(self, store: Store, other: Store) -> None:
        run = held_run(store)
        land(store, ending(run, RunState.WAITING, reason="time", wake_at=50.0))
        assert self.ready(other, now=49.0) == []
        assert self.ready(other, now=50.0) == ["run-1"]

    def test_waiting_run_is_ready_when_it_has_mail(self, store: Store, other: Store) -> None:
        run = held_run(store)
        land(store, ending(run, RunState.WAITING, reason="human"))
        assert self.ready(other) == []
        other.post(letter())
        assert self.ready(other) == ["run-1"]

    @pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.CANCELLED, RunState.FAILED])
    def test_run_with_an_outcome_is_not(self, store: Store, other: Store, state: RunState) -> None:
        land(store, ending(held_run(store), state))
        assert self.ready(other) == []

    def test_oldest_come_first_and_no_more_than_asked_for(self, store: Store) -> None:
        for number in range(5):
            created(store, f"run-{number}")
        assert self.ready(store) == [f"run-{number}" for number in range(5)]
        assert self.ready(store, limit=2) == ["run-0", "run-1"]

    def test_steps_do_not_make_a_run_ready(self, store: Store, other: Store) -> None:
        run = land(store, step(held_run(store)))
        land(store, step(run))
        assert self.ready(other) == []


@asks_who_lives
class TestWorkers:
    def test_every_worker_is_listed(self, store: Store, other: Store) -> None:
        ids = {store.join().worker_id, other.join().worker_id}
        assert {worker.worker_id for worker in store.list_workers()} == ids

    def test_worker_learns_that_it_is_to_drain(self, store: Store, other: Store) -> None:
        worker_id = store.join().worker_id
        other.join()
        assert [worker.drain_at for worker in store.list_workers()] == [0.0, 0.0]
        other.ask_to_drain(worker_id)
        asked = {worker.worker_id: worker.drain_at > 0 for worker in store.list_workers()}
        assert asked == {worker_id: True, other.join().worker_id: False}
        seen = store.read_worker(worker_id)
        assert seen is not None
        assert seen.drain_at > 0
