"""`replay_check`: which unfinished runs would park, fail or be left behind under this code; nothing is performed.

User code between the steps is executed, as every replay does. No body of a step, an effect or a check is, and no store
is written to.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from perdure import clock, events
from perdure.engine import lifecycle
from perdure.engine.ledger import Ledger
from perdure.engine.scope import Frame, adopt_loop, carriers, enter_frame
from perdure.engine.session import standing_in
from perdure.engine.whereabouts import UNDO_AGENT
from perdure.errors import PerdureError, RunRestarted, Signal, UsageError
from perdure.records import FINISHED, RunState
from perdure.replay import Journal
from perdure.store.parcel import read_parcel
from perdure.telemetry.text import counted, legible_lines
from perdure.testing import verdict
from perdure.testing.agents import Code, agents_in
from perdure.testing.rehearsal import LOOK_SECONDS, Exhausted, Rehearsal, Shelved, Stage
from perdure.testing.verdict import BAD, Rehearsed

if TYPE_CHECKING:
    from perdure.engine.agent import AgentSpec
    from perdure.records import Run
    from perdure.store.protocol import Store, Whole

SECONDS: Final = 10.0
"""How long the code between the steps of one run may take."""

_GRACE_SECONDS: Final = 1.0
_SUFFIX: Final = ".jsonl"


class Candidate(Struct, frozen=True):
    """A run to rehearse, and where its large values are."""

    whole: Whole
    load_blob: Callable[[bytes], bytes]


class Keeper(Protocol):
    """Something that keeps runs, such as the fixture `perdure_store`."""

    def candidates(self) -> Iterator[Candidate]:
        """The runs that are not finished."""


class Checked(Struct, frozen=True):
    """What a check found, run by run."""

    runs: list[Rehearsed]

    @property
    def diverging(self) -> list[Rehearsed]:
        """The runs that would not go on: other calls than recorded, or no such agent any more."""
        return [run for run in self.runs if run.outcome in BAD]

    @property
    def fine(self) -> bool:
        """Whether every run would go on."""
        return all(run.is_fine for run in self.runs)

    def __str__(self) -> str:
        bad = [run for run in self.runs if not run.is_fine]
        lines = [f"{counted(len(bad), 'run')} of {len(self.runs)} would not go on under this code"]
        for run in bad:
            lines += ["", f"{run.name}  {run.agent}: {run.outcome}", *_indented(run.words), f"  do: {run.hint}"]
        return "\n".join(lines) if bad else f"{counted(len(self.runs), 'run')} fit this code"


def replay_check(
    code: Code | Iterable[Code],
    runs: str | Path | Keeper | Iterable[str | Path],
    *,
    timeout: float = SECONDS,
) -> Checked:
    """Replay the journals of unfinished runs against this code, and say of each whether it would go on.

    `code`: a module, its name, a Python file, an agent, agents by the name that their runs carry, or several of these.
    `runs`: files that `perdure export` wrote, folders of them, or the fixture `perdure_store`. Finished runs are left
    out; a store without any other, and no files at all, are refused. `timeout` bounds, in seconds, the code between
    the steps of one run.
    """
    with contextlib.ExitStack() as opened:
        agents = agents_in(code, opened)
        found = opened.enter_context(exported(runs)) if not hasattr(runs, "candidates") else _begun(runs.candidates())
        return Checked([rehearsed(agents, each, seconds=timeout) for each in found])


@contextlib.contextmanager
def exported(runs: Any) -> Iterator[Iterator[Candidate]]:
    """The unfinished runs in these files and folders, each proved before it is used."""
    named = [runs] if isinstance(runs, (str, Path)) else list(runs)
    with contextlib.ExitStack() as opened:
        yield (each for path in _files(named) if not _is_over((each := _read(opened, path)).whole.run))


def unfinished(store: Store, runs: Iterable[Run]) -> Iterator[Candidate]:
    """Runs of a store, as each is when its turn comes."""
    for run in runs:
        whole = store.load_whole(run.run_id)
        if not _is_over(whole.run):
            yield Candidate(whole, store.load_blob)


def rehearsed(
    agents: Mapping[str, AgentSpec],
    candidate: Candidate,
    *,
    seconds: float,
    built_in: Mapping[str, AgentSpec] | None = None,
) -> Rehearsed:
    """What would become of one run under this code; `built_in` are agents that any code has, and need no naming."""
    run = candidate.whole.run
    spec = agents.get(run.agent) or (built_in or {}).get(run.agent)
    if run.agent == UNDO_AGENT:
        return verdict.taking_back(run)
    if spec is None:
        return verdict.gone(run, list(agents))
    store = Shelved(candidate.whole, candidate.load_blob)
    try:
        active = _opened(store, candidate.whole)
    except PerdureError as error:
        return verdict.unreadable(run, error)
    stage = Stage(store)
    carriers.acquire()
    try:
        with events.unheard(), standing_in(stage), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coroutines that were made and not awaited when it was over
            return Performance(active, spec).watched(seconds)
    finally:
        carriers.release()
        stage.close()


class Performance:
    """One rehearsal: the agent in a thread of its own, watched from here."""

    def __init__(self, active: Rehearsal, spec: AgentSpec) -> None:
        self._active = active
        self._spec = spec
        self._said: Rehearsed | None = None
        self._has_begun = threading.Event()
        self._has_ended = threading.Event()

    def watched(self, seconds: float) -> Rehearsed:
        """Let the agent replay until it stands still; what that means."""
        thread = threading.Thread(target=self._play, name="perdure-rehearsal", daemon=True)
        thread.start()
        self._has_begun.wait()
        active, until = self._active, clock.elapsed_seconds() + seconds
        while not self._has_ended.wait(LOOK_SECONDS):
            is_late = clock.elapsed_seconds() >= until
            if is_late or active.signal is not None or active.is_still():
                said = verdict.late(active, seconds) if is_late else verdict.stopped(active)
                active.release()
                self._has_ended.wait(_GRACE_SECONDS)  # what does not heed that is left behind
                return said
        return self._said or verdict.late(active, seconds)

    def _play(self) -> None:
        active = self._active
        try:
            if self._spec.signature.is_async:
                asyncio.run(self._replayed_later())
            else:
                self._replayed()
            self._said = verdict.returned(active)
        except RunRestarted:
            self._said = verdict.returned(active)
        except Signal:
            self._said = verdict.stopped(active)
        except BaseException as error:  # noqa: BLE001 - it is what this code does to the run
            self._said = verdict.raised(active, error)
        finally:
            self._has_begun.set()
            self._has_ended.set()

    def _replayed(self) -> None:
        active, spec = self._active, self._spec
        active.root.worker = threading.current_thread()
        enter_frame(Frame(active, active.root, blocking=True))
        self._has_begun.set()
        try:
            bound = lifecycle.recorded_arguments(active, spec)
            spec.function(*bound.args, **bound.kwargs)
        except Exhausted:
            active.stand()

    async def _replayed_later(self) -> None:
        active, spec, loop = self._active, self._spec, asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # nobody asks what became of tasks that stood still
        adopt_loop(loop)
        active.root.worker = asyncio.current_task()
        enter_frame(Frame(active, active.root))
        self._has_begun.set()
        try:
            bound = lifecycle.recorded_arguments(active, spec)
            await spec.function(*bound.args, **bound.kwargs)
        except Exhausted:
            await active.stand_later()


def _opened(store: Shelved, whole: Whole) -> Rehearsal:
    journal = Journal(whole.records, suspects=whole.run.suspects)
    active = Rehearsal(store, whole.run, journal)
    origin = journal.started().forked_from
    if origin is not None:
        active.descend(origin, whole.records)
    active.resources = Ledger(whole.records)
    return active


def _is_over(run: Run) -> bool:
    """Whether no new code will ever meet this run."""
    return run.state in FINISHED or run.state == RunState.FAILED


def _read(opened: contextlib.ExitStack, path: Path) -> Candidate:
    try:
        file = opened.enter_context(path.open("rb"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}.",
            safe="nothing was checked.",
            hint="name a file that perdure export wrote",
        ) from error
    parcel = read_parcel(file, str(path))
    return Candidate(parcel.whole, parcel.load_blob)


def _begun(candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    """The runs that a test has made; without any it would pass under every code.

    Files are another matter: those of a quiet day hold finished runs alone, and the deploy may go on.
    """
    first = next(candidates, None)
    if first is None:
        raise UsageError(
            "There is no unfinished run in this store to replay.",
            safe="nothing was checked.",
            hint="begin one before, and let it wait: people.leave_open(…), or perdure.start(…) with clock.held()",
        )
    yield first
    yield from candidates


def _files(named: list[Any]) -> Iterator[Path]:
    """The files themselves, and those in folders; where there are none at all that is refused, it would always fit."""
    if not named:
        raise UsageError(
            "No exported run is named.", safe="nothing was checked.", hint="perdure export --all -o runs, and name runs"
        )
    for each in map(Path, named):
        inside = sorted(each.glob(f"*{_SUFFIX}")) if each.is_dir() else [each]
        if not inside:
            raise UsageError(
                f"{each} holds no exported run.",
                safe="nothing was checked.",
                hint=f"perdure export --all -o {each}",
            )
        yield from inside


def _indented(words: str) -> list[str]:
    return [f"  {line.strip()}" for line in legible_lines(words).splitlines()]
