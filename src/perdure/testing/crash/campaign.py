"""Many trials, several at once: the uncrashed run first, then a trial for each plan of a mode, and one tally of all."""

from __future__ import annotations

import contextlib
import errno
import itertools
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Struct

from perdure import clock
from perdure.errors import StoreFull, StoreUnavailable, UsageError
from perdure.testing.crash.bodies import UNKNOWN_STUB
from perdure.testing.crash.contents import refuse_elsewhere, refuse_missing
from perdure.testing.crash.leftovers import FOLDERS, claimed, sweep
from perdure.testing.crash.modes import Plan, load_mode, refuse_mode
from perdure.testing.crash.nursery import Nursery
from perdure.testing.crash.oracle import Oracle
from perdure.testing.crash.place import Place, refuse_unreachable
from perdure.testing.crash.reference import compared, observed
from perdure.testing.crash.strays import end_strays
from perdure.testing.crash.tally import Tally, forgiven, summed
from perdure.testing.crash.trial import Bench, Reference, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perdure.testing.crash.options import Options
    from perdure.testing.crash.points import Point
    from perdure.testing.crash.subject import Subject

    Progress = Callable[[int, int, int], None]
    """Told after each trial: how many are done, of how many, and how many faults were found."""

_FIXED: Final = {"PERDURE_DELIVERIES": "1000"}
"""A run that is killed again and again must not be parked for it, unless its agent says so itself."""


class Report(Struct, frozen=True):
    """What came of a campaign."""

    subject: Subject
    mode: str
    options: Options
    reference: Reference
    tally: Tally
    seconds: float

    @property
    def is_fine(self) -> bool:
        """Whether every promise was kept, and at least one kill landed."""
        return self.tally.is_fine


class Laboratory:
    """Where the campaigns of one subject take place; lives as long as the block.

    Nothing of the user's is touched: every trial has its own folder and its own store. Folders of trials with a fault
    are kept, and named in the fault.
    """

    def __init__(self, subject: Subject, options: Options) -> None:
        self.subject = subject
        self.options = options
        self._stack = contextlib.ExitStack()
        self._numbers = itertools.count(1)
        self._reference: Reference | None = None
        self.so_far: Report | None = None
        """What a campaign that was interrupted had come to by then."""
        self._is_kept = options.keep
        self._is_interrupted = False

    def __enter__(self) -> Self:
        refuse_elsewhere(self.options.compare)
        refuse_unreachable(self.options.store)
        with contextlib.ExitStack() as stack:
            parent = Path(self.options.folder or tempfile.gettempdir())
            sweep(parent, server=self.options.store)
            self.folder = _new_folder(parent)
            stack.callback(self._clear)
            if not self.options.keep:
                stack.enter_context(claimed(self.folder))
            self._oracle = stack.enter_context(Oracle())
            nursery = stack.enter_context(Nursery(self.subject, {**self.options.settings, **_FIXED}))
            settings = {**self.options.settings, **_FIXED}
            self._bench = Bench(self.subject, self.options, nursery, self._oracle, settings)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def reference(self) -> Reference:
        """The run that nobody interrupts, made when first asked for."""
        if self._reference is None:
            self._reference = self._observe()
        return self._reference

    def campaign(self, mode: str = "every", *, progress: Progress | None = None) -> Report:
        """Play every plan of a mode, several at once."""
        refuse_mode(mode, self.options)
        module = load_mode(mode)
        began = clock.elapsed_seconds()
        plans = module.plan(self.reference, self.options)
        if not plans:
            raise UsageError(
                f"There is nothing to kill: the mode {mode} has no trial for this run.",
                safe="nothing of yours was touched.",
                hint="--dry-run lists the points of the run",
            )
        jobs = getattr(module, "at_once", int)(self.options.jobs)
        played = _Played(len(plans), progress)

        def report(tally: Tally) -> Report:
            return Report(self.subject, mode, self.options, self.reference, tally, clock.elapsed_seconds() - began)

        try:
            return report(self.play(plans, module.play, played=played, jobs=jobs))
        except KeyboardInterrupt:
            self.so_far = report(forgiven(summed(played.tallies)))
            raise

    def play(
        self,
        plans: Sequence[Plan],
        play: Callable[[Trial, Plan], None],
        *,
        played: _Played | None = None,
        jobs: int | None = None,
    ) -> Tally:
        """Play these plans in this way, and sum up what was counted."""
        played = played or _Played(len(plans), None)

        def one(plan: Plan) -> Tally:
            trial = self._trial(plan, self.reference)
            try:
                self._play(trial, play)
            except BaseException:
                self._end(trial, keep=True)
                raise
            trial.tally.strays += self._end(trial, keep=bool(trial.tally.faults))
            if not self._is_interrupted:  # else its processes were ended by us, and it proves nothing
                played.add(trial.tally)
            return trial.tally

        with self._several(jobs or self.options.jobs) as pool:
            futures = [pool.submit(one, plan) for plan in plans]
            try:
                tallies = [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        judged = {plan.points[:1] for plan, tally in zip(plans, tallies, strict=True) if _came_by(plan, tally)}
        tally = forgiven(summed(tallies))
        tally.points = len({plan.points[:1] for plan in plans if plan.points})
        tally.judged = len(judged)
        return tally

    def _play(self, trial: Trial, play: Callable[[Trial, Plan], None]) -> None:
        """Play one trial. A store of its own that cannot be used is a fault of that trial, and not the end of all."""
        try:
            play(trial, trial.plan)
        except StoreUnavailable as error:
            if self.options.store:
                raise
            trial.fault("stuck", error.message)

    def _trial(self, plan: Plan, reference: Reference) -> Trial:
        name = f"{next(self._numbers):05}"
        place = Place(self.folder / name, server=self.options.store, files=self.options.files)
        return Trial(self._bench, place, plan, reference, name=name)

    @contextlib.contextmanager
    def _several(self, jobs: int) -> Iterator[ThreadPoolExecutor]:
        """So many threads; whoever interrupts waits only until each has removed what it made."""
        with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            try:
                yield pool
            except KeyboardInterrupt:
                self._is_interrupted = True
                pool.shutdown(wait=False, cancel_futures=True)
                self._bench.nursery.stop()
                raise

    def _end(self, trial: Trial, *, keep: bool) -> list[str]:
        """Tidy up after a trial; the processes that its bodies left behind, which are ended."""
        strays = end_strays(self._oracle.outside(trial.name, ""), trial.place.folder)
        keep = keep and not self._is_interrupted
        self._is_kept = self._is_kept or keep
        trial.place.clear(keep=keep or self.options.keep)
        self._oracle.forget(trial.name)
        return strays

    def _observe(self) -> Reference:
        """Two uncrashed runs: what differs between them is not held against a crashed one."""
        with self._several(min(2, self.options.jobs)) as pool:
            observations = list(pool.map(lambda _: self._observe_once(), range(2)))
        refuse_missing(self.options.compare, {name for each in observations for name in each.contents})
        return compared(*observations, explore=self._explore)

    def _observe_once(self) -> Any:
        trial = self._trial(Plan("reference"), Reference(uses_perdure=self.subject.kind == "agent"))
        try:
            return self._observed(trial)
        finally:
            self._end(trial, keep=False)

    def _observed(self, trial: Trial) -> Any:
        """The uncrashed run; that a script has nothing by the name of a stub is known once it has begun."""
        try:
            return observed(trial)
        finally:
            for error in trial.account().errors.values():
                if error["code"] == UNKNOWN_STUB:
                    raise UsageError(error["message"], safe="nothing was killed.", hint=error["hint"])

    def _explore(self, rows: list[tuple[Point, ...]]) -> list[tuple[Point, ...]]:
        """For each row of kills, the points of the process that resumes after them."""

        def explored(row: tuple[Point, ...]) -> tuple[Point, ...]:
            trial = self._trial(Plan("explore", row), self.reference)
            try:
                for point in row:
                    trial.kill(point)
                ended = trial.live(traced=True)
                return trial.passed(ended)
            finally:
                self._end(trial, keep=False)

        with self._several(self.options.jobs) as pool:
            return list(pool.map(explored, rows))

    def _clear(self) -> None:
        """Remove what no fault refers to, unless it was asked for."""
        if not self._is_kept:
            shutil.rmtree(self.folder, ignore_errors=True)


def _came_by(plan: Plan, tally: Tally) -> bool:
    """Whether a trial came by at least one of its points, so that something was judged there."""
    missed = tally.unreached + sum(fault.kind == "missed" for fault in tally.faults)
    return missed < len(set(plan.points))


def _new_folder(parent: Path) -> Path:
    """A folder for the trials of one campaign."""
    try:
        return Path(tempfile.mkdtemp(prefix=FOLDERS, dir=parent))
    except OSError as error:
        kind = StoreFull if error.errno == errno.ENOSPC else UsageError
        raise kind(
            f"No trial can take place in {parent}: {error.strerror}.",
            safe="nothing was started.",
            hint="name a folder that can be written to, and has room: --folder PATH",
        ) from error


class _Played:
    """The trials that are over, for whoever watches, or wants to know what they came to before the last one is."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._lock = threading.Lock()
        self.tallies: list[Tally] = []

    def add(self, tally: Tally) -> None:
        with self._lock:
            self.tallies.append(tally)
            if self._progress is not None:
                self._progress(len(self.tallies), self._total, sum(len(each.faults) for each in self.tallies))


def run_campaign(
    subject: Subject, options: Options, mode: str = "every", *, progress: Progress | None = None
) -> Report:
    """One campaign, from nothing to its report."""
    with Laboratory(subject, options) as laboratory:
        return laboratory.campaign(mode, progress=progress)
