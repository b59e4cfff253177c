"""One run while this process holds it: its journal, its row, what it is waiting for, and its way into the store."""

from __future__ import annotations

import functools
import hashlib
import shlex
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from msgspec import Raw, Struct

from perdure import clock, codec, events
from perdure.bodies import NULL, Cost, Done, Note, Passed, added, write_body
from perdure.engine.ledger import Ledger
from perdure.engine.prefix import completes, merged
from perdure.engine.scope import ROOT, Frame, Scope
from perdure.engine.stillness import Returning, Standing, Watch
from perdure.engine.whereabouts import previous_id, unrepeated
from perdure.errors import (
    START_OVER,
    DeadlineExceeded,
    EffectInDoubt,
    JournalDiverged,
    LeaseLost,
    PerdureError,
    RunSuspended,
    RunWaits,
    Signal,
    saved_steps,
)
from perdure.records import COMPLETIONS, Append, Kind, Mail, Record, Run, RunState, WaitReason, extended
from perdure.replay import Call, Decision, Entry, Journal, Replayed, Verdicted, decide, doubt_words, remembered
from perdure.store import blobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.bodies import Origin
    from perdure.store.protocol import Store
    from perdure.store.writer import Ticket, Writer

P = ParamSpec("P")
R = TypeVar("R")
_CLOSINGS: Final = frozenset({Kind.RECEIPT, Kind.ATTEMPT, Kind.VERDICT})
"""Records after which the attempt an intent announced is no longer open."""

_VERDICT: Final = Kind.VERDICT
_PURE: Final = frozenset({Kind.STEP, Kind.NOTE})
"""Records that say nothing of an effect, and after which a run goes on."""

_URGENCY: Final = (WaitReason.HUMAN, WaitReason.SIGNAL, WaitReason.CHILD, WaitReason.TIME)
"""Which of several waits a run is said to wait for."""

APPROVAL: Final = "?approve"
"""How the key of a question ends that stands before an effect; the effect's own key precedes it."""

STAY_SECONDS: Final = 2.0
"""A run that will go on within so many seconds is not worth being unloaded and loaded again."""


class Stop(Struct, frozen=True):
    """Why a run stops before its end: how its row will say it, and the error its caller gets."""

    state: RunState
    reason: WaitReason | None
    error: PerdureError
    wake_at: float = 0.0
    heard: int | None = None
    """The newest mail that everything that waits has looked at; None where nothing does."""
    taken: tuple[int, ...] = ()


class Waiting(Struct, frozen=True):
    """One wait of a run, as it stands."""

    key: str
    reason: WaitReason
    shown: str
    hint: str
    due_at: float = 0.0
    heard: int = 0
    is_busy: bool = False
    """What is waited for moves on its own right now, so that the run stays where it is."""
    is_elsewhere: bool = False
    """What is waited for moves, or will, on some worker: the run makes room meanwhile."""


class Doubtful(Struct, frozen=True):
    """An effect that only a person can settle."""

    key: str
    name: str
    shown: str
    why: str
    heard: int = 0


class Failed(Struct, frozen=True):
    """A call whose failure was raised to the agent, and how far the scopes that waited for it had come then."""

    error: BaseException
    key: str
    reached: dict[Scope, Passed]


class Active:
    """A held run. Thread-safe: strands of one run share it."""

    is_rehearsal = False
    """Whether nothing may be performed or made: the journal is only compared with the code."""

    mending = ""
    """What to do where the code no longer matches the journal; empty where it is code that knows perdure."""

    def __init__(self, store: Store, writer: Writer, row: Run, journal: Journal, *, before: str = "") -> None:
        self.store = store
        self.writer = writer
        self.row = row
        self.journal = journal
        self.pid = clock.process_id()
        self.held_since = self.news_at = clock.boot_seconds()
        self.power = row.durability == "power"
        self.prefixes = codec.PrefixCache()
        self.state: dict[str, Any] = {}
        self.unvisited = dict.fromkeys(journal.entries)
        self.root = Scope(ROOT)
        self.strands: set[Scope] = set()
        self.waiting: set[Scope | None] = set()
        self._returning: dict[threading.Thread, Returning] = {}
        self.movements = self.rings = 0
        self._bodies: set[Frame] = set()
        self.signal: Signal | None = None
        self.stop: Stop | None = None
        self.doubtful: list[Doubtful] = []
        self.waits: dict[str, Waiting] = {}
        self.heard_in_doubt: dict[str, int] = {}
        self.deadline_at = 0.0
        self.interrupt: Callable[[], object] | None = None
        self.asked_to_stop_at = 0.0
        self.was_interrupted = False
        self.noted: Note | None = None
        self.known_notes = Counter(note for _, note in journal.notes if note.about == "progress")
        self.taken: set[int] = set()
        self.failed: list[Failed] = []
        self.undoable: list[Any] = []
        self.open_effects: dict[str, tuple[str, str]] = {}
        self.resources = Ledger()
        self.replayed = 0
        self.saved_seconds = 0.0
        self.saved = Cost()
        self.inherited: frozenset[str] = frozenset()
        """The calls whose effects are another run's, of which this one is a fork."""
        self._inherited_keys: dict[str, str] = {}
        self._changes: dict[str, dict[str, Raw]] = {}
        self._costs: dict[str, Cost] = {}
        self._stored_state: dict[str, bytes] = {}
        self._explicit: set[str] = set()
        self._before = before
        self._announced = False
        self._ended = False
        self.has_ended = False
        """Whether the store has acknowledged that this delivery is over."""
        self.mind_lease: Callable[[], None] = _carefree
        """Stops the run where its lease may be over for others."""
        self._lock = threading.Lock()

    def decide(self, call: Call) -> Decision:
        """What this call means; from here on it counts as made."""
        self.unvisited.pop(call.key, None)
        if self._changes:
            self._change_state(call.key)
        decision = decide(self.journal, call)
        if type(decision) is Replayed:
            self._count(decision.done)
        elif type(decision) is Verdicted:
            self.replayed += 1
        elif not self._announced:
            self.announce()
        return decision

    @property
    def is_recalling(self) -> bool:
        """Whether the next call may be one that was made before, in a replay that has nothing else to mind."""
        is_plain = bool(self.unvisited) and not self._changes and not self.journal.passed
        return is_plain and self.signal is None and not self.deadline_at and self.pid == clock.process_id()

    def recall(self, key: str, name: str, arguments: bytes) -> Done | None:
        """How a step ended that was called just so before, and returned; from here on it counts as made."""
        done = remembered(self.journal, key, name, arguments)
        if done is not None:
            self.unvisited.pop(key, None)
            self._count(done)
        return done

    def _count(self, done: Done) -> None:
        self.replayed += 1
        self.saved_seconds += done.seconds
        if done.cost is not None:
            self.saved = added(self.saved, done.cost)
        if done.state or done.dropped:
            self._note_state(done)

    def descend(self, origin: Origin, records: Sequence[Record]) -> None:
        """Be a fork: what it has from the other run stays that run's, and what it was given is set in its place."""
        done = {record.key for record in records[: origin.records] if completes(record)}
        self.inherited = frozenset(done | origin.keys.keys())
        self._inherited_keys = origin.keys
        self._changes = merged(origin.changes)
        self._change_state("")

    def announce(self) -> None:
        """The replay is over: look at what was left for this moment, and say where the run goes on."""
        if self.resources.deferred:
            self.resources.validate_deferred()
        self.say_resumed()

    def say_resumed(self) -> None:
        """Say once where a resumed run goes on, and what was not repeated."""
        row, is_said, self._announced = self.row, self._announced, True
        if self._before and not is_said and events.is_wanted(events.RunResumed):
            delivery = max(1, row.deliveries)
            events.publish(
                events.RunResumed(
                    row.run_id,
                    row.name,
                    row.agent,
                    self.replayed,
                    self.saved_seconds,
                    delivery,
                    self._before,
                    self.saved.tokens,
                    self.saved.dollars,
                )
            )

    def claim_key(self, key: str) -> bool:
        """Whether an explicit key is used for the first time by this execution."""
        with self._lock:
            if key in self._explicit:
                return False
            self._explicit.add(key)
            return True

    def spend(self, key: str, cost: Cost) -> None:
        """Note what the body of a call says it took; it is committed with the call's next record."""
        with self._lock:
            self._costs[key] = added(self._costs.get(key, Cost()), cost)

    def spent(self, key: str) -> Cost | None:
        """What was noted for a call, and for the items of a map, since it was last asked for."""
        if not self._costs:
            return None
        with self._lock:
            keys = [known for known in self._costs if known == key or known.startswith(f"{key}[")]
            return functools.reduce(added, map(self._costs.pop, keys)) if keys else None

    def effect_key(self, step_key: str) -> str:
        """The idempotency key of an effect: made from run and step, never from the model.

        One that was in doubt in the run this is a fork of may be known outside under the key it had there.
        """
        return self._inherited_keys.get(step_key) or made_key(self.row.run_id, step_key)

    def submit(
        self,
        kind: Kind,
        call: Call | None,
        body: Struct | None,
        *,
        power: bool | None = None,
        stored: tuple[tuple[bytes, bytes], ...] = (),
        taken: tuple[int, ...] = (),
        **changes: Any,
    ) -> tuple[Ticket, Record]:
        """Queue the next record of this run for commit, chained and fenced."""
        now = clock.wall_seconds()
        text = "{}" if body is None else write_body(body)
        key, name, arguments = ("", self.row.agent, b"") if call is None else (call.key, call.name, call.arguments)
        cost: Cost | None = getattr(body, "cost", None)
        with self._lock:
            if self._ended:
                raise self.signal or RunSuspended(f"Run {self.row.name} has ended here.")
            row = self.row
            if kind in COMPLETIONS or (kind == _VERDICT and getattr(body, "outcome", "") == "happened"):
                changes["deliveries"] = 0
                changes["steps"] = row.steps + 1
            if cost is not None:
                changes["tokens"], changes["dollars"] = row.tokens + cost.tokens, row.dollars + cost.dollars
            record = Record(row.length, kind, key, name, arguments, now, row.epoch, text)
            self.row, records = extended(row, at=now, records=(record,), **changes)
            if kind not in _PURE:
                self._heed(kind, key, (name, getattr(body, "shown", name)))
            append = Append(self.row, records, stored, taken, self.power if power is None else power)
            return self.writer.submit(append), record

    def _heed(self, kind: Kind, key: str, effect: tuple[str, str]) -> None:
        """Know which effects are open, and whether this was the last record."""
        if kind is Kind.INTENT:
            self.open_effects[key] = effect
        elif kind in _CLOSINGS:
            self.open_effects.pop(key, None)
        self._ended = kind is Kind.ENDED

    def fenced(self, error: PerdureError | LeaseLost) -> Signal:
        """What a refused write means for this run: it stops here, and nothing more is performed."""
        if isinstance(error, LeaseLost):
            self.signal = self.signal or error
            return error
        return self.halt(Stop(RunState.WAITING, None, error))

    def halt(self, stop: Stop) -> Signal:
        """Stop every strand at its next call; the first reason stands."""
        with self._lock:
            if self.stop is None and self.signal is None:
                self.stop = stop
            self.signal = self.signal or RunSuspended(stop.error.message)
            return self.signal

    def heed_deadline(self) -> None:
        """Stop the run once its deadline is over."""
        if self.signal is None and 0 < self.deadline_at <= clock.wall_seconds():
            late = DeadlineExceeded(
                f"Run {self.row.name} is past its deadline.",
                safe=f"{saved_steps(self.row.steps)}; nothing more is performed.",
                hint=f"{START_OVER}, with a longer deadline if it needs one",
            )
            self.halt(Stop(RunState.FAILED, None, late))

    def raise_if_stopped(self) -> None:
        """No call is made any more once something stopped the run, its deadline is over, or its lease in danger."""
        self.heed_deadline()
        self.mind_lease()
        if self.signal is not None:
            raise self.signal

    def diverge(self, recorded: str, called: str) -> Signal:
        """Park: the code makes another call than the one recorded."""
        error = JournalDiverged(
            f"Run {self.row.name} no longer matches its code.\n  recorded: {recorded}\n  now:      {called}",
            safe=f"{saved_steps(self.row.steps)}; nothing more is performed.",
            hint=self.mending
            or "restore the call or guard the change with perdure.patched and start again; or go on with the new code "
            f"after step {self.replayed}: perdure fork {self.row.name} --at {self.replayed}",
        )
        return self.halt(Stop(RunState.WAITING, WaitReason.PARKED, error))

    def doubt(self, doubtful: Doubtful) -> None:
        """Remember an effect that waits for a person."""
        with self._lock:
            if all(known.key != doubtful.key for known in self.doubtful):
                self.doubtful.append(doubtful)

    def ring(self) -> None:
        """Something happened that a wait may be for: whoever waits looks again."""
        self.rings += 1

    def may_leave(self) -> bool:
        """Whether a run all of whose strands wait should leave memory: not for a moment, and not while a child runs."""
        soon = clock.wall_seconds() + STAY_SECONDS
        waits = list(self.waits.values())
        return not any(wait.is_busy or 0 < wait.due_at < soon for wait in waits)

    def suspend(self) -> Signal:
        """Every strand waits: stop, and say for what."""
        if self.doubtful:
            return self._suspend_in_doubt()
        waits = sorted(self.waits.values(), key=lambda wait: _URGENCY.index(wait.reason))
        first = waits[0]
        others = f" (and {len(waits) - 1} more)" if len(waits) > 1 else ""
        error = RunWaits(
            f"Run {self.row.name} {first.shown}{others}".rstrip(".") + ("" if first.shown.endswith("?") else "."),
            safe=f"{saved_steps(self.row.steps)}.",
            hint=first.hint,
        )
        error.reason = first.reason
        error.moves = first.is_elsewhere
        error.wake_at = min((wait.due_at for wait in waits if wait.due_at), default=0.0)
        heard = min(wait.heard for wait in waits)
        return self.halt(Stop(RunState.WAITING, first.reason, error, self._wake_at(), heard))

    def _wake_at(self) -> float:
        """When the soonest wait is due, or the run's deadline is over."""
        times = [wait.due_at for wait in self.waits.values()] + [self.deadline_at]
        return min((at for at in times if at), default=0.0)

    def _suspend_in_doubt(self) -> Signal:
        first, step = self._first_doubt()
        others = f" and {len(self.doubtful) - 1} more" if len(self.doubtful) > 1 else ""
        error = EffectInDoubt(
            f"Run {self.row.name}: {doubt_words(f'{first.shown}{others}', first.why)}.",
            safe=f"{saved_steps(self.row.steps)}; the effect is not started again until it is settled.",
            hint=f"find out whether it happened, then start again after: {settle_command(self.row.name, step)}",
        )
        heard = min([known.heard for known in self.doubtful] + [wait.heard for wait in self.waits.values()])
        return self.halt(Stop(RunState.WAITING, WaitReason.IN_DOUBT, error, self._wake_at(), heard))

    def _first_doubt(self) -> tuple[Doubtful, str]:
        """The effect in doubt that began first, which is the one that others name too, and how it is called."""
        if len(self.doubtful) == 1:
            return self.doubtful[0], self.doubtful[0].name
        order = list(Journal(self.read(self.store.load_journal, self.row.run_id)).entries)
        first = min(self.doubtful, key=lambda each: order.index(each.key))
        is_alone = sum(each.name == first.name for each in self.doubtful) == 1
        return first, first.name if is_alone else str(1 + order.index(first.key))

    def begin_strand(self, scope: Scope) -> None:
        """Agent code starts a task or a thread."""
        with self._lock:
            self.strands.add(scope)

    def end_strand(self, scope: Scope) -> None:
        """That task or thread is over."""
        with self._lock:
            self.strands.discard(scope)
            self.movements += 1
            if isinstance(scope.worker, Returning):
                self._returning = {thread: known for thread, known in self._returning.items() if thread.is_alive()}
                self._returning[scope.worker.thread] = scope.worker

    def strands_of(self, worker: object) -> list[Scope]:
        """The strands that this task or thread executes."""
        with self._lock:
            return [scope for scope in self.strands if scope.worker is worker]

    def leave(self, scope: Scope) -> None:
        """A scope is over: calls recorded there that it did not make are calls the code does not make any more."""
        if self.signal is None:
            entry = self.journal.beyond(scope.path, scope.calls, scope.spawned)
            if entry is not None:
                self.diverge(entry.shown_call(), "(the code went past this place without making this call)")

    def pass_by(self, scope: Scope, passed: Passed) -> None:
        """Go on beyond the calls that handled a failure: they were made, and stand, and will not be made again."""
        skipped = [key for key in self.unvisited if _lies_within(key, scope, passed)]
        entries = [self.journal.entries[key] for key in skipped]
        if any(entry.is_open for entry in entries):
            return
        for key, entry in zip(skipped, entries, strict=True):
            del self.unvisited[key]
            self._change_state(key)
            if entry.done is not None:
                self._note_state(entry.done)
        scope.go_on_after(passed)

    def moved(self, call: Call) -> Entry | None:
        """The same effect, recorded elsewhere in the run, at a place that the code has not come by yet."""
        of_this_map = call.key[: call.key.find("[") + 1]
        for key in () if call.key.startswith("=") else list(self.unvisited):
            if of_this_map and key.startswith(of_this_map):
                continue  # an equal item of the same map has a key of its own
            entry = self.journal.entries[key]
            if entry.kind == "effect" and (entry.name, entry.arguments) == (call.name, call.arguments):
                return entry
        return None

    def standing(self, watch: Watch) -> Standing:
        """What the strands that do not wait by a call of ours are at: the one that is farthest from waiting counts."""
        with self._lock:
            workers = [scope.worker for scope in self.strands if scope not in self.waiting]
            if self.root not in self.waiting and self.root.worker is not None:
                workers.append(self.root.worker)
            workers += self._returning.values()
        return watch.farthest(workers)

    def body_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is executed as the body of a call: the function itself, except where a run is only rehearsed."""
        return function

    @property
    def performing(self) -> int:
        """How many strands execute user code now."""
        return len(self._bodies)

    def begin_body(self, frame: Frame) -> None:
        """A strand executes user code now."""
        with self._lock:
            self._bodies.add(frame)

    def end_body(self, frame: Frame) -> None:
        """It is done with that, or an exception that a signal raised kept it from beginning."""
        with self._lock:
            self._bodies.discard(frame)
            self.movements += 1

    def mail(self) -> list[Mail]:
        """What others wrote to this run and it has not consumed yet; what it was handed twice is there once."""
        run_id = self.row.run_id
        everything = self.store.read_mail(run_id)
        untaken = [mail for mail in everything if not mail.taken and mail.mail_id not in self.taken]
        return unrepeated(untaken, everything) if untaken and previous_id(run_id) else untaken

    def credit(self) -> None:
        """Take the deliveries back: what this run waits for has moved, so it is not a run that ends its workers."""
        if self.row.deliveries:
            ticket, _ = self.submit(Kind.NOTE, None, Note(about="children"), power=False, deliveries=0)
            self.read(self.writer.wait, ticket)

    def take(self, mail_ids: tuple[int, ...]) -> bool:
        """Reserve mail for one strand; whether no other strand was quicker."""
        with self._lock:
            if not self.taken.isdisjoint(mail_ids):
                return False
            self.taken.update(mail_ids)
            return True

    def stored_value(self, sealed: bytes) -> tuple[Raw, str, tuple[tuple[bytes, bytes], ...]]:
        """Where a value goes: into its record, or, when large, beside it."""
        if len(sealed) <= blobs.INLINE_BYTES:
            return Raw(sealed), "", ()
        digest, stored = blobs.pack(sealed)
        return NULL, digest.hex(), ((digest, stored),)

    def load_value(self, value: Raw, blob: str) -> bytes:
        """The sealed bytes of a recorded value."""
        return self.read(self.store.load_blob, bytes.fromhex(blob)) if blob else bytes(value)

    def read(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Ask the store; where it cannot answer the run stops, because its agent could take an error for an answer."""
        try:
            return verb(*args, **kwargs)
        except PerdureError as error:
            raise self.fenced(error) from error

    def state_changes(self) -> tuple[dict[str, Raw] | None, tuple[str, ...]]:
        """How the working state differs from what the journal last said of it."""
        if not self.state and not self._stored_state:
            return None, ()
        now = {name: codec.seal(value, what=f"state[{name!r}]") for name, value in dict(self.state).items()}
        changed = {name: Raw(sealed) for name, sealed in now.items() if self._stored_state.get(name) != sealed}
        dropped = tuple(name for name in self._stored_state if name not in now)
        self._stored_state = now
        return changed or None, dropped

    def publish_step(self, call: Call, kind: str, done: Done) -> None:
        """Tell observers that a step completed."""
        self.movements += 1
        if events.is_wanted(events.StepCompleted):
            row, took, failed = self.row, done.cost or Cost(), done.failure is not None
            place = (row.run_id, row.name, row.steps, call.key, call.name, kind)
            events.publish(events.StepCompleted(*place, done.seconds, done.attempt, failed, took.tokens, took.dollars))

    def _change_state(self, key: str) -> None:
        """Set what a fork was given after this call, or its approval: in every execution at the same place."""
        for place in (f"{key}{APPROVAL}", key):
            for name, sealed in self._changes.pop(place, {}).items():
                self.state[name] = codec.unseal(bytes(sealed))

    def _note_state(self, done: Done) -> None:
        if done.state:
            self._stored_state.update({name: bytes(sealed) for name, sealed in done.state.items()})
        for name in done.dropped:
            self._stored_state.pop(name, None)


def _carefree() -> None:
    """Nobody judges this run by its lease."""


def made_key(run_id: str, step_key: str) -> str:
    """The key of an effect where it has none of its own."""
    return hashlib.sha256(f"{run_id}\n{step_key}".encode()).hexdigest()[:32]


def settle_command(run_name: str, step: str) -> str:
    """What a person types to settle an effect in doubt."""
    return f"perdure settle {run_name} {shlex.quote(step)} <--happened [JSON] | --did-not-happen>"


def _lies_within(key: str, scope: Scope, passed: Passed) -> bool:
    """Whether a call of this key lies between where a scope stands and where it went on to."""
    inside = key.removeprefix(scope.path).partition("[")[0].removesuffix(APPROVAL)
    if inside[:1] == "." and inside[1:].isdecimal():
        return scope.calls <= int(inside[1:]) < passed.calls
    if inside[:1] != "/":
        return False
    name, _, occurrence = inside[1:].partition("/")[0].rpartition("#")
    number = int(occurrence.partition(".")[0])
    return scope.spawned.get(name, 0) <= number < passed.spawned.get(name, 0)
