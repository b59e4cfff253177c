"""Moving runs between stores: everything comes along, and a run can go on in one store at a time, wherever it stops."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from perdure import clock
from perdure.bodies import NULL, Ancestor, Opened, Started, write_body
from perdure.errors import (
    CheckpointCorrupt,
    CommitsLost,
    LeaseLost,
    PerdureError,
    RunHeld,
    RunImported,
    RunMoved,
    UsageError,
)
from perdure.records import (
    Kind,
    Mail,
    Queue,
    Record,
    Run,
    RunState,
    Schedule,
    WaitReason,
    extended,
    sealed_schedule,
    undo_id,
)
from perdure.store import blobs, mover
from perdure.store.debounce import Start
from perdure.store.lease import read_park
from perdure.store.mover import Mover, Tally
from perdure.store.moving import has_left, is_arriving
from perdure.store.postgres.presence import life_key
from perdure.store.protocol import EVERY, Departure, Finding, Which
from tests.postgres import emptied_schema
from tests.store.journals import (
    AGENT,
    PARDON,
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
    outcome_of,
    step,
)
from tests.store.places import LEASE_SECONDS, MemoryPlace, PostgresPlace, SqlitePlace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.store.protocol import Store, Whole
    from tests.store.places import Place

PAIRS = ("memory-memory", "sqlite-postgres", "postgres-sqlite", "sqlite-sqlite")
PORTABLE_PAIRS = ("sqlite-portable", "portable-sqlite")
asks_who_lives = pytest.mark.parametrize("pair", [*PAIRS, *PORTABLE_PAIRS], indirect=True)
"""As in `places`: a portable store has its own way to know who lives, and nothing else."""
CONTENT = b"a page of text " * 3000


class Pair:
    """Two places, and the stores that a move opens on them."""

    def __init__(self, source: Place, target: Place) -> None:
        self.places = {"source": source, "target": target}
        self.source, self.target = source.open(), target.open()

    def mover(self, *, back: bool = False, unfinished: bool = False) -> Mover:
        if back:
            return Mover(self.target, self.source, names=("target", "source"), unfinished=unfinished)
        return Mover(self.source, self.target, names=("source", "target"), unfinished=unfinished)

    def move(self, *, back: bool = False, unfinished: bool = False) -> Tally:
        *_, tally = self.mover(back=back, unfinished=unfinished).move()
        return tally


@pytest.fixture(params=[*PAIRS, *(pytest.param(pair, marks=pytest.mark.exhaustive) for pair in PORTABLE_PAIRS)])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with contextlib.ExitStack() as opened:
        kinds = request.param.split("-")
        yield Pair(*(_place(kind, tmp_path / f"{number}.db", opened) for number, kind in enumerate(kinds)))


def _place(kind: str, path: Path, opened: contextlib.ExitStack) -> Place:
    if kind == "memory":
        return MemoryPlace()
    if kind == "sqlite":
        sqlite = SqlitePlace(path)
        opened.callback(sqlite.close)
        return sqlite
    url = opened.enter_context(emptied_schema(options="portable=true" if kind == "portable" else ""))
    postgres = PostgresPlace(url)
    opened.callback(postgres.close)
    return postgres


def filled(store: Store) -> None:
    """A store with a run in every state that there is, and everything that a run can refer to."""
    land(store, ending(land(store, step(held_run(store, "completed", tags='{"team":"a"}'))), tokens=7, dollars=0.25))
    land(store, ending(held_run(store, "cancelled"), RunState.CANCELLED))
    land(store, ending(held_run(store, "failed"), RunState.FAILED, detail='{"code":"x","message":"no"}'))
    created(store, "queued", at=7.5)
    created(store, "delayed", wake_at=clock.wall_seconds() + 3600)
    large = land(store, large_step(held_run(store, "large"), CONTENT))
    land(store, append(large, Kind.NOTE, msgspec.convert({"about": "progress"}, _note()), state="queued", holder=""))
    doubt = land(store, intent(held_run(store, "doubt")))
    _wait(store, doubt, WaitReason.IN_DOUBT)
    asked = held_run(store, "asked")
    taken = store.post(letter("asked", body='{"n":1}'))
    heard = store.post(letter("asked", body='{"n":2}'))
    asked = land(store, step(asked, taken=(taken.mail_id,)))
    _wait(store, asked, WaitReason.HUMAN, heard=heard.mail_id, wake_at=clock.wall_seconds() + 60)
    store.post(Mail(0, "asked", "answer", ".1", '{"n":3}', "ada", 300.0))


def _note() -> Any:
    from perdure.bodies import Note

    return Note


def _wait(store: Store, run: Run, reason: WaitReason, **changes: Any) -> Run:
    body = Opened(reason="human", due_at=9.0)
    fields = {"state": RunState.WAITING, "reason": reason, "holder": "", **changes}
    return land(store, append(run, Kind.WAIT, body, key=".9", **fields))


def child_of(store: Store, parent: str, run_id: str) -> Run:
    """A child run, accepted and not begun."""
    run = Run(run_id, f"name-of-{run_id}", AGENT, b"child", "power", 100.0, 100.0)
    body = Started(agent=AGENT, arguments=NULL, code="v1", lineage=(Ancestor(parent, AGENT, ""),))
    after, (first,) = extended(
        run, at=100.0, records=(Record(0, Kind.STARTED, "", AGENT, b"child", 100.0, 0, write_body(body)),)
    )
    return store.create_run(after, first)


def wholes(store: Store) -> dict[str, Whole]:
    return {run.run_id: store.load_whole(run.run_id) for run in store.find_runs(Which(), limit=EVERY)}


def said(whole: Whole) -> list[Mail]:
    return [msgspec.structs.replace(mail, mail_id=0) for mail in whole.mail]


def rows(store: Store) -> dict[str, Run]:
    return {run.run_id: run for run in store.find_runs(Which(), limit=EVERY)}


def can_go_on(store: Store, run_id: str) -> bool:
    """Whether any worker of this store could take the run; asked of a row, so that nothing is claimed by asking."""
    run = store.read_run(run_id)
    return run is not None and run.state not in ("completed", "cancelled") and not (has_left(run) or is_arriving(run))


@asks_who_lives
def test_everything_of_every_run_comes_along(pair: Pair) -> None:
    filled(pair.source)
    before = wholes(pair.source)
    tally = pair.move()
    after = wholes(pair.target)
    assert (tally.moved, tally.copied, tally.before, tally.left) == (6, 2, 0, [])
    assert after.keys() == before.keys()
    for run_id, whole in before.items():
        assert after[run_id].records == whole.records
        assert said(after[run_id]) == said(whole)
        unheard = msgspec.structs.replace(after[run_id].run, heard=whole.run.heard, digest=whole.run.digest)
        assert unheard == whole.run
    assert pair.target.load_blob(blobs.pack(CONTENT)[0]) == CONTENT
    assert not [item for item in pair.target.check() if isinstance(item, Finding)]
    assert not [item for item in pair.source.check() if isinstance(item, Finding)]


def test_runs_that_were_moved_away_are_told_from_others(pair: Pair) -> None:
    filled(pair.source)
    unfinished = {run.run_id for run in pair.source.find_runs(Which(unfinished=True))}
    assert not pair.source.count_runs(Which(moved=True))
    pair.move()
    moved = {run.run_id for run in pair.source.find_runs(Which(moved=True))}
    others = {run.run_id for run in pair.source.find_runs(Which(moved=False))}
    assert (moved, others) == (unfinished, {"completed", "cancelled"})
    assert pair.source.count_runs(Which(states=("waiting",), reasons=("parked",), moved=False)) == 0
    assert not pair.target.count_runs(Which(moved=True))


def test_run_there_and_back_again_is_what_it_was(pair: Pair) -> None:
    filled(pair.source)
    before = wholes(pair.source)
    pair.move()
    tally = pair.move(back=True)
    assert (tally.moved, tally.copied, tally.left) == (6, 2, [])
    assert wholes(pair.source) == before
    assert not [item for item in pair.source.check() if isinstance(item, Finding)]


def test_what_happened_elsewhere_comes_back_with_the_run(pair: Pair) -> None:
    filled(pair.source)
    pair.move()
    run = land(pair.target, step(claimed(pair.target, "queued"), value='"elsewhere"'))
    land(pair.target, ending(run, detail=""))
    answer = pair.target.post(Mail(0, "asked", "signal", "s", "{}", "bob", 400.0))
    there = pair.target.load_whole("queued")
    pair.move(back=True)
    assert pair.source.load_whole("queued") == there
    assert said(pair.source.load_whole("asked"))[-1] == msgspec.structs.replace(answer, mail_id=0)
    assert "asked" in [run.run_id for run in pair.source.list_due(now=0.0)]


def test_moved_run_goes_on_at_the_target_only(pair: Pair) -> None:
    run = land(pair.source, step(held_run(pair.source)))
    land(pair.source, append(run, Kind.NOTE, _note()(about="progress"), state="queued", holder=""))
    pair.move()
    for terms in (TERMS, PARDON):
        with pytest.raises(RunMoved, match="was moved to target"):
            claimed(pair.source, terms=terms)
    with pytest.raises(RunMoved, match="was moved to target"):
        pair.source.post(letter())
    taken = claimed(pair.target)
    assert (taken.steps, taken.length) == (1, 5)
    assert pair.source.load_journal("run-1")[-1].kind == Kind.ENDED


def test_process_that_wrote_before_the_move_writes_no_more(pair: Pair) -> None:
    """Its holder is taken for dead, and is not: what it writes is refused at the source, also after the run is back."""
    other = pair.places["source"].open()
    run = land(other, step(held_run(other)))
    other.close()
    pair.move()
    assert isinstance(outcome_of(pair.source, step(run)), LeaseLost)
    pair.move(back=True)
    assert isinstance(outcome_of(pair.source, step(run)), LeaseLost)
    assert claimed(pair.source).epoch > run.epoch


@asks_who_lives
def test_run_that_a_process_holds_is_left_and_named(pair: Pair) -> None:
    holder = pair.places["source"].open()
    run = held_run(holder)
    created(pair.source, "free")
    tally = pair.move()
    (left,) = tally.left
    assert (left.run_id, left.name) == ("run-1", "name-of-run-1")
    assert "held by pid" in left.why
    assert "perdure drain" in left.hint
    assert tally.moved == 1
    assert pair.target.read_run("run-1") is None
    land(holder, step(run))


def _departure(run: Run) -> Departure:
    return Departure(run, (), "source", "target", "token")


@asks_who_lives
def test_run_that_a_process_holds_is_not_closed(pair: Pair) -> None:
    holder = pair.places["source"].open()
    run = held_run(holder)
    (outcome,) = pair.source.close_runs([[_departure(run)]])
    assert isinstance(outcome, RunHeld)
    land(holder, step(run))


@asks_who_lives
def test_family_is_closed_as_a_whole_or_not_at_all(pair: Pair) -> None:
    holder = pair.places["source"].open()
    family = [_departure(created(pair.source, "free")), _departure(held_run(holder, "held"))]
    outcomes = pair.source.close_runs([family, [_departure(created(pair.source, "other"))]])
    assert [type(outcome) for outcome in outcomes] == [RunHeld, type(None)]
    assert can_go_on(pair.source, "free")
    assert not can_go_on(pair.source, "other")


def test_session_that_ended_is_no_proof_that_a_run_can_be_closed(pair: Pair) -> None:
    """Its process may live on, with an effect under way, for as long as its lease."""
    place = pair.places["source"]
    if not isinstance(place, PostgresPlace) or "portable" in place.url:
        pytest.skip("a store without sessions")
    holder = place.open()
    run = held_run(holder)
    place.write(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
        " AND ((classid::bigint << 32) | objid::bigint) = %s",
        (life_key(holder.join().worker_id),),
    )
    (outcome,) = pair.source.close_runs([[_departure(run)]])
    assert isinstance(outcome, RunHeld)
    place.let_pass(LEASE_SECONDS + 1)
    assert pair.source.close_runs([[_departure(run)]]) == [None]


def test_run_is_released_by_its_own_move_alone(pair: Pair) -> None:
    created(pair.source)
    passage = pair.mover().passage(pair.source.load_whole("run-1"))
    assert passage.arrival is not None
    pair.target.receive_runs([passage.arrival], pair.source.load_blob)
    assert pair.target.release_runs([("run-1", "another"), ("nowhere", "another")]) == [None, None]
    assert not can_go_on(pair.target, "run-1")
    pair.target.release_runs([("run-1", passage.token)])
    assert can_go_on(pair.target, "run-1")


def test_mail_that_a_run_knew_of_does_not_wake_it_where_it_is_moved_and_the_rest_does(pair: Pair) -> None:
    """Mail has other numbers there: those of the target's own come before."""
    created(pair.target, "its-own")
    for _ in range(5):
        pair.target.post(letter("its-own"))
    for run_id, late in (("deaf", 0), ("woken", 1)):
        run = held_run(pair.source, run_id)
        heard = pair.source.post(letter(run_id))
        _wait(pair.source, run, WaitReason.HUMAN, heard=heard.mail_id)
        for _ in range(late):
            pair.source.post(letter(run_id))
    pair.move()
    assert [run.run_id for run in pair.target.list_due(now=0.0)] == ["woken"]


@asks_who_lives
def test_run_claimed_while_it_is_moved_stays_with_its_holder(pair: Pair) -> None:
    created(pair.source)
    whole = pair.source.load_whole("run-1")
    moving = pair.mover()
    passage = moving.passage(whole)
    assert passage.arrival is not None
    assert passage.departure is not None
    assert pair.target.receive_runs([passage.arrival], pair.source.load_blob) == [None]
    holder = pair.places["source"].open()
    run = claimed(holder)
    (outcome,) = pair.source.close_runs([[passage.departure]])
    assert isinstance(outcome, UsageError)
    land(holder, step(run))
    assert not can_go_on(pair.target, "run-1")


def test_mail_that_comes_while_a_run_is_moved_is_not_lost(pair: Pair) -> None:
    created(pair.source)
    moving = pair.mover()
    passage = moving.passage(pair.source.load_whole("run-1"))
    assert passage.arrival is not None
    assert passage.departure is not None
    pair.target.receive_runs([passage.arrival], pair.source.load_blob)
    pair.source.post(letter(body='{"late":1}'))
    (outcome,) = pair.source.close_runs([[passage.departure]])
    assert isinstance(outcome, UsageError)
    assert pair.move().moved == 1
    assert [mail.body for mail in pair.target.read_mail("run-1")] == ['{"late":1}']


@pytest.mark.parametrize("stage", ["received", "closed", "released"])
def test_move_that_stopped_anywhere_goes_on_and_does_nothing_twice(pair: Pair, stage: str) -> None:
    filled(pair.source)
    before = wholes(pair.source)
    stopped = pair.mover()
    passages = [stopped.passage(whole) for whole in before.values()]
    pair.target.receive_runs([each.arrival for each in passages if each.arrival], pair.source.load_blob)
    if stage != "received":
        pair.source.close_runs([[each.departure] for each in passages if each.departure])
    if stage == "released":
        pair.target.release_runs([(each.run.run_id, each.token) for each in passages[:3] if each.token])
    for run_id in before:
        assert not (can_go_on(pair.source, run_id) and can_go_on(pair.target, run_id))
    tally = pair.move()
    assert tally.left == []
    assert tally.done == len(before)
    after = wholes(pair.target)
    assert {run_id: whole.records for run_id, whole in after.items()} == {
        run_id: whole.records for run_id, whole in before.items()
    }
    assert {run_id: len(whole.mail) for run_id, whole in after.items()} == {
        run_id: len(whole.mail) for run_id, whole in before.items()
    }
    assert all(
        can_go_on(pair.target, run_id) is (whole.run.state not in ("completed", "cancelled"))
        for run_id, whole in before.items()
    )
    assert not any(can_go_on(pair.source, run_id) for run_id in before)
    assert (again := pair.move()).before == again.total


def test_run_on_its_way_waits_for_the_move_to_end_or_for_a_person(pair: Pair) -> None:
    created(pair.source)
    passage = pair.mover().passage(pair.source.load_whole("run-1"))
    assert passage.arrival is not None
    pair.target.receive_runs([passage.arrival], pair.source.load_blob)
    with pytest.raises(RunImported, match="on its way here from source"):
        claimed(pair.target)
    with pytest.raises(RunMoved, match="on its way"):
        pair.target.post(letter())
    run = claimed(pair.target, terms=PARDON)
    assert run.suspects == 1
    (left,) = pair.move().left
    assert "at the target already" in left.why
    assert can_go_on(pair.source, "run-1")


def test_parent_and_child_move_together_or_stay_together(pair: Pair) -> None:
    created(pair.source, "parent")
    child_of(pair.source, "parent", "parent/0123456789abcdef")
    created(pair.source, "parent~2")
    created(pair.source, "other")
    holder = pair.places["source"].open()
    claimed(holder, "parent/0123456789abcdef")
    tally = pair.move()
    assert {left.run_id for left in tally.left} == {"parent", "parent/0123456789abcdef", "parent~2"}
    assert pair.target.read_run("parent") is None
    assert can_go_on(pair.target, "other")
    holder.close()
    assert pair.move().left == []
    assert can_go_on(pair.target, "parent")


def test_run_that_takes_back_moves_with_the_one_it_takes_back(pair: Pair) -> None:
    created(pair.source, "sale")
    body = Started(agent="perdure.undo", arguments=msgspec.Raw(b'{"run_id":"sale"}'), code="v1")
    run = Run(undo_id("sale"), "undoing", "perdure.undo", b"u", "power", 100.0, 100.0)
    after, (first,) = extended(
        run, at=1.0, records=(Record(0, Kind.STARTED, "", "perdure.undo", b"u", 1.0, 0, write_body(body)),)
    )
    holder = pair.places["source"].open()
    holder.create_run(after, first)
    claimed(holder, undo_id("sale"))
    assert {left.run_id for left in pair.move().left} == {"sale", undo_id("sale")}
    assert can_go_on(pair.source, "sale")


def test_only_families_that_are_not_finished_move_where_that_is_asked_for(pair: Pair) -> None:
    filled(pair.source)
    land(pair.source, ending(claimed(pair.source, child_of(pair.source, "queued", "queued/0123456789abcdef").run_id)))
    tally = pair.move(unfinished=True)
    assert set(rows(pair.target)) == {
        "failed",
        "queued",
        "queued/0123456789abcdef",
        "delayed",
        "large",
        "doubt",
        "asked",
    }
    assert (tally.moved, tally.copied) == (6, 1)


def test_damaged_run_is_left_and_the_others_move(pair: Pair) -> None:
    filled(pair.source)
    pair.places["source"].damage_record("doubt", 1)
    pair.places["source"].damage_run("queued", steps=9)
    tally = pair.move()
    assert {left.run_id for left in tally.left} == {"doubt", "queued"}
    assert pair.target.read_run("doubt") is None
    assert len(rows(pair.target)) == tally.total - 2


def test_large_value_that_is_damaged_keeps_its_run_where_it_is(pair: Pair) -> None:
    filled(pair.source)
    pair.places["source"].damage_blob(blobs.pack(CONTENT)[0])
    (left,) = pair.move().left
    assert left.run_id == "large"
    assert not has_left(rows(pair.source)["large"])


def test_run_that_did_not_come_in_as_it_was_sent_is_not_closed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    created(pair.source)
    receive = pair.target.receive_runs

    def spoil(arrivals: Any, load_blob: Any) -> Any:
        outcomes = receive(arrivals, load_blob)
        pair.places["target"].damage_record("run-1", 0)
        return outcomes

    monkeypatch.setattr(pair.target, "receive_runs", spoil)
    with pytest.raises(CheckpointCorrupt):
        pair.move()
    assert can_go_on(pair.source, "run-1")


def test_run_that_is_live_at_the_target_is_touched_in_neither(pair: Pair) -> None:
    created(pair.source)
    created(pair.target)
    before = wholes(pair.source), wholes(pair.target)
    (left,) = pair.move().left
    assert "can go on there" in left.why
    assert (wholes(pair.source), wholes(pair.target)) == before


def test_store_is_not_moved_into_itself(pair: Pair) -> None:
    created(pair.source)
    again = pair.places["source"].open()
    with pytest.raises(UsageError, match="are one store"):
        list(Mover(pair.source, again, names=("a", "b")).move())
    assert can_go_on(pair.source, "run-1")


def test_run_from_a_third_store_is_not_released_by_a_move_that_ended_long_ago(pair: Pair) -> None:
    """From here to there, on to a third place, and on its way back to there: it can go on at the third place only."""
    third = MemoryPlace().open()
    created(pair.source)
    pair.move()
    list(Mover(pair.target, third, names=("target", "third")).move())
    coming = Mover(third, pair.target, names=("third", "target")).passage(third.load_whole("run-1"))
    assert coming.arrival is not None
    assert pair.target.receive_runs([coming.arrival], third.load_blob) == [None]
    tally = pair.move()
    assert not can_go_on(pair.target, "run-1")
    assert can_go_on(third, "run-1")
    assert "on its way" in tally.left[0].why


def test_moved_run_is_not_repaired_into_a_second_life(pair: Pair) -> None:
    land(pair.source, ending(held_run(pair.source), RunState.FAILED))
    pair.move()
    with pytest.raises(RunMoved):
        pair.source.repair_run("run-1")
    pair.places["source"].damage_run("run-1", steps=5)
    with pytest.raises(RunMoved):
        pair.source.repair_run("run-1")


def test_loss_of_commits_does_not_reopen_what_was_moved_away(tmp_path: Path) -> None:
    with contextlib.closing(SqlitePlace(tmp_path / "perdure.db")) as place:
        source, target = place.open(), MemoryPlace().open()
        created(source)
        list(Mover(source, target, names=("source", "target")).move())
        created(source, "later")
        source.close()
        place.write("DELETE FROM records WHERE id = (SELECT max(id) FROM records)")
        again = place.open()
        assert again.noticed
        with pytest.raises(RunMoved):
            claimed(again, terms=PARDON)
        with pytest.raises((CommitsLost, PerdureError)):
            claimed(again, "later")


def test_portions_are_bounded_and_all_arrive(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover, "RUNS_AT_ONCE", 3)
    for number in range(10):
        created(pair.source, f"run-{number}", at=100.0)
    *steps, tally = pair.mover().move()
    assert tally.moved == 10
    assert len(steps) >= 4
    assert len(rows(pair.target)) == 10


def test_plan_says_what_a_move_would_do_and_writes_nothing(pair: Pair) -> None:
    filled(pair.source)
    holder = pair.places["source"].open()
    claimed(holder, "queued")
    before = wholes(pair.source)
    tally = pair.mover().plan()
    assert (tally.moved, tally.copied, [left.run_id for left in tally.left]) == (5, 2, ["queued"])
    assert wholes(pair.source) == before
    assert wholes(pair.target) == {}


def _schedule(**fields: Any) -> Schedule:
    row = Schedule("shop:daily", AGENT, "0 9 * * *", "UTC", "once", "{}", 900.0, **fields)
    return sealed_schedule(row)


@pytest.mark.parametrize("stopped", [False, True])
def test_schedule_is_on_in_one_store_and_limits_of_queues_hold_in_both(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    pair.source.declare_queue(Queue("mail", concurrency=3))
    assert pair.source.change_schedule(None, _schedule())
    created(pair.source, queue="mail")
    if stopped:
        monkeypatch.setattr(mover, "switch_on", _dies)
        with pytest.raises(InterruptedError):
            pair.move()
        assert all(row.off_at for store in (pair.source, pair.target) for row in store.list_schedules())
        monkeypatch.undo()
    pair.move()
    assert [row.off_at > 0 for row in pair.source.list_schedules()] == [True]
    assert pair.target.list_schedules() == [_schedule()]
    assert Queue("mail", concurrency=3) in pair.target.list_queues()
    pair.move(back=True)
    assert pair.source.list_schedules() == [_schedule()]
    assert [row.off_at > 0 for row in pair.target.list_schedules()] == [True]


def _dies(*_: object) -> None:
    raise InterruptedError


def test_debounced_start_at_the_target_goes_into_the_run_that_was_moved(pair: Pair) -> None:
    first = pair.source.debounce_run(_start("1"))
    taken = pair.source.debounce_run(_start("2", key="taken"))
    pair.move()
    second = pair.target.debounce_run(_start("3"))
    assert (second.run_id, second.arguments) == (first.run_id, b"3")
    assert pair.target.debounce_run(_start("1")).run_id == first.run_id  # its answer was lost, and it is sent again
    assert pair.target.debounce_run(_start("4", key="taken")).run_id == taken.run_id
    pair.move(back=True)
    assert pair.source.debounce_run(_start("5")).run_id == first.run_id


def test_newer_start_of_a_key_at_the_target_stands(pair: Pair) -> None:
    first = pair.source.debounce_run(_start("1"))
    newer = pair.target.debounce_run(_start("2"))
    pair.move()
    assert newer.run_id != first.run_id
    assert pair.target.debounce_run(_start("3")).run_id == newer.run_id


def test_keys_are_listed_in_portions(pair: Pair) -> None:
    for number in range(5):
        pair.source.debounce_run(_start(f"{number}", key=f"k{number}"))
    portions = [pair.source.list_debounces(limit=2)]
    while portions[-1]:
        last = portions[-1][-1]
        portions.append(pair.source.list_debounces(after=(last.agent, last.key), limit=2))
    assert [[row.key for row in portion] for portion in portions] == [["k0", "k1"], ["k2", "k3"], ["k4"], []]


def _start(label: str, *, key: str = "k") -> Start:
    run = Run(f"start-{label}", f"name-{label}", AGENT, label.encode(), "power", 100.0, 100.0)
    body = write_body(Started(agent=AGENT, arguments=NULL, code="v1"))
    after, (record,) = extended(
        run, at=100.0, records=(Record(0, Kind.STARTED, "", AGENT, label.encode(), 100.0, 0, body),)
    )
    return Start(after, record, key, 3600.0, 36000.0)


def test_schedule_that_was_off_stays_off_where_it_is_moved(pair: Pair) -> None:
    pair.source.change_schedule(None, _schedule(off_at=5.0))
    for _ in range(2):
        pair.move()
        assert all(row.off_at for store in (pair.source, pair.target) for row in store.list_schedules())


def test_park_of_a_moved_run_says_where_it_went(pair: Pair) -> None:
    created(pair.source)
    pair.move()
    run = rows(pair.source)["run-1"]
    assert (run.state, run.reason) == (RunState.WAITING, WaitReason.PARKED)
    park = read_park(run)
    assert park.code == RunMoved.code
    assert park.hint == "perdure show name-of-run-1 --store target"
