"""One trial: a run killed and resumed in a place of its own, and what is left of it, judged.

A mode gets a `Trial` and plays with it: `kill`, `freeze`, `start`, `resume`, `resume_to_the_end`, `judge`. The judge
goes by the oracle, which is another process, and by what the store holds; never by what the run says of itself.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.errors import DeliveriesExhausted, RunHeld
from perdure.testing.crash.agreement import Agreed
from perdure.testing.crash.contents import Contents
from perdure.testing.crash.evidence import Evidence, Performed, read_evidence
from perdure.testing.crash.failing import failure_of, what_happened
from perdure.testing.crash.judge import judge_all, ran_out, stray_call, varied_call
from perdure.testing.crash.options import Options, replay_settings, replay_words
from perdure.testing.crash.oracle import OUTSIDE, Account
from perdure.testing.crash.person import Attended, attend
from perdure.testing.crash.points import REQUEST_WINDOWS, Point, is_by_chance
from perdure.testing.crash.skew import set_to
from perdure.testing.crash.tally import Fault, FaultKind, Tally
from perdure.testing.crash.trap import Orders

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.records import Run
    from perdure.status import OpenEffect
    from perdure.testing.crash.modes import Plan
    from perdure.testing.crash.nursery import Ended, Life, Nursery
    from perdure.testing.crash.oracle import Oracle
    from perdure.testing.crash.place import Place
    from perdure.testing.crash.subject import Subject

OVER: Final = "over when killed"
"""How trials are counted that were killed after their runs had ended, and not started again for it."""

MOST_ROUNDS: Final = 40
_ATTEND_SECONDS: Final = 0.3
_HELD_SECONDS: Final = 0.1


class Reference(Struct, frozen=True, kw_only=True):
    """A run that nobody interrupted: the points it passed, and everything a crashed one is compared with."""

    points: tuple[Point, ...] = ()
    result: Any = None
    """What came of it."""
    agreed: Agreed = Agreed(None, None)
    """What two uncrashed runs agree on in that."""
    values: dict[str, Any] = {}
    """Every recorded value by call, but those in which two uncrashed runs differ."""
    arguments: dict[str, str] = {}
    """The digest of the arguments of every call."""
    calls: frozenset[tuple[str, str]] = frozenset()
    """The name and key of every step and effect that it called."""
    effects: dict[tuple[str, str], int] = {}
    """How often the body of each effect (name, key) returned."""
    requests: dict[tuple[str, ...], int] = {}
    """How often each thing was done to the outside: name and payload, or name alone."""
    returned: dict[tuple[str, str], str] = {}
    """What the body of each effect returned, as JSON."""
    asking: frozenset[tuple[str, str]] = frozenset()
    """The effects whose bodies did something to the outside that the oracle saw: they are judged by that."""
    runs: frozenset[str] = frozenset()
    """The labels of its runs."""
    is_quiet_again: bool = True
    """Whether the subject does nothing when it is started once more after its end."""
    has_payloads: bool = True
    seconds: float = 0.0
    main: tuple[str, str] = ("", "")
    uses_perdure: bool = True
    varies: str = ""
    """The first call that only one of two uncrashed runs made, where the agent itself goes different ways."""
    fails: bool = False
    """Whether it is meant to fail, and does."""
    contents: Contents = {}
    """The files that are compared, but those in which two uncrashed runs differ."""
    varying_files: tuple[str, ...] = ()
    """And those."""
    unsynced: bool = False
    """Whether a run of it has `durability="process"`."""
    unstable: tuple[str, ...] = ()
    """Points that only one of two uncrashed runs passed; no trial begins there."""
    by_chance: tuple[str, ...] = ()
    """Points that it may come by or not, as runs do that are under way at once."""
    has_strands: bool = False
    """Whether runs or calls of it are under way at once: which of them is further at a moment is up to time."""
    expired: frozenset[str] = frozenset()
    """The waits and the deadlines that were over before anything came."""
    performed: dict[str, Performed] = {}
    """The effects, by call, on whose arguments two uncrashed runs agree."""
    written: tuple[str, ...] = ()
    """The files that it made or changed in its folder."""
    explore: Callable[[list[tuple[Point, ...]]], list[tuple[Point, ...]]] | None = None
    """For each row of kills, the points that the process passes that resumes after them."""

    @property
    def has_result(self) -> bool:
        """Whether two uncrashed runs agree on anything in what came of them."""
        return not self.agreed.is_empty


class Bench(Struct, frozen=True):
    """What all trials of a campaign share."""

    subject: Subject
    options: Options
    nursery: Nursery
    oracle: Oracle
    settings: dict[str, str]


class Trial:
    """One trial, from its first process to its last."""

    def __init__(self, bench: Bench, place: Place, plan: Plan, reference: Reference, *, name: str) -> None:
        self.bench = bench
        self.place = place
        self.plan = plan
        self.reference = reference
        self.name = name
        self.tally = Tally(trials=1)
        self.settings: dict[str, str] = {}
        """Environment variables for the processes that this trial starts from now on."""
        self.clock = ""
        """The file that the wall clock of these processes follows; none where it is empty."""
        self.gate = place.folder / "gate"
        """Processes that are held at a point wait until this file is there."""
        self.before = Evidence()
        """What was committed before the process began that was last to reach a point."""
        self.recorded: dict[str, Any] = {}
        """Every value that was recorded before a process began; it never changes."""
        self.fresh: set[str] = set()
        """The processes that nothing had happened before: what they call, an uncrashed run calls."""
        self._lives = itertools.count(1)
        self._judged_bodies = 0
        self._skipped_seconds = 0.0
        self._was_helped = False
        """Whether people did something while the newest process still lived, that it may not have heard of."""
        self._pardons = False
        self._killed: Ended | None = None
        self._over: set[str] = set()
        self._spared: set[str] = set()
        """The points that a process came by and went on from, though it should have stopped there."""
        if bench.options.outside_seconds:
            bench.oracle.delay(name, bench.options.outside_seconds)

    @property
    def options(self) -> Options:
        """How the campaign goes about it."""
        return self.bench.options

    def kill(self, at: Point | str) -> Ended:
        """Run until this point, over as many processes as it takes to get there, and see that the kill landed."""
        self.tally.planned += 1
        wanted = at
        for _ in range(MOST_ROUNDS):
            ended = self.live(kill_at=_text(wanted), traced=_is_counted(wanted))
            if self.has_landed(ended, _text(wanted)):
                self._note_landed(at)
                return ended
            self._note_spared(at, ended, _text(wanted))
            if ended.was_killed or not self._goes_on(ended):
                break
            wanted = self._in_the_next(wanted, ended)
        self._miss(at, ended, f"not killed at {_text(at)}: {self.ending(ended)}. {_NOT_REACHED}")
        return ended

    def kill_if_reached(self, at: Point | str) -> Ended:
        """One process that is killed at this point if it comes there; one that does not is no fault."""
        ended = self.live(kill_at=_text(at))
        if self.has_landed(ended, _text(at)):
            self.tally.planned += 1
            self._note_landed(at)
        return ended

    def kill_after(self, seconds: float) -> Ended:
        """One process that is killed after so long, if it has not ended before; that is no fault."""
        before = self.evidence()
        life = self.start()
        if not life.is_over(seconds):
            life.kill()
        ended = life.wait()
        if ended.was_killed:
            self.tally.planned += 1
            self.tally.landed += 1
        self.judge_reruns(before)
        return ended

    def freeze(self, at: Point | str) -> Life:
        """Run until this point and stop there, as a process does that hangs; `thaw` it or `kill` it."""
        self.tally.planned += 1
        life = self.reach(at)
        if not life.is_over():
            self._note_landed(at)
        return life

    def reach(self, at: Point | str, *, is_held: bool = False, traced: bool = False) -> Life:
        """Run until a process stands still at this point, over as many as it takes; one that is over missed it.

        `is_held` where one thread of it stands there, until the gate is open. What was committed before this process
        began is in `before`.
        """
        wanted = at
        for _ in range(MOST_ROUNDS):
            self.before, text = self.evidence(), _text(wanted)
            order = {"hold_at": text} if is_held else {"freeze_at": text}
            life = self.start(**order, traced=traced or _is_counted(wanted))
            self._note_fresh(life, self.before)
            if self._stands(life, text, is_held=is_held):
                return life
            ended = life.wait(0.0 if life.is_overdue else None)
            self.judge_reruns(self.before)
            self._note_spared(at, ended, text)
            if not self._goes_on(ended):
                break
            wanted = self._in_the_next(wanted, ended)
        self._miss(at, ended, f"not stopped at {_text(at)}: {self.ending(ended)}. {_NOT_REACHED}")
        return life

    def resume(self) -> Ended:
        """Start the subject once more, as a person or a supervisor would after a crash."""
        ended = self.live()
        self.tally.slowest_seconds = max(self.tally.slowest_seconds, ended.seconds)
        return ended

    def resume_to_the_end(self) -> Ended:
        """Resume until it is done, and play the people around it: settle what is in doubt, answer, send signals.

        A script that begins anew when it is started after its end is not started where it was killed after that.
        """
        if self._killed is not None and not self.reference.is_quiet_again and self._has_ended():
            self._over.add(self._killed.life)
            self.tally.resumed += 1
            self.tally.count(OVER)
            return self._killed
        ended = self.resume()
        for _ in range(MOST_ROUNDS):
            if ended.is_late:
                self.fault("hung", f"a process that resumed took longer than {self.options.timeout_seconds:g} s")
                return ended
            if self.is_done(ended):
                self.tally.resumed += 1
                return ended
            if not (self._is_held(ended) or self.attend().helped):
                break
            ended = self.resume()
        if not ran_out(self):
            self.fault("stuck", self.ending(ended))
        return ended

    def judge(self, last: Ended) -> None:
        """Compare what is left with the uncrashed run and with what the oracle saw; then resume once more."""
        judge_all(self, last)

    def live(self, *, kill_at: str = "", freeze_at: str = "", traced: bool = False) -> Ended:
        """One process to its end; completed steps that it runs again are faults."""
        before = self.evidence()
        life = self.start(kill_at=kill_at, freeze_at=freeze_at, traced=traced)
        self._note_fresh(life, before)
        self._was_helped = False
        while not life.is_over(_ATTEND_SECONDS) and not life.is_overdue:
            self._was_helped = self.attend().helped
        ended = life.wait(0.0 if life.is_overdue else None)
        self._killed = ended if ended.was_killed else None
        self.judge_reruns(before)
        return ended

    def start(self, *, kill_at: str = "", freeze_at: str = "", hold_at: str = "", traced: bool = False) -> Life:
        """Start a process of this trial and do not wait for it; several may live at once."""
        bench, name = self.bench, f"life-{next(self._lives)}"
        if kill_at.rpartition(":")[2] in REQUEST_WINDOWS:
            bench.oracle.arm(self.name, name, kill_at)
        orders = Orders(
            trial=self.name,
            life=name,
            port=bench.oracle.port,
            kill_at=kill_at,
            freeze_at=freeze_at,
            hold_at=hold_at,
            gate=str(self.gate),
            clock=self.clock,
            traced=traced,
            files=traced or not self.reference.uses_perdure,
            skipped_seconds=self._skipped_seconds,
            main=self._main(),
        )
        own = {"PERDURE_STORE": self.place.store, OUTSIDE: bench.oracle.outside(self.name, name)}
        pardon, self._pardons = self._pardons, False
        return bench.nursery.start(
            self.place.work,
            orders,
            settings={**bench.settings, **own, **self.settings},
            logs=self.place.logs,
            timeout_seconds=self.options.timeout_seconds,
            pardon=pardon,
        )

    def attend(self) -> Attended:
        """Do what people can do for the runs of this trial as they stand now."""
        evidence = self.evidence()
        runs, now = [each.run for each in evidence.unfinished()], self._now()
        attended = attend(self.place, runs, self.options, self._find_out, now=now)
        attended.was_helped, self._was_helped = self._was_helped, False
        self.tally.in_doubt += attended.settled
        self.tally.settled += attended.settled
        self._pardons = attended.is_parked
        if attended.passes_at:
            self._skipped_seconds = max(self._skipped_seconds, attended.passes_at - now + 0.001)
        return attended

    def account(self) -> Account:
        """Everything the oracle knows of this trial, once nothing is on its way to the outside any more."""
        account = self.bench.oracle.account(self.name)
        self._skipped_seconds = max(self._skipped_seconds, account.skipped_seconds)
        return account

    def evidence(self) -> Evidence:
        """What is committed now."""
        return read_evidence(self.place, self._main())

    def has_landed(self, ended: Ended, point: str) -> bool:
        """Whether this process was killed at this very point."""
        return ended.was_killed and (ended.life, point) in self.account().landed

    def judge_reruns(self, before: Evidence) -> None:
        """Every body that began since this was last asked, of a call that was completed before, is a fault."""
        bodies = self.account().bodies
        completed = before.completed()
        self.recorded |= {key: value for key, value in before.values().items() if key not in self.recorded}
        for body in bodies[self._judged_bodies :]:
            if (body.run_id, body.step_key) in completed:
                self.tally.rerun += 1
                self.fault("rerun", f"{body.name} ({body.key}) was completed, and its body began again")
        self._judged_bodies = len(bodies)

    def fault(self, kind: FaultKind, what: str) -> None:
        """Report something that must not happen; the replay command is made from the plan."""
        plan = self.plan
        words = [word for point in plan.points for word in ("--at", point.text)]
        command = self.bench.subject.command(*replay_words(self.options), *plan.words, *words)
        replay = " ".join([*replay_settings(self.options), command])
        self.tally.faults.append(
            Fault(
                kind,
                what,
                mode=plan.mode,
                points=tuple(point.text for point in plan.points),
                seed=plan.seed,
                folder=str(self.place.folder),
                replay=replay,
            )
        )

    def _main(self) -> tuple[str, str]:
        if self.reference.main != ("", ""):
            return self.reference.main
        return next(iter(self.bench.oracle.account(self.name).main.values()), ("", ""))

    def _now(self) -> float:
        """What the clock of the machine says, as this trial has set it."""
        return clock.wall_seconds() + (set_to(Path(self.clock)) if self.clock else 0.0)

    def _stands(self, life: Life, point: str, *, is_held: bool) -> bool:
        """Whether a process comes to stand at its point; people do their part until it has."""
        self._was_helped = False
        while not life.is_frozen(_ATTEND_SECONDS):
            if life.is_over() or life.is_overdue:
                return False
            if (life.name, point) not in self.account().landed:
                self._was_helped = self.attend().helped
            elif is_held:
                return True
        return True

    def _goes_on(self, ended: Ended) -> bool:
        """Whether a process that ended before its point leaves a run that another one brings further."""
        return not ended.is_late and not self.is_done(ended) and self.attend().helped

    def _in_the_next(self, at: Point | str, ended: Ended) -> Point | str:
        """The same point in the next process, which counts from one again."""
        if isinstance(at, str) or not _is_counted(at):
            return at
        alike = [each for each in self.passed(ended) if (each.short, each.key) == (at.short, at.key)]
        return Point(at.name, at.window, at.key, max(1, at.occurrence - len(alike)))

    def _miss(self, at: Point | str, ended: Ended, what: str) -> None:
        """A point was not reached: a fault, unless the run went another way for a reason that is known."""
        is_elsewhere = isinstance(at, Point) and (is_by_chance(at, self.reference.runs) or self._is_overtaken(at))
        if self.is_done(ended) and (is_elsewhere or self.reference.varies or stray_call(self) or varied_call(self)):
            self.tally.planned -= 1
            self.tally.unreached += 1
        else:
            self.fault("missed", what)

    def _is_overtaken(self, at: Point) -> bool:
        """Whether one strand of several had this behind it before a process was there that could be killed at it.

        What happens at the point has happened then. A process that came by and went on is no such case.
        """
        if not self.reference.has_strands or at.text in self._spared:
            return False
        if at.window in REQUEST_WINDOWS:
            return any(each.name == at.name for each in self.account().requests)
        if at.key:
            return self.evidence().shows(at)
        return at.is_bookkeeping or at.short in {each.short for each in self.reference.points}

    def _note_spared(self, at: Point | str, ended: Ended, point: str) -> None:
        if (ended.life, point) in self.account().landed:
            self._spared.add(_text(at))

    def _note_fresh(self, life: Life, before: Evidence) -> None:
        if not self._judged_bodies and not before.arguments():
            self.fresh.add(life.name)

    def _note_landed(self, at: Point | str) -> None:
        self.tally.landed += 1
        if isinstance(at, Point) and at.is_in_effect:
            self.tally.in_effect += 1

    def passed(self, ended: Ended) -> tuple[Point, ...]:
        """The points that a traced process passed."""
        return tuple(Point(*row) for row in self.account().passed.get(ended.life, []))

    def is_done(self, ended: Ended) -> bool:
        """Whether the subject came to its end in this process."""
        if failure_of(self, ended) is not None:
            return True
        if self.bench.subject.kind == "script":
            return ended.code == 0 or ended.life in self._over
        return ended.life in self.account().results

    def _has_ended(self) -> bool:
        """Whether every run that there is without a kill is over by now."""
        evidence = self.evidence()
        return (
            bool(self.reference.runs) and not evidence.unfinished() and set(evidence.results()) == self.reference.runs
        )

    def _is_held(self, ended: Ended) -> bool:
        """Whether it only has to be tried again: a server may take a moment to see that a process is dead."""
        error = self.account().errors.get(ended.life, {})
        if error.get("code") == RunHeld.code:
            clock.sleep(_HELD_SECONDS)
            return True
        self._pardons = error.get("code") == DeliveriesExhausted.code
        return self._pardons

    def _find_out(self, run: Run, effect: OpenEffect) -> str | None:
        """What became of an attempt, by the oracle: its result as JSON, or None where it did not happen."""
        attempt = (run.run_id, effect.key, effect.attempt, "effect")
        mine = [
            body for body in self.account().bodies if (body.run_id, body.step_key, body.attempt, body.kind) == attempt
        ]
        for body in mine:
            if body.state == "returned":
                return body.value or "null"
        if any(body.requests for body in mine):
            return self.reference.returned.get((mine[0].name, mine[0].key), "null")
        return None

    def result(self, ended: Ended) -> Any:
        """What came of a process: the agent's result, what the runs of a script returned, its last line or failure."""
        failure = failure_of(self, ended)
        if failure is not None:
            return failure
        if self.bench.subject.kind == "agent":
            sealed = self.account().results.get(ended.life)
            return None if sealed is None else msgspec.json.decode(sealed)
        results = self.evidence().results()
        if not results:
            return (ended.out.strip().splitlines() or [""])[-1]
        return next(iter(results.values()))[1] if len(results) == 1 else results

    def ending(self, ended: Ended) -> str:
        """How a process ended, in words."""
        if ended.is_late:
            return f"it took longer than {self.options.timeout_seconds:g} s"
        error = self.account().errors.get(ended.life)
        said = error["message"] if error else what_happened(ended)
        return f"exit code {ended.code}: {said}"


def _text(at: Point | str) -> str:
    return at if isinstance(at, str) else at.text


def _is_counted(at: Point | str) -> bool:
    """Whether it must be known how often a process passed the like of it."""
    return isinstance(at, Point) and at.occurrence > 1


_NOT_REACHED: Final = "The run did not come to this point as the dry run did, so it is not deterministic"
