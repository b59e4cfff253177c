"""What the fixture `crash` does: campaigns of kills against one agent, reported as the failure of a test."""

from __future__ import annotations

import inspect
import os
import re
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from msgspec import Struct

from perdure.engine import call
from perdure.engine.agent import spec_of
from perdure.errors import PerdureError, UsageError
from perdure.replay import Journal
from perdure.store import open_store
from perdure.testing.crash import report as reports
from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.options import Options
from perdure.testing.crash.subject import Subject, agent_subject

if TYPE_CHECKING:
    from perdure.testing.crash.tally import Fault

_IN_A_TEST: Final = "CrashFailed.report.tally.faults has them all"
_AROUND: Final = 12
"""So many records of a journal are shown, the last ones."""


_METHODS: Final = (
    (r"--copy FILE", ".copying(FILE)"),
    (r"--copy (\S+)", r".copying('\1')"),
    (r"--timeout ([^\s,]+)", r".options(timeout_seconds=\1)"),
    (r"--outside-delay ([^\s,]+)", r".options(outside_seconds=\1)"),
    (r"--folder PATH", ".options(folder=PATH)"),
    (r"let it take arguments, after --, or read", "let it take arguments, or read"),
    (r"--setup FILE", ".setup(FILE)"),
    (r"--stub NAME=JSON", ".stub(NAME, VALUE)"),
    (r"--stub (\S+?)=…", r".stub('\1', …)"),
    (r"--compare ([^\s:]+)", r".comparing('\1')"),
    (r"--expect-failure", ".expecting_failure()"),
    (r"--answer JSON", ".answering(VALUE)"),
    (r"--signal (\S+)=JSON", r".signalling('\1', VALUE)"),
    (r"--racers (-?\d+)", r".racers(\1)"),
    (r"--at (\S+):([a-z_]+):", r".at('\1', '\2'):"),
    (r"--at (\S+):", r".at('\1'):"),
    (r"--dry-run lists them: ", "its points are: "),
    (r"--dry-run lists the points of the run", "call a step or an effect in the agent"),
    (r"--store postgresql://(\S+)", r".on('postgresql://\1')"),
)
"""What is an option on a command line, and how a test says it."""


class CrashFailed(AssertionError):
    """A campaign found a promise that was not kept, or landed no kill; the message is its report."""

    def __init__(self, message: str, report: Report | None = None) -> None:
        super().__init__(message)
        self.report = report
        """What was counted, and every fault; None where nothing could be played."""


class Crash:
    """`crash(agent, *args, **kwargs)`: a campaign against this call, in processes of their own."""

    def __init__(self, folder: Path, *, jobs: int | None = None) -> None:
        self._folder = folder
        self._jobs = jobs or _jobs()
        self._promised: list[Promised] = []

    def __call__(self, agent: Callable[..., Any], *args: Any, **kwargs: Any) -> Campaign:
        """What is to be killed; nothing is started yet."""
        __tracebackhide__ = True
        try:
            subject, place = _typed(agent_subject(agent, *args, **kwargs), agent)
        except PerdureError as error:
            raise _refused(error) from None
        options = Options(jobs=self._jobs, folder=str(self._folder), found_in=place)
        self._promised.append(Promised(subject.shown))
        return Campaign(subject, options, self._promised[-1])

    def unplayed(self) -> list[str]:
        """The calls that nothing was done to: a test of those alone would always pass."""
        return [
            f"no campaign was played against {each.target}: call .every_point(), .at(…), .random(), .racers(), "
            ".zombie() or .during_recovery() on it"
            for each in self._promised
            if not each.is_kept
        ]


class Promised(Struct):
    """A campaign that a test began to describe, and whether it was played."""

    target: str
    is_kept: bool = False


class Campaign:
    """One call of an agent, and how it is to be killed. Each mode returns its report, or fails the test with it."""

    def __init__(self, subject: Subject, options: Options, promised: Promised) -> None:
        self._subject = subject
        self._options = options
        self._promised = promised

    def every_point(self, *, sample: int = 1) -> Report:
        """Kill it once at every point where something is recorded or performed, or at every so many of them."""
        __tracebackhide__ = True
        return self._play("every", sample=sample)

    def at(self, step: str, window: str = "") -> Report:
        """Kill it at one point: a step or effect, and the window, such as `after_effect`."""
        __tracebackhide__ = True
        return self._play("every", at=(f"{step}:{window}" if window else step,))

    def random(self, trials: int = 20, *, seed: int = 0) -> Report:
        """Kill it at moments that the seed decides."""
        __tracebackhide__ = True
        return self._play("random", trials=trials, seed=seed)

    def racers(self, racers: int = 8, *, sample: int = 1) -> Report:
        """Kill it, and let so many processes resume it at once."""
        __tracebackhide__ = True
        return self._play("racers", racers=racers, sample=sample)

    def zombie(self, *, sample: int = 1) -> Report:
        """Freeze it until another process has taken its run over, then let it go on."""
        __tracebackhide__ = True
        return self._play("zombie", sample=sample)

    def during_recovery(self, depth: int = 2, *, sample: int = 1) -> Report:
        """Kill it, and kill the process that resumes it, so many times in a row."""
        __tracebackhide__ = True
        return self._play("during-recovery", depth=depth, sample=sample)

    def answering(self, value: Any) -> Self:
        """Answer every question with this; its default or first option where nothing is said."""
        return self._with(answer=msgspec.json.encode(value).decode())

    def signalling(self, name: str, payload: Any = None) -> Self:
        """Send this when the run waits for a signal of that name."""
        return self._with(signals={**self._options.signals, name: msgspec.json.encode(payload).decode()})

    def stub(self, function: Callable[..., Any] | str, value: Any) -> Self:
        """Let a step or effect return this instead of being executed."""
        __tracebackhide__ = True
        stubs = {**self._subject.stubs, _name_of(function): msgspec.json.encode(value).decode()}
        return type(self)(msgspec.structs.replace(self._subject, stubs=stubs), self._options, self._promised)

    def setup(self, module: str | os.PathLike[str]) -> Self:
        """Import this module, or file, in every process first: for fakes and stubs."""
        modules = (*self._subject.setup, os.fspath(module))
        return type(self)(msgspec.structs.replace(self._subject, setup=modules), self._options, self._promised)

    def copying(self, *files: str | os.PathLike[str]) -> Self:
        """Give each trial a copy of these files and folders."""
        return self._with(files=(*self._options.files, *(str(Path(each).absolute()) for each in files)))

    def comparing(self, *paths: str | os.PathLike[str]) -> Self:
        """Let these files and folders, where the run is started, be left as they are without a kill."""
        return self._with(compare=(*self._options.compare, *(os.fspath(each) for each in paths)))

    def expecting_failure(self) -> Self:
        """The run is meant to fail: its failure must be the same after every kill."""
        return self._with(fails=True)

    def on(self, store: str) -> Self:
        """Keep the runs on this PostgreSQL server, each trial in a schema of its own."""
        return self._with(store=store)

    def options(self, **options: Any) -> Self:
        """Choose anything else that `perdure.testing.crash.options.Options` has."""
        __tracebackhide__ = True
        return self._with(**options)

    def _with(self, **options: Any) -> Self:
        __tracebackhide__ = True
        try:
            chosen = msgspec.structs.replace(self._options, **options)
        except PerdureError as error:
            raise _refused(error) from None
        return type(self)(self._subject, chosen, self._promised)

    def _play(self, mode: str, **options: Any) -> Report:
        __tracebackhide__ = True
        self._promised.is_kept = True
        try:
            with Laboratory(self._subject, msgspec.structs.replace(self._options, **options)) as laboratory:
                report = laboratory.campaign(mode)
        except PerdureError as error:
            raise _refused(error) from None
        if not report.is_fine:
            raise CrashFailed("\n".join(_told(report)), report)
        return report


def _refused(error: PerdureError) -> CrashFailed:
    """An error of ours as the failure of a test, with what is safe and what to do."""
    return CrashFailed(in_words_of_fixture("\n".join(error.lines())))


def in_words_of_fixture(text: str) -> str:
    """An error of a campaign, with the methods of the fixture in place of options of the command."""
    for option, method in _METHODS:
        text = re.sub(option, method, text)
    return text


def _name_of(function: Callable[..., Any] | str) -> str:
    """What a step or effect is called in journals, which need not be the name of its function."""
    if isinstance(function, str):
        return function
    spec = call.spec_of(getattr(function, "__func__", function))
    if spec is None:
        __tracebackhide__ = True
        raise _refused(
            UsageError(
                f"{getattr(function, '__qualname__', function)!s} is neither a step nor an effect.",
                safe="nothing was started.",
                hint="put @perdure.step or @perdure.effect above its def",
            )
        )
    return spec.name


def _typed(subject: Subject, agent: Callable[..., Any]) -> tuple[Subject, str]:
    """The subject as it would be named on a command line, so that a trial can be replayed there; and the folder in
    which that must look for its module, empty where it does.
    """
    function = inspect.unwrap(spec_of(agent).function)
    file = inspect.getsourcefile(function)
    module, place = _named_from_here(Path(file)) if file else ("", "")
    target = f"{module}:{function.__qualname__}" if module else subject.shown
    given: dict[str, Any] = msgspec.json.decode(subject.arguments)
    words = [f"{name}={msgspec.json.encode(value).decode()}" for name, value in given.items()]
    return msgspec.structs.replace(subject, shown=target, words=tuple(words)), place


def _named_from_here(file: Path) -> tuple[str, str]:
    """A file as a command line names it; one in a package as its module, and the folder that it is found in.

    Loaded as a file, a module of a package has no package, and none of its relative imports works.
    """
    root = file.absolute().parent
    while (root / "__init__.py").exists():
        root = root.parent
    if root == file.absolute().parent:
        return os.path.relpath(file), ""
    parts = file.absolute().relative_to(root).with_suffix("").parts
    is_known = root == Path.cwd() or str(root) in _installed()
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts), "" if is_known else os.path.relpath(root)


def _installed() -> set[str]:
    """Where packages are found that are installed."""
    return {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}


def _told(report: Report) -> Iterator[str]:
    """The report, and what the journal of the first bad trial says."""
    yield reports.text(report, elsewhere=_IN_A_TEST)
    first = next(iter(report.tally.faults), None)
    if first is not None:
        yield from _timeline(first)


def _timeline(fault: Fault) -> Iterator[str]:
    """The last records of the runs of a trial, as it left them."""
    for database in sorted(Path(fault.folder).rglob("perdure.db")) if fault.folder else ():
        store = open_store(str(database), create=False)
        try:
            for run in store.list_runs(limit=3):
                records = store.load_journal(run.run_id)
                journal = Journal(records)
                yield ""
                yield f"  journal of {run.name} ({run.agent}), {run.state}, its last records:"
                for record in records[-_AROUND:]:
                    entry = journal.entries.get(record.key)
                    shown = entry.shown_call() if entry is not None else ""
                    yield f"    {record.seq:>4}  epoch {record.epoch}  {record.kind:<9} {shown}".rstrip()
        finally:
            store.close()


def _jobs() -> int:
    """As many trials at once as there are processors for this process of the tests."""
    share = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1") or 1)
    return max(1, Options().jobs // max(1, share))
