"""Who acts in a simulation: workers, scripts, whoever starts runs, whoever decides, and the person who mends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

import perdure
from perdure import clock
from perdure.engine import agent as agents_of_perdure
from perdure.engine.mailbox import Letter
from perdure.engine.whereabouts import continuation
from perdure.errors import DeliveriesExhausted, PerdureError, StoreError
from perdure.records import FINISHED, Mail, Queue, Run, RunState, WaitReason
from perdure.replay import Journal
from perdure.status import open_effects
from perdure.store.lease import read_park
from perdure.worker.worker import Limits, Worker
from tests.simulation.agents import AGENTS, SIGNAL, agent_of
from tests.simulation.plan import Op, RunPlan
from tests.simulation.witness import asked

if TYPE_CHECKING:
    from tests.simulation.play import Play
    from tests.simulation.process import Process

_AGAIN_SECONDS: Final = 0.7
_LOOK_SECONDS: Final = 2.0
_SPECS: Final = {spec.name: spec for spec in map(agents_of_perdure.spec_of, AGENTS)}


def enter(play: Play) -> None:
    """Everybody begins."""
    for number in range(play.plan.workers):
        play.begin(f"w{number}", _work)
    for plan in play.plan.runs:
        if not plan.is_child:
            play.begin(f"start-{plan.number}", _script(plan) if plan.launch == "script" else _client(plan))
        if plan.cancel_after:
            play.begin(f"cancel-{plan.number}", _canceller(plan))
        if plan.pause_after:
            play.begin(f"pause-{plan.number}", _pauser(plan))
        for op in plan.all_ops():
            for number, (seconds, word) in enumerate(op.deciders):
                play.begin(f"decide-{plan.number}-{op.place}-{number}", _decider(plan, op, seconds, word))
    if play.plan.drain_after:
        play.begin("drainer", _drain)
    play.begin("person", _person, is_mortal=False)


def _work(process: Process) -> None:
    """A worker: the real one, with the limits of the queues that the plan names."""
    plan, opened = process.play.plan, process.session()
    for name, most in plan.concurrency.items():
        _insist(lambda name=name, most=most: opened.store.declare_queue(Queue(name, concurrency=most)))  # type: ignore[misc]
    for name, rate in plan.rate.items():
        _insist(lambda name=name, rate=rate: opened.store.declare_queue(Queue(name, rate=rate, burst=1)))  # type: ignore[misc]
    Worker(opened, _SPECS, Limits(concurrency=plan.slots)).work()
    process.play.follow(process)


def _client(plan: RunPlan) -> Callable[[Process], None]:
    """Somebody who starts a run, and tries again with the same id until that was acknowledged."""

    def start(process: Process) -> None:
        clock.sleep(plan.starts_after)
        while not _is_ended(process.play, plan.run_id):
            try:
                perdure.start(agent_of(plan), plan.number, run_id=plan.run_id, queue=plan.queue, priority=plan.priority)
                break
            except StoreError:
                clock.sleep(_AGAIN_SECONDS)
        process.play.accepted.add(plan.number)

    return start


def _script(plan: RunPlan) -> Callable[[Process], None]:
    """A script that runs its agent itself, and is started again until that has an outcome."""

    def run(process: Process) -> None:
        clock.sleep(plan.starts_after)
        while not _is_ended(process.play, plan.run_id):
            try:
                perdure.run(agent_of(plan), plan.number, run_id=plan.run_id)
            except DeliveriesExhausted:
                _resume(process.play, plan)
            except Exception:  # noqa: BLE001 - how the run stands is looked at, and judged at the end
                clock.sleep(_LOOK_SECONDS)
            except BaseException as stopped:
                if not isinstance(stopped, perdure.errors.Signal):
                    raise
        process.play.accepted.add(plan.number)

    return run


def _decider(plan: RunPlan, op: Op, seconds: float, word: str) -> Callable[[Process], None]:
    """Somebody who answers a question or sends a signal, as soon as the run is there to hear it."""

    def decide(process: Process) -> None:
        play = process.play
        clock.sleep(seconds)
        while not _is_ended(play, play.run_id_of(plan)) and not _is_said(process, plan, op, word):
            clock.sleep(_AGAIN_SECONDS)

    return decide


def _is_said(process: Process, plan: RunPlan, op: Op, word: str) -> bool:
    """Say it; whether that is over, one way or the other."""
    play, run_id = process.play, process.play.run_id_of(plan)
    if not run_id or play.truth.row(run_id) is None or not play.witness.is_asked(run_id, op):
        return False
    try:
        if op.kind == "signal":
            if not _is_sent(play, run_id, word):
                perdure.signal(run_id, SIGNAL, word)
        else:
            perdure.answer(run_id, word, question=asked(op), by=process.name)
            play.witness.told(run_id, op, word)
            play.counts["answers accepted"] += 1
    except perdure.errors.AnswerRefused as refused:
        is_early = "open question" in refused.message
        play.counts["answers refused"] += not is_early
        return not is_early
    except PerdureError:
        return False
    return True


def _canceller(plan: RunPlan) -> Callable[[Process], None]:
    def cancel(process: Process) -> None:
        clock.sleep(plan.cancel_after)
        while not _is_ended(process.play, plan.run_id):
            try:
                perdure.cancel(plan.run_id, by="canceller")
                return
            except PerdureError:
                clock.sleep(_AGAIN_SECONDS)

    return cancel


def _pauser(plan: RunPlan) -> Callable[[Process], None]:
    def pause(process: Process) -> None:
        clock.sleep(plan.pause_after)
        for say in (perdure.pause, perdure.unpause):
            while not _is_ended(process.play, plan.run_id):
                try:
                    say(plan.run_id, by="pauser")
                    break
                except PerdureError:
                    clock.sleep(_AGAIN_SECONDS)
            clock.sleep(_LOOK_SECONDS)

    return pause


def _drain(process: Process) -> None:
    """Somebody asks a worker to finish what it has."""
    play = process.play
    clock.sleep(play.plan.drain_after)
    working = [each for each in play.processes if each.name.startswith("w") and each.worker_id and not each.is_dead]
    if working:
        _insist(lambda: process.session().store.ask_to_drain(working[0].worker_id))


def _person(process: Process) -> None:
    """Looks at what stands still, and mends it: by what the outside tells once nothing can be under way any more."""
    play = process.play
    store = play.truth
    seen: dict[str, float] = {}
    while True:
        clock.sleep(_LOOK_SECONDS)
        for run in store.rows():
            if run.state != RunState.WAITING or run.reason not in (WaitReason.IN_DOUBT, WaitReason.PARKED):
                continue
            since = seen.setdefault(f"{run.run_id}@{run.epoch}", play.scheduler.now)
            if run.reason == WaitReason.IN_DOUBT:
                _settle(process, run)
            elif read_park(run).code == DeliveriesExhausted.code and play.scheduler.now - since > _LOOK_SECONDS:
                play.begin(f"resume-{run.run_id}", _resumer(run.run_id), is_mortal=False)
                seen[f"{run.run_id}@{run.epoch}"] = play.scheduler.now + 60.0


def _settle(process: Process, run: Run) -> None:
    """Say of each effect in doubt what the outside says of it."""
    play, store = process.play, process.session().store
    try:
        effects = open_effects(store, run, Journal(store.load_journal(run.run_id)))
        for effect in effects:
            receipt = play.outside.receipt_of(run.run_id, effect.key)
            if effect.letter is not None or receipt is None:
                continue
            value = msgspec.Raw(msgspec.json.encode(receipt))
            letter = Letter(effect.attempt, "happened", value) if receipt else Letter(effect.attempt, "did_not_happen")
            body = msgspec.json.encode(letter).decode()
            store.post(Mail(0, run.run_id, "verdict", effect.key, body, "person", clock.wall_seconds()))
            play.counts["settled by a person"] += 1
    except PerdureError:
        return


def _resumer(run_id: str) -> Callable[[Process], None]:
    """Somebody who types `perdure resume` for a run that is parked."""

    def resume(process: Process) -> None:
        run = process.session().store.read_run(run_id)
        if run is None or run.state in FINISHED:
            return
        process.play.counts["resumed by a person"] += 1
        try:
            agents_of_perdure.resume(_agent_named(run.agent), run, pardon=True, waits=False)
        except (Exception, perdure.errors.Signal):  # noqa: BLE001 - how the run stands is judged at the end
            return

    return resume


def _resume(play: Play, plan: RunPlan) -> None:
    """A script whose run was parked is told to go on by name."""
    run = play.truth.row(plan.run_id)
    try:
        if run is not None:
            agents_of_perdure.resume(agent_of(plan), run, pardon=True, waits=False)
    except (Exception, perdure.errors.Signal):  # noqa: BLE001 - how the run stands is judged at the end
        return


def _agent_named(name: str) -> Any:
    return next(each for each in AGENTS if agents_of_perdure.spec_of(each).name == name)


def _is_ended(play: Play, run_id: str) -> bool:
    row = play.truth.row(run_id)
    while row is not None and (following := continuation(row)):
        row = play.truth.row(following)
    return row is not None and (row.state in FINISHED or row.state == RunState.FAILED)


def _is_sent(play: Play, run_id: str, word: str) -> bool:
    """Whether the signal is in the mailbox: a sender who got no answer looks before sending again."""
    return any(mail.kind == "signal" and f'"{word}"' in mail.body for mail in play.truth.mail(run_id))


def _insist(act: Callable[[], Any]) -> Any:
    """Do this until the store answers."""
    while True:
        try:
            return act()
        except StoreError:
            clock.sleep(_AGAIN_SECONDS)
