"""`perdure upgrade-check`: which unfinished runs would park under this code; asked before it is deployed."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
from msgspec import Meta, Struct

from perdure import clock, demo
from perdure.cli.app import load_agents
from perdure.cli.mode import is_terminal, mode
from perdure.cli.options import command, complete_files, json_option, looking, runs_argument, store_option
from perdure.cli.runs import find_run
from perdure.cli.screen import bad, bold, dim, doubtful, good, print_json, say
from perdure.engine.agent import spec_of
from perdure.errors import JournalDiverged, UsageError
from perdure.policy import seconds_of
from perdure.records import FINISHED, RunState
from perdure.store.protocol import EVERY, Which
from perdure.telemetry.text import counted, legible, legible_lines
from perdure.testing.upgrade import SECONDS, Candidate, exported, rehearsed, unfinished
from perdure.testing.verdict import BAD, Rehearsed

if TYPE_CHECKING:
    from perdure.engine.agent import AgentSpec
    from perdure.records import Run
    from perdure.store.protocol import Store

_FAILED_EXIT_CODE: Final = 1
_LISTED: Final = 20
"""Of more runs than this, those that go on are only counted."""

_CLEAR: Final = "\r\x1b[2K"
_REDRAW_SECONDS: Final = 0.1


class UpgradeChecked(Struct, frozen=True):
    """What `perdure upgrade-check` found."""

    fine: Annotated[bool, Meta(description="whether every run would go on under this code")]
    checked: Annotated[int, Meta(description="how many unfinished runs were replayed")]
    diverging: Annotated[int, Meta(description="how many would park, or have no agent any more")]
    failing: Annotated[int, Meta(description="how many would fail of code between their steps")]
    undecided: Annotated[int, Meta(description="of how many that could not be found out")]
    runs: Annotated[list[Rehearsed], Meta(description="each run, in the order in which they were checked")]


@click.command(name="upgrade-check")
@click.argument("app", metavar="APP", shell_complete=complete_files)
@runs_argument
@click.option("--all", "everything", is_flag=True, help="Every run that is not finished: as if no RUN is named.")
@click.option(
    "--from",
    "files",
    metavar="FILE",
    multiple=True,
    shell_complete=complete_files,
    help="Runs that perdure export wrote: a file, or a folder of them; no store is needed then.",
)
@click.option("--timeout", metavar="TIME", help="How long the code between the steps of one run may take; 10s.")
@json_option(UpgradeChecked)
@store_option
def upgrade_check(
    app: str, runs: tuple[str, ...], *, everything: bool, files: tuple[str, ...], timeout: str | None, as_json: bool
) -> int:
    """Replay unfinished runs against the code in APP, a file or a module, and say which would not go on with it.

    The journal of each run is compared with the calls that the code makes, until it is used up. No step, effect or
    check is executed, and nothing is written; code between the steps is executed, as every replay does.
    Exit code 0: all go on. 5: some would park. 1: none would, but one would fail, or could not be judged.
    """
    _refuse_unclear(runs, everything=everything, files=files)
    seconds = SECONDS if timeout is None else seconds_of(timeout, what="--timeout")
    found = []
    with contextlib.redirect_stdout(sys.stderr), _chosen(runs, files) as (total, candidates):
        agents, built_in = _specs(load_agents((app,), option="")), _specs(demo.agents())
        with _watched(total) as tell_progress:
            for number, candidate in enumerate(candidates, 1):
                found.append(rehearsed(agents, candidate, seconds=seconds, built_in=built_in))
                tell_progress(number, found[-1])
    _report(found, app, as_json=as_json)
    return _exit_code(found)


globals()["upgrade-check"] = upgrade_check
"""Python cannot write the command's name."""


def _specs(agents: Mapping[str, Callable[..., Any]]) -> dict[str, AgentSpec]:
    return {name: spec_of(agent) for name, agent in agents.items()}


def _refuse_unclear(runs: tuple[str, ...], *, everything: bool, files: tuple[str, ...]) -> None:
    if bool(runs) + everything + bool(files) > 1:
        raise UsageError(
            "RUN, --all and --from exclude each other.",
            safe="nothing was checked.",
            hint=command("upgrade-check", "APP") + " checks every unfinished run",
        )


@contextlib.contextmanager
def _chosen(runs: tuple[str, ...], files: tuple[str, ...]) -> Iterator[tuple[int, Iterator[Candidate]]]:
    """The runs to check, and how many there are, as far as that is known."""
    if files:
        with exported(files) as candidates:
            yield 0, candidates
        return
    with looking() as store:
        found = [_live(find_run(store, run)) for run in runs] if runs else _every(store)
        yield len(found), unfinished(store, found)


def _every(store: Store) -> list[Run]:
    found = store.find_runs(Which(unfinished=True), limit=EVERY)
    return [run for run in found if run.state != RunState.FAILED]


def _live(run: Run) -> Run:
    if run.state in FINISHED or run.state == RunState.FAILED:
        raise UsageError(
            f"Run {run.name} is {run.state}: no new code meets it.",
            safe="nothing was checked.",
            hint=command("ps") + " lists the unfinished runs",
        )
    return run


@contextlib.contextmanager
def _watched(total: int) -> Iterator[_Progress]:
    progress = _Progress(total)
    try:
        yield progress
    finally:
        progress.clear()


class _Progress:
    """One line on a terminal that says how far the check is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bad = 0
        self._drawn_at = -_REDRAW_SECONDS
        self._is_drawn = False

    def __call__(self, number: int, last: Rehearsed) -> None:
        self._bad += not last.is_fine
        now = clock.elapsed_seconds()
        if mode.as_json or not is_terminal() or not sys.stderr.isatty() or now - self._drawn_at < _REDRAW_SECONDS:
            return
        self._drawn_at, self._is_drawn = now, True
        of = f" of {self._total:,}" if self._total else ""
        sys.stderr.write(f"{_CLEAR}checked {number:,}{of} runs, {self._bad:,} would not go on")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_drawn:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def _report(found: list[Rehearsed], app: str, *, as_json: bool) -> None:
    counts = Counter(str(each.outcome) for each in found)
    diverging = sum(each.outcome in BAD for each in found)
    if as_json:
        fine = all(each.is_fine for each in found)
        print_json(UpgradeChecked(fine, len(found), diverging, counts["fails"], counts["undecided"], found))
        return
    for each in found:
        if len(found) <= _LISTED or not each.is_fine:
            _show(each)
    words = [good(f"{counts['fits']} {'goes' if counts['fits'] == 1 else 'go'} on")] if counts["fits"] else []
    words += [bad(f"{diverging} would park")] if diverging else []
    words += [bad(f"{counts['fails']} would fail")] if counts["fails"] else []
    words += [doubtful(f"{counts['undecided']} undecided")] if counts["undecided"] else []
    say(
        f"{counted(len(found), 'unfinished run')} checked against {legible(app)}: {', '.join(words) or 'nothing to do'}"
    )


def _show(each: Rehearsed) -> None:
    name = f"{bold(legible(each.name))}  {legible(each.agent)}"
    if each.is_fine:
        say(f"  {good('✔')} {name}  {dim(legible(each.words))}")
        return
    mark = doubtful("?") if each.outcome == "undecided" else bad("✘")
    first, *others = legible_lines(each.words).splitlines()
    say(f"  {mark} {name}  {each.outcome}: {first}")
    for line in others:
        say(f"    {line}")
    if each.hint:
        say(f"    {dim('do:')} {legible(each.hint)}")


def _exit_code(found: list[Rehearsed]) -> int:
    if any(each.outcome in BAD for each in found):
        return JournalDiverged.exit_code
    return 0 if all(each.is_fine for each in found) else _FAILED_EXIT_CODE
