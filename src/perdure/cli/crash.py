"""`perdure crash`: kill an agent or a script at every point of its run, resume it, and judge what is left."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from perdure import clock, codec
from perdure.asked import STOPS
from perdure.cli.app import targeted_agent
from perdure.cli.arguments import bound_arguments
from perdure.cli.mode import is_terminal, mode
from perdure.cli.options import complete_files, json_option, named_store, store_option
from perdure.cli.screen import bad, bold, dim, fail, good, print_json, say
from perdure.cli.script import idle_agents
from perdure.cli.target import AgentTarget, Script, parse_target
from perdure.cli.typed import SHOWN_CHARACTERS, json_value
from perdure.engine.agent import spec_of
from perdure.errors import UsageError
from perdure.settings import ENVIRONMENT_PREFIX, Settings, current_settings
from perdure.store import file_of, shown
from perdure.telemetry.text import counted, duration, legible
from perdure.testing.crash.report import Campaign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from perdure.testing.crash.campaign import Laboratory, Report
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.subject import Subject

    F = TypeVar("F", bound=Callable[..., Any])

_CELLS: Final = 24
_CLEAR: Final = "\r\x1b[2K"
_REDRAW_SECONDS: Final = 0.1
_SAFE: Final = "nothing was started."
_SEEDS: Final = 2**31
_SIGNALLED: Final = 128
_BY_CHANCE: Final = ("random", "flip")


def _mode_options(command: F) -> F:
    """The modes; without one, every point."""
    for option in reversed(
        (
            click.option("--every", is_flag=True, help="Kill at every point of the run: what is done without a mode."),
            click.option("--random", "trials", metavar="N", type=click.IntRange(1), help="N trials with random kills."),
            click.option(
                "--during-recovery",
                "depth",
                metavar="DEPTH",
                type=click.IntRange(1),
                help="Kill the resume as well, DEPTH times.",
            ),
            click.option("--racers", metavar="K", type=click.IntRange(2), help="K processes resume at once."),
            click.option("--zombie", is_flag=True, help="Freeze a process past its lease, then let it go on."),
            click.option("--disk-full", is_flag=True, help="Let the device be full."),
            click.option("--flip", is_flag=True, help="Flip bits of the store, and cut it."),
            click.option("--power", is_flag=True, help="Cut the power under a file system of its own (root)."),
            click.option("--kill-database", is_flag=True, help="Kill the server of --store as well."),
            click.option("--clock-jump", is_flag=True, help="Let the clock jump between two processes."),
        )
    ):
        command = option(command)
    return command


def _choice_options(command: F) -> F:
    for option in reversed(
        (
            click.option("--at", metavar="POINT", multiple=True, help="Only this point; a second is for the resume."),
            click.option("--sample", metavar="N", type=click.IntRange(1), default=1, help="Every N-th point only."),
            click.option("--seed", metavar="S", type=click.IntRange(0), help="What random choices are made from."),
            click.option("--dry-run", is_flag=True, help="List the points of the run, and kill nothing."),
            click.option("--jobs", metavar="N", type=click.IntRange(1), help="Trials at once: as many as cores."),
            click.option("--timeout", metavar="SECONDS", type=float, default=60.0, help="For one process: 60."),
            click.option("--answer", metavar="JSON", help="Answers every question; else its first option."),
            click.option("--signal", "signals", metavar="NAME=JSON", multiple=True, help="What a signal brings."),
            click.option("--setup", metavar="FILE", multiple=True, help="A file or module that is loaded first."),
            click.option("--stub", "stubs", metavar="NAME=JSON", multiple=True, help="What a body returns instead."),
            click.option("--copy", "files", metavar="FILE", multiple=True, help="Put a copy where each trial runs."),
            click.option(
                "--compare", metavar="PATH", multiple=True, help="A file or folder that must be left as without a kill."
            ),
            click.option(
                "--expect-failure", "fails", is_flag=True, help="It is meant to fail, always in the same way."
            ),
            click.option(
                "--outside-delay",
                metavar="SECONDS",
                type=float,
                default=0.0,
                help="How late what is done to the outside lands.",
            ),
            click.option("--yes", "sure", is_flag=True, help="The server of --store may be killed."),
            click.option("--folder", metavar="PATH", help="Where trials take place: a temporary place."),
            click.option("--keep", is_flag=True, help="Keep every trial's folder, not only those with a fault."),
        )
    ):
        command = option(command)
    return command


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=complete_files)
@click.argument("arguments", metavar="[-- ARGUMENT...]", nargs=-1, type=click.UNPROCESSED)
@_mode_options
@_choice_options
@json_option(Campaign)
@store_option
def crash(target: str, arguments: tuple[str, ...], *, as_json: bool, dry_run: bool, **chosen: Any) -> int:  # noqa: ANN401 - click's
    """Kill a run at every point, resume it, and count what was repeated or lost.

    TARGET is an agent, as script.py:agent or module:agent, with arguments name=value; or a script, executed as it is
    with the arguments after --. It is started in real processes that are killed with SIGKILL, each trial in a folder
    and a store of its own: your own runs are not touched. --store postgresql://… gives each a schema there.

    Exit code 0: every promise was kept. 1: a fault was found, with the command that replays it.
    """
    del as_json
    from perdure.testing.crash.campaign import Laboratory

    picked = _picked_mode(chosen)
    subject = _subject(target, arguments, chosen)
    options = _options(chosen, picked)
    bar = _Bar()
    laboratory = Laboratory(subject, options)
    try:
        with _stoppable(), laboratory:
            if dry_run:
                return _show_points(laboratory, picked)
            report = _watched(laboratory, picked, bar)
    except _Stopped as stopped:
        _show_interrupted(laboratory, bar)
        return _SIGNALLED + stopped.number
    return _show(report)


class _Stopped(KeyboardInterrupt):
    """Somebody wants it to end: Ctrl-C, or the machine that runs it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let the first signal end the campaign in good order; a second one does not disturb the tidying up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: object) -> None:
        for each in STOPS:
            signal.signal(each, signal.SIG_IGN)
        raise _Stopped(number)

    before = {each: signal.signal(each, stop) for each in STOPS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _show_points(laboratory: Laboratory, picked: str) -> int:
    from perdure.testing.crash.campaign import Report
    from perdure.testing.crash.report import campaign_object, points_text
    from perdure.testing.crash.tally import Tally

    reference = laboratory.reference
    if mode.as_json:
        tally = Tally(points=len(reference.points))
        report = Report(laboratory.subject, picked, laboratory.options, reference, tally, reference.seconds)
        print_json(campaign_object(report, listed=True))
        return 0
    for line in points_text(laboratory.subject.shown, reference):
        say(line)
    return 0


def _watched(laboratory: Laboratory, picked: str, bar: _Bar) -> Report:
    try:
        bar.say("the run without a kill")
        _ = laboratory.reference
        return laboratory.campaign(picked, progress=bar.draw)
    finally:
        bar.clear()


def _show(report: Report) -> int:
    from perdure.testing.crash import report as reports

    if mode.as_json:
        print_json(reports.campaign_object(report))
        return int(not report.is_fine)
    heading, *rows = reports.table(report)
    name, colon, rest = heading.partition(": ")
    say(f"{bold(name)}{colon}{rest}")
    for row in rows:
        say(row)
    paint = good if report.is_fine else bad
    for line in reports.verdict(report):
        say(paint(line))
    for line in reports.faults(report):
        say(line)
    return int(not report.is_fine)


def _show_interrupted(laboratory: Laboratory, bar: _Bar) -> None:
    """How far it came; faults that were found by then stand, and so do the folders of their trials."""
    from perdure.testing.crash import report as reports

    report = laboratory.so_far
    has_faults = report is not None and bool(report.tally.faults)
    left = "what has no fault was removed" if has_faults else "everything was removed"
    left = "what was asked to be kept is in the temporary folder" if laboratory.options.keep else left
    fail(f"interrupted; {bar.played}; {left}.")
    if report is None or not has_faults:
        return
    if mode.as_json:
        print_json(reports.campaign_object(report))
        return
    for line in reports.faults(report):
        say(line)


class _Bar:
    """How far the campaign is and how long it will take, on one line of a terminal; nothing anywhere else."""

    def __init__(self) -> None:
        self._is_wanted = is_terminal() and sys.stderr.isatty() and not mode.as_json
        self._began = clock.elapsed_seconds()
        self._drawn_at = 0.0
        self._done = (0, 0)

    @property
    def played(self) -> str:
        """What came of it so far."""
        trials, faults = self._done
        return f"{counted(trials, 'trial')} {'was' if trials == 1 else 'were'} played, {counted(faults, 'fault')} found"

    def say(self, what: str) -> None:
        """Show what is being done that has no length."""
        self._write(f"perdure: {what} …")

    def draw(self, done: int, total: int, faults: int) -> None:
        """Show how many trials are over."""
        self._done = (done, faults)
        now = clock.elapsed_seconds()
        if done == 1:
            self._began = now
        if now - self._drawn_at < _REDRAW_SECONDS and done < total:
            return
        self._drawn_at = now
        cells = "█" * (_CELLS * done // total)
        rate = (done - 1) / (now - self._began) if now > self._began else 0.0
        left = f", {duration((total - done) / rate)} left" if rate > 0 and done < total else ""
        found = f", {bad(f'{faults:,} faults')}" if faults else ""
        self._write(f"perdure: {cells:░<{_CELLS}} {done / total:>4.0%}  {done:,} of {total:,} trials{found}{left}")

    def clear(self) -> None:
        """Make room for what stays."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._is_wanted:
            click.echo(f"{_CLEAR}{dim(text) if text.endswith('…') else text}", nl=False, err=True)


def _picked_mode(chosen: dict[str, Any]) -> str:
    """The one mode that was asked for."""
    given = {
        "random": chosen["trials"],
        "during-recovery": chosen["depth"],
        **{name.replace("_", "-"): chosen[name] for name in _FLAGS},
    }
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise UsageError(
            f"--{named[0]} and --{named[1]} are two campaigns.", safe=_SAFE, hint="name one mode, then the other"
        )
    if chosen["trials"] and chosen["at"]:
        raise UsageError(
            "--random chooses where to kill, and --at says where.",
            safe=_SAFE,
            hint="leave one of them out; --random 1 --seed S replays a trial",
        )
    return named[0] if named else "every"


_FLAGS: Final = ("every", "racers", "zombie", "disk_full", "flip", "power", "kill_database", "clock_jump")


def _subject(text: str, arguments: tuple[str, ...], chosen: dict[str, Any]) -> Subject:
    """What is killed; an agent is loaded here once, so that what is wrong with it is said at once."""
    from perdure.testing.crash.subject import Subject

    stubs = dict(_pairs("--stub", chosen["stubs"]))
    setup = tuple(_setup(each) for each in chosen["setup"])
    try:
        target = parse_target(text)
    except UsageError as error:
        error.hint = error.hint.replace("perdure run", "perdure crash")
        raise
    plain: dict[str, Any] = {"shown": text, "words": arguments, "setup": setup, "stubs": stubs}
    match target:
        case Script(script):
            _refuse_idle(script)
            return Subject(kind="script", app=str(Path(script).absolute()), paths=(str(Path.cwd()),), **plain)
        case AgentTarget(app, name):
            path = Path(app).expanduser()
            is_file = path.suffix == ".py" or path.exists()
            agent = targeted_agent(target)
            spec = spec_of(agent)
            bound = bound_arguments(spec, arguments)
            sealed = codec.seal_arguments(spec.signature.bind(bound.args, bound.kwargs), of=spec.name).decode()
            where = str(path.absolute()) if is_file else app
            return Subject(
                kind="agent", app=where, name=name or spec.name, arguments=sealed, paths=(str(Path.cwd()),), **plain
            )


def _refuse_idle(script: str) -> None:
    """A script that only defines agents does nothing by itself."""
    for agent in idle_agents(script):
        raise UsageError(
            f"{legible(script)} only defines agents; as a script it does nothing.",
            safe=_SAFE,
            hint=f"name the agent: perdure crash {legible(script)}:{agent}",
        )


def _setup(text: str) -> str:
    path = Path(text).expanduser()
    if path.suffix != ".py":
        return text
    if not path.is_file():
        raise UsageError(f"--setup {legible(text, SHOWN_CHARACTERS)} does not exist.", safe=_SAFE, hint="name a file")
    return str(path.absolute())


def _options(chosen: dict[str, Any], picked: str) -> Options:
    from perdure.testing.crash.options import Options

    if chosen["answer"] is not None:
        json_value(chosen["answer"], of="--answer")
    given = {name: chosen[name] for name in ("jobs", "depth", "racers", "trials") if chosen[name]}
    return Options(
        at=chosen["at"],
        sample=chosen["sample"],
        seed=_new_seed(picked) if chosen["seed"] is None else chosen["seed"],
        timeout_seconds=chosen["timeout"],
        store=_server(),
        answer=chosen["answer"],
        signals=dict(_pairs("--signal", chosen["signals"])),
        outside_seconds=chosen["outside_delay"],
        folder=_folder(chosen["folder"]),
        keep=chosen["keep"],
        sure=chosen["sure"],
        compare=chosen["compare"],
        fails=chosen["fails"],
        files=tuple(str(Path(file).expanduser().absolute()) for file in chosen["files"]),
        settings=_settings(),
        **given,
    )


def _new_seed(picked: str) -> int:
    """A seed that nobody chose; 0 where nothing is left to chance."""
    return int(clock.new_fraction() * _SEEDS) if picked in _BY_CHANCE else 0


def _folder(text: str | None) -> str:
    """Where the trials' folders are made; one that is not there is."""
    if text is None:
        return ""
    path = Path(text).expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--folder {legible(text, SHOWN_CHARACTERS)} cannot be made: {error.strerror}.",
            safe=_SAFE,
            hint="name a folder that can be written to, or leave it out",
        ) from error
    return str(path)


def _server() -> str:
    """The server that --store names; a file would be one that somebody uses, and every trial has its own."""
    store = named_store()
    if (store and file_of(store) is not None) or store.startswith("memory:"):
        raise UsageError(
            f"--store {legible(shown(store), SHOWN_CHARACTERS)}: every trial has a file of its own.",
            safe=_SAFE,
            hint="leave it out; or name a server, on which every trial has a schema of its own: postgresql://…",
        )
    return store


def _settings() -> dict[str, str]:
    """The settings in force here, but for the store, as variables of the processes under test."""
    now, plain = current_settings(), Settings()
    return {
        f"{ENVIRONMENT_PREFIX}{name.upper()}": str(getattr(now, name)).lower()
        if isinstance(getattr(now, name), bool)
        else str(getattr(now, name))
        for name in Settings.__struct_fields__
        if name != "store" and getattr(now, name) != getattr(plain, name)
    }


def _pairs(option: str, texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise UsageError(
                f"{option} {legible(text, SHOWN_CHARACTERS)!r} is no NAME=JSON.", safe=_SAFE, hint=f"{option} name=true"
            )
        json_value(value, of=f"{option} {name}=")
        yield name, value
