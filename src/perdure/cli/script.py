"""`perdure run script.py`: the script as a process of its own, as if perdure were not there; unless it is killed.

The script has our standard streams, our terminal and our process group. Signals that only we get are passed on to it,
and we end as it ended: with its exit code, or by the signal that ended it.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import itertools
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.adapters.http.redact import REDACTED
from perdure.adapters.script.order import CHILD, HASH_SEED, Order, hash_seed, name_of
from perdure.adapters.script.reading import uses_perdure
from perdure.bodies import Delivery, Started, read_body
from perdure.cli.mode import mode
from perdure.cli.options import command, looking, named_store
from perdure.cli.screen import bold, tell
from perdure.engine.ending import queue_anew
from perdure.engine.session import session
from perdure.errors import PerdureError, UnprotectedCall, UsageError, saved_steps
from perdure.records import FINISHED, Kind, Run
from perdure.settings import current_settings
from perdure.store.protocol import Which
from perdure.telemetry.text import counted, legible
from perdure.worker.death import Famine, cause_of, signal_name
from perdure.worker.supervisor import record_death

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.records import Record
    from perdure.store.protocol import Store

_PASSED_ON: Final = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH")
_FROM_KERNEL: Final = 0x80
"""How Linux marks a signal that a terminal sent: the script, in the same process group, has it already."""

_DIE_WITH_PARENT: Final = 1
"""Linux: PR_SET_PDEATHSIG."""

_CRASHES: Final = frozenset(
    {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGSYS}
)
"""Signals that nobody sends to a script to have it stop: the system takes it, or it breaks."""

_PAUSES: Final = (1.0, 2.0, 4.0, 8.0)
"""For how many seconds a script that was killed is left alone before it goes on."""

_NOT_EXECUTED: Final = 127
_STANDARD_OUTPUT: Final = 1
_STANDARD_ERROR: Final = 2
_CONSIDERED: Final = 200


class ScriptEnd(Struct, frozen=True):
    """How a script ended: the runs that it executed, newest first, and its exit code, or minus the signal."""

    code: int
    runs: list[Run]


def run_script(path: str, arguments: Sequence[str], order: Order, *, restarts: bool) -> ScriptEnd:
    """Run the script to its end; one that was killed is said to be, with what is saved.

    One that says itself what its runs are is executed as it is. Any other is a run as a whole, and where it was killed
    or crashed it is started again, until the run has ended too many deliveries.
    """
    if uses_perdure(path):
        refuse_order(order)
        return _run_plain(path, arguments)
    return _run_conducted(path, arguments, order, restarts=restarts)


def resumed_script(run: Run, apps: Sequence[str], first: Record) -> ScriptEnd | None:
    """Go on with a run that is a script as a whole, where that script was named; None where it is another's code.

    The script gets the arguments that its run was begun with. Loaded as a module it would be executed unprotected.
    """
    path = apps[0] if len(apps) == 1 else ""
    if not Path(path).is_file() or name_of(path) != run.agent or uses_perdure(path):
        return None
    body: Started = read_body(first)
    arguments = msgspec.json.decode(body.arguments, type=dict[str, list[str]])["arguments"]
    if any(REDACTED in argument for argument in arguments):
        raise UsageError(
            f"Run {run.name} was begun with arguments that are secrets, and not stored.",
            safe=f"{saved_steps(run.steps)}; nothing was started.",
            hint=f"{command('run', '--fresh', path)} with its arguments starts over",
        )
    return _run_conducted(path, arguments, Order(run.run_id, pardon=True), restarts=True)


def _run_conducted(path: str, arguments: Sequence[str], order: Order, *, restarts: bool) -> ScriptEnd:
    famine = Famine()
    environment = _environment()
    if not environment.get(HASH_SEED):
        environment[HASH_SEED] = hash_seed(path, arguments)
        order = msgspec.structs.replace(order, seeded=True)
    for deaths in itertools.count():
        began_at = clock.wall_seconds()
        shown = msgspec.json.encode(order).decode()
        pid, status, heard = _executed([sys.executable, CHILD, shown, path, *arguments], environment)
        code = os.waitstatus_to_exitcode(status)
        runs = _runs_of(pid, since_at=began_at) if code < 0 or mode.as_json else []
        if code >= 0:
            return ScriptEnd(code, runs)
        run = next((run for run in runs if run.state not in FINISHED), None)
        if run is not None and run.holder:
            record_death(current_settings(), run.holder, cause_of(status, starved=famine.took(pid, status)))
        if run is not None and -code in heard:
            with contextlib.suppress(PerdureError):  # then it counts as a death
                queue_anew(session(), run, why=f"its process was asked to stop ({signal_name(-code)})")
                runs = [session().store.read_run(each.run_id) or each for each in runs]
        if run is None or not restarts or -code not in _CRASHES or _unrecorded_tools(run):
            _say_killed(path, -code, runs)
            return ScriptEnd(code, runs)
        seconds = _PAUSES[min(deaths, len(_PAUSES) - 1)]
        saved = f"{bold(run.name)} has {counted(run.steps, 'step')} saved"
        tell(f"perdure: {legible(path)} was {cause_of(status)}; {saved}, and goes on in {seconds:g} s")
        clock.pause(seconds)
        order = msgspec.structs.replace(order, run_id=run.run_id, fresh=False, again=True, pardon=False)
    raise AssertionError  # counting does not end


def _run_plain(path: str, arguments: Sequence[str]) -> ScriptEnd:
    began_at = clock.wall_seconds()
    pid, status, _ = _executed([sys.executable, path, *arguments], _environment())
    code = os.waitstatus_to_exitcode(status)
    runs = _runs_of(pid, since_at=began_at) if code < 0 or mode.as_json else []
    if code < 0:
        _say_killed(path, -code, runs)
    elif not code and (idle := idle_agents(path)):
        named = command("run", f"{path}:{idle[0]}")
        tell(f"perdure: {legible(path)} only defines {counted(len(idle), 'agent')}; nothing was run. Name one: {named}")
    return ScriptEnd(code, runs)


def refuse_order(order: Order) -> None:
    """A script that uses perdure says itself what it runs: options of ours would be lost on it."""
    given = {
        "--id": order.run_id,
        "--tag": order.tags,
        "--deadline": order.deadline,
        "--fresh": order.fresh,
        "--strict": order.strict,
    }
    named = [option for option, value in given.items() if value]
    if named:
        raise UsageError(
            f"{named[0]} is for an agent, and the target is a script that uses perdure itself.",
            safe="nothing was started.",
            hint="name the agent: perdure run script.py:agent; or say it in the script: perdure.run(agent, run_id=…)",
        )


def idle_agents(path: str) -> list[str]:
    """The agents of a script that calls nothing itself, as its text tells; nothing is loaded."""
    try:
        module = ast.parse(Path(path).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return []
    defined = (
        ast.Import,
        ast.ImportFrom,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Assign,
        ast.AnnAssign,
    )
    if any(not isinstance(each, defined) and not _is_text(each) for each in module.body):
        return []
    functions = [each for each in module.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [each.name for each in functions if any(_names_agent(mark) for mark in each.decorator_list)]


def _names_agent(mark: ast.expr) -> bool:
    called = mark.func if isinstance(mark, ast.Call) else mark
    return ast.unparse(called) in ("perdure.agent", "agent")


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def end_alike(code: int) -> int:
    """End by the signal that ended the script, so that a shell sees what it would have seen; else its exit code."""
    if code >= 0:
        return code
    sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):  # one core file is enough
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no other handling than its own
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def _executed(command: list[str], environment: dict[str, str]) -> tuple[int, int, set[int]]:
    """Execute a command to its end, and pass on what is sent to us meanwhile; its pid, its wait status, and what came.

    Signals are blocked before the script is there, so none is lost, and taken one by one together with its death.
    """
    numbers = {getattr(signal, name) for name in _PASSED_ON} | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        pid = _spawned(command, environment, before)
        heard = set[int]()
        while True:
            number, is_shared = _next_signal(numbers)
            heard.add(number)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return pid, status, heard
            if number != signal.SIGCHLD and not is_shared:
                os.kill(pid, number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawned(command: list[str], environment: dict[str, str], mask: set[Any]) -> int:
    """The script's pid. It dies with us where the system allows: killed and typed again, it must not run twice."""
    system, parent = ctypes.CDLL(None, use_errno=True), os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        if hasattr(system, "prctl"):
            system.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if mode.as_json:
            os.dup2(_STANDARD_ERROR, _STANDARD_OUTPUT)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these for itself, not for others
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if os.getppid() == parent:
            os.execve(command[0], command, environment)  # noqa: S606 - what was named, without a shell
    finally:
        os._exit(_NOT_EXECUTED)


def _environment() -> dict[str, str]:
    return {**os.environ, "PERDURE_STORE": current_settings().store} if named_store() else dict(os.environ)


def _next_signal(numbers: set[Any]) -> tuple[int, bool]:
    """The next signal, and whether the script has got it as well."""
    if hasattr(signal, "sigwaitinfo"):
        information = signal.sigwaitinfo(numbers)
        return information.si_signo, information.si_code == _FROM_KERNEL
    number = signal.sigwait(numbers)
    return number, number in (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH) and _is_in_front()


def _is_in_front() -> bool:
    """Whether a terminal sends its signals to our process group."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False


def _say_killed(path: str, number: int, runs: list[Run]) -> None:
    how = f"{legible(path)} was ended by {signal.Signals(number).name}"
    open_runs = [run for run in runs if run.state not in FINISHED]
    if not open_runs and runs:
        tell(f"perdure: {how}; {bold(runs[0].name)} was {runs[0].state} by then: the same command is a new run")
        return
    if not open_runs:
        tell(f"perdure: {how}; it held no run in {legible(current_settings().store)}")
        return
    run, more = open_runs[0], len(open_runs) - 1
    if tools := _unrecorded_tools(run):
        _say_unrecorded(how, run, tools)
        return
    others = f", and {counted(more, 'more run')}" if more else ""
    saved = f"{bold(run.name)} has {counted(run.steps, 'step')} saved{others}"
    tell(f"perdure: {how}; {saved}. The same command resumes it.")


def _say_unrecorded(how: str, run: Run, tools: list[str]) -> None:
    """Nothing of ours starts a script again that would do twice what we said ourselves we could not see."""
    named = ", ".join(map(legible, tools))
    problem = UnprotectedCall(
        f"{how}, and {run.name} is not started again by itself: a resume performs again what these tools did"
        f" unrecorded: {named}.",
        safe=f"{saved_steps(run.steps)}, and not repeated.",
        hint="if that is fine, the same command goes on with it; or protect the tools (docs: guides/any-script)",
    )
    for line in problem.lines():
        tell(line)


def _unrecorded_tools(run: Run) -> list[str]:
    """The tools of this run that were said not to be protected, by any process that executed it."""
    with looking() as store:
        notes = [read_body(record) for record in store.load_journal(run.run_id) if record.kind == Kind.NOTE]
    return list(dict.fromkeys(note.by for note in notes if note.about == "unprotected" and note.by))


def _runs_of(pid: int, *, since_at: float) -> list[Run]:
    """The runs that this process was the last to take, newest first."""
    try:
        with looking() as store:
            found = {
                run.run_id: run
                for which in (Which(unfinished=True), Which())
                for run in store.find_runs(which, limit=_CONSIDERED)
                if run.updated_at >= since_at
            }
            mine = [run for run in found.values() if _last_holder(store, run) == (pid, clock.host_name())]
    except PerdureError:  # there is no store, or it has its own word to say to whoever asks it
        return []
    return sorted(mine, key=lambda run: run.created_at, reverse=True)


def _last_holder(store: Store, run: Run) -> tuple[int, str]:
    deliveries = [record for record in store.load_journal(run.run_id) if record.kind == Kind.DELIVERY]
    last: Delivery | None = read_body(deliveries[-1]) if deliveries else None
    return (last.pid, last.host) if last else (0, "")
