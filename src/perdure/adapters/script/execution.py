"""A script from its first line to its end, inside the frame of a run."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import os
import signal
import sys
import threading
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from perdure import typed
from perdure.adapters.http.redact import Redactor
from perdure.adapters.script.banner import say_beginning, say_unprotected
from perdure.adapters.script.discretion import discreet
from perdure.adapters.script.order import HASH_SEED, Order, name_of
from perdure.adapters.script.wiring import Project, conduct_of, installed
from perdure.adapters.userland.source import compiled_script
from perdure.adapters.words import storable
from perdure.engine.agent import agent, call
from perdure.engine.control import deadline_of, written_tags
from perdure.engine.lifecycle import Request
from perdure.engine.scope import current_frame
from perdure.engine.session import close_sessions
from perdure.errors import PerdureError, RunCancelled
from perdure.telemetry import terminal
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWN: Final = str(Path(__file__).parents[2])
_FAILED: Final = 1


class ScriptFailed(Exception):
    """The script ended with an exit code that says that it failed."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


def main() -> None:
    """Execute the script that the command line names, and end as it ended."""
    order = typed.read(sys.argv[1], Order)
    path, arguments = sys.argv[2], sys.argv[3:]
    sys.argv = sys.argv[2:]
    if order.seeded:
        del os.environ[HASH_SEED]  # what the script and its processes see is what they would see without us
    terminal.install()
    sys.excepthook = _without_our_frames(sys.excepthook)
    sys.exit(_ended(path, arguments, order))


def _ended(path: str, arguments: list[str], order: Order) -> int:
    """Hold the run, execute the script, and tell how it ended as an exit code; what the script raised is raised."""
    raised: list[Exception] = []
    begun: list[str] = []
    redactor = Redactor()

    def script(arguments: list[str]) -> int:
        del arguments  # `sys.argv` has them
        begun.append(path)
        try:
            return _conducted(path, project, order, redactor)
        except Exception as error:
            raised.append(error)
            if (told := storable(error, redactor.text)) is error:
                raise
            raise told from None

    try:
        project = Project.load(Path.cwd())
        declared = agent(name=name_of(path))(script)
        tags, deadline = written_tags(order.tags), deadline_of(order.deadline)
        kept = discreet(arguments, redactor)
        request = Request(
            (kept,), {}, order.run_id, order.fresh, tags, deadline, resumes=order.resumes, pardon=order.pardon
        )
        code = call(declared, request)
    except ScriptFailed as failed:
        return failed.code
    except PerdureError as error:
        sys.stderr.write("\n".join(error.lines()) + "\n")
        return error.exit_code
    except RunCancelled as cancelled:
        sys.stderr.write(f"perdure: {cancelled}\n")
        return _FAILED
    except Exception as error:
        if raised and error is not raised[0]:
            _raise_as_it_was(raised[0])
        raise
    if not begun:
        sys.stderr.write(f"perdure: run {legible(order.run_id or '')} has completed before: nothing was executed\n")
    return int(code)


def _raise_as_it_was(error: Exception) -> None:
    """Raise what the script raised, whatever is stored of it."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context


def _conducted(path: str, project: Project, order: Order, redactor: Redactor) -> int:
    frame = current_frame()
    if frame is None or frame.active is None:
        raise RuntimeError("a script is executed inside a run")
    script = conduct_of(frame.active, project, strict=order.strict, redactor=redactor)
    if not order.again:
        say_beginning(script, path)
    try:
        with installed(script, path):
            return _executed(path)
    finally:
        say_unprotected(script)


def _executed(path: str) -> int:
    """Execute the script as the main module, to the end of its last thread and of what it left for the exit."""
    file = os.path.abspath(path)  # noqa: PTH100 - as Python does: a link is not followed
    module = ModuleType("__main__")
    module.__file__ = file
    module.__loader__ = SourceFileLoader("__main__", file)
    module.__dict__.update({"__annotations__": {}, "__builtins__": builtins, "__cached__": None, "__spec__": None})
    sys.modules["__main__"] = module
    sys.path.insert(0, str(Path(path).resolve().parent))
    code = 0
    try:
        try:
            exec(_compiled(file), module.__dict__)  # noqa: S102 - the script is what we were asked to execute
        finally:
            _deafen()
    except SystemExit as ended:
        code = _exit_code(ended.code)
    except BaseException:
        threading._register_atexit(_hear)  # type: ignore[attr-defined]  # noqa: SLF001 - before Python waits for threads
        raise
    _leave(code)
    if code:
        raise ScriptFailed(code)
    return 0


def _compiled(file: str) -> CodeType:
    try:
        return compiled_script(file)
    except SyntaxError as error:
        raise error.with_traceback(None) from None  # how it was read is nothing to the script's author


def _exit_code(given: Any) -> int:
    """What Python makes of what a script gives to `sys.exit`."""
    if given is None or isinstance(given, int):
        return int(given or 0) & 0xFF
    sys.stderr.write(f"{given}\n")
    return _FAILED


def _leave(code: int) -> None:
    """What Python does at the end of a program, done while the run is open: one that is killed here is not over.

    Threads are waited for, what was registered for the exit is called, and what was written is written out. Where that
    cannot be, Python finds the same again when the process ends, and says so.
    """
    _wait_for_threads(code)
    atexit.unregister(close_sessions)  # the end of the run is still to be recorded
    with contextlib.suppress(KeyboardInterrupt, SystemExit), _hearing():
        atexit._run_exitfuncs()  # noqa: SLF001 - what Python itself calls here; each is called once, and forgotten
    atexit.register(close_sessions)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _wait_for_threads(code: int) -> None:
    """Wait for the script's threads; whoever does not want to wait for them loses no exit code by it."""
    is_alone = all(thread.daemon or thread is threading.current_thread() for thread in threading.enumerate())
    try:
        with contextlib.nullcontext() if is_alone else _hearing():
            threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what Python itself calls here
    except KeyboardInterrupt:
        if not code:
            atexit.register(_hear)
            raise


_unheard: Final[dict[int, Any]] = {}
"""The handlers of the script that is over, by the signals that they were for."""


def _deafen() -> None:
    """The script is over: no handler of its signals comes in the middle of how its end is recorded."""
    while True:
        with contextlib.suppress(KeyboardInterrupt, SystemExit):  # what comes just now
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler) and handler is not _ignore:
                    _unheard[number] = handler
                    signal.signal(number, _ignore)
            return


def _ignore(number: int, frame: object) -> None:
    """Not ignored by the system, so that programs which the script left behind do not ignore it either."""
    del number, frame


def _hear() -> None:
    """What the script does on its way out can be interrupted as the script itself."""
    while _unheard:
        signal.signal(*_unheard.popitem())


@contextlib.contextmanager
def _hearing() -> Iterator[None]:
    try:
        _hear()
        yield
    finally:
        _deafen()


def _without_our_frames(before: Any) -> Any:
    """What a script raised is shown as Python would: from the script's own first line on."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN):
            trace = trace.tb_next
        before(kind, error.with_traceback(trace), trace)

    return hook
