"""`workdir`: a directory that belongs to a run, kept at every step, so that a resume elsewhere finds what was made."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perdure.engine.drive import drive
from perdure.engine.ledger import Terms, Touched, note_seen, place_of
from perdure.engine.resource import _asked, _checked, _refuse_unseen, look_on
from perdure.engine.scope import Frame, current_frame
from perdure.engine.step import heed_problem, step
from perdure.errors import UsageError
from perdure.resources.kinds import IGNORED, SIZE_LIMIT, Resource, directory, patterns

if TYPE_CHECKING:
    from collections.abc import Generator

    from perdure.engine.active import Active
    from perdure.engine.drive import Operation

SECONDS: Final = 60.0


class Workdir(os.PathLike[str]):
    """A directory of a run; a path wherever a path is wanted."""

    def __init__(self, path: Path, active: Active | None = None) -> None:
        self.path = path
        self._active = active

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __repr__(self) -> str:
        return f"Workdir({str(self.path)!r})"

    def checkpoint(self) -> None:
        """Keep the directory as it is now, without waiting for the next step to complete."""
        if self._active is not None:
            if self._active.signal is not None:
                raise self._active.signal
            drive(_checkpoint(self._active))


def workdir(
    path: str | os.PathLike[str] | None = None,
    *,
    ignore: Iterable[str] = IGNORED,
    on_change: str = "recreate",
    timeout: float = SECONDS,
    size_limit: int = SIZE_LIMIT,
) -> Workdir:
    """A working directory for this run: `path`, or one of its own below the store's folder.

    Whenever a step or an effect completes, what changed in it is kept with that step's record. A resumed run finds it
    as it was after the last completed step, on whatever machine; what is there instead is put aside, not destroyed.
    Inside a step, `workdir()` gives the directory that the agent opened. Pass names of files to steps, not whole
    paths: those differ from machine to machine.
    """
    frame = current_frame()
    active = None if frame is None else frame.active
    if frame is None:
        return _outside_a_run(path)
    if frame.body and active is not None:
        return _opened(frame, active, path)
    options = patterns(ignore)
    resource = directory(path, ignore=options) if path is not None else None
    run_name = "" if active is None else active.row.name
    resource = resource or Resource("workdir", run_name, {"ignore": options})
    terms = _checked(Terms(resource, on_change, timeout, snapshot=True, size_limit=size_limit))
    token = _asked.set(terms)
    try:
        _workdir(resource.words)
    finally:
        _asked.reset(token)
    return _entered(active, terms)


@step(name="perdure.workdir")
def _workdir(directory: str) -> None:  # noqa: ARG001 - the recorded argument is what a replay compares
    """The first checkpoint: what the directory holds before the run does anything there."""
    from perdure.resources.look import Look, see_all  # only runs with resources pay for it

    frame, terms = current_frame(), _asked.get()
    if frame is None or frame.active is None:
        return
    active = frame.active
    place = place_of(active, terms)
    Path(place.identity).mkdir(parents=True, exist_ok=True)
    number, look = active.resources.next_look(), look_on(terms, active)
    (seen,) = see_all([Look(place, look.timeout, look.keep, look.memory)])
    _refuse_unseen(terms, seen)
    note_seen(active.resources.touch(frame.step_key), terms, seen, look=number)


def _entered(active: Active | None, terms: Terms) -> Workdir:
    if active is None:
        return Workdir(Path(terms.resource.identity))
    active.resources.workdirs[terms.resource.key] = terms
    path = Path(place_of(active, terms).identity)
    if not active.is_rehearsal:
        path.mkdir(parents=True, exist_ok=True)
    return Workdir(path.absolute(), active)


def _opened(frame: Frame, active: Active, path: str | os.PathLike[str] | None) -> Workdir:
    """The working directory that the agent has opened, as a step body may use it."""
    for terms in active.resources.workdirs.values():
        if (path is None) == (terms.resource.kind == "workdir") and (
            path is None or directory(path).identity == terms.resource.identity
        ):
            return Workdir(Path(place_of(active, terms).identity).absolute(), active)
    raise UsageError(
        f"perdure.workdir was called inside the body of {frame.body}, and the agent has not opened that directory.",
        safe="nothing was made.",
        hint="call perdure.workdir(…) in the agent first, with the same path",
    )


def _outside_a_run(path: str | os.PathLike[str] | None) -> Workdir:
    import tempfile

    made = Path(tempfile.mkdtemp(prefix="perdure-")) if path is None else Path(path)
    made.mkdir(parents=True, exist_ok=True)
    return Workdir(made)


def _checkpoint(active: Active) -> Generator[Operation, Any, None]:
    from perdure.engine.recovery import look_at_workdirs, observed

    touched = Touched()
    yield from look_at_workdirs(active, touched)
    if touched.resources:
        yield from observed(active, touched, words=("checkpoint",))
    heed_problem(active, touched)
