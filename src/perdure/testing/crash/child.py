"""The processes under test: one that has loaded perdure and the agent's libraries, and forks a real one a request.

The code under test is loaded by each process itself, in the folder of its trial. A forked process leaves the serving
loop and ends like any script: its uncaught exceptions meet the interpreter's own hook, and its exit code is what the
interpreter's would be. Requests and answers are lines of JSON; a request is answered with the process id, and again
whenever that process stops or ends.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

import perdure
from perdure import codec, settings, typed
from perdure.engine.agent import resume, spec_of
from perdure.engine.session import session
from perdure.errors import PerdureError, UsageError
from perdure.testing.crash import bodies, files, hurry, senders, skew, writes
from perdure.testing.crash.libraries import load_libraries, rehearse
from perdure.testing.crash.subject import RUN_ID, Subject, bound_arguments, load_agent, load_setup
from perdure.testing.crash.trap import Orders, trap

_BARE: Final = "--bare"
_STORE: Final = f"{settings.ENVIRONMENT_PREFIX}STORE"


class Birth(Struct, frozen=True, kw_only=True):
    """A request for one process."""

    number: int = 0
    folder: str
    environment: dict[str, str]
    orders: Orders
    out: str
    err: str
    pardon: bool = False
    """Resume the run as a person would who asks for it by name."""


class Told(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the nursery answers: a process is there, has stopped, or has ended; at first, that it is ready."""

    number: int = 0
    pid: int = 0
    status: int | None = None
    stopped: bool = False


def main() -> None:
    """Load what can be loaded once, then serve; from here on only a forked process returns."""
    subject = typed.read(sys.argv[1], Subject)
    subject = msgspec.structs.replace(subject, setup=tuple(map(_absolute, subject.setup)))
    _prepare(subject)
    if _BARE not in sys.argv:
        load_libraries(subject.app)
        if threading.active_count() > 1:  # a forked process would have none of them: let each load its own
            os.execv(sys.executable, [*sys.orig_argv, _BARE])  # noqa: S606 - this very program
    rehearse()
    _say(Told())
    gc.collect()
    gc.freeze()
    birth = _serve()
    _settle_in(birth)
    _end(_ended(subject, birth))


def _ended(subject: Subject, birth: Birth) -> int:
    """Run the subject as a program of its own would be; its exit code."""
    try:
        load_setup(subject)
        _begin(birth.orders)
        if subject.kind == "script":
            files.watch(birth.orders)
            _run_script(subject)
            bodies.tell_unknown_stub()
        else:
            agent = load_agent(subject)
            if bodies.tell_unknown_stub() is not None:
                return UsageError.exit_code
            _run_agent(subject, agent, birth)
    except SystemExit as ended:
        return _code(ended)
    except BaseException:  # noqa: BLE001 - shown as the interpreter shows it
        try:
            sys.excepthook(*sys.exc_info())
        except SystemExit as ended:
            return _code(ended)
        return 1
    return 0


def _code(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    sys.stderr.write(f"{ended.code}\n")
    return 1


def _end(code: int) -> None:
    """End as the interpreter does, threads and handlers included, but without taking its whole memory apart: shared
    with the process it was forked from, that would be copied first, and take longer than the trial itself.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - the first thing that the interpreter does
    atexit._run_exitfuncs()  # noqa: SLF001 - and the second
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _prepare(subject: Subject) -> None:
    """Put the points into perdure, before anything is loaded that uses it."""
    sys.path[:0] = [path for path in subject.paths if path not in sys.path]
    writes.prepare()
    bodies.prepare()
    hurry.prepare()
    senders.prepare()
    _keep_configured_store()
    bodies.stubs.update({name: value.encode() for name, value in subject.stubs.items()})


def _absolute(app: str) -> str:
    """A file where it lies now; a module is found by its name."""
    return str(Path(app).absolute()) if app.endswith(".py") else app


def _keep_configured_store() -> None:
    """Code under test may choose its settings, but never where its runs are kept: that is the trial's own place."""
    original = settings.configure

    def configure(**chosen: Any) -> None:
        chosen.pop("store", None)
        original(**chosen)

    settings.configure = configure
    perdure.configure = configure


def _keep_store(store: str | None) -> None:
    """What code under test puts into its environment moves its store as little as what it configures."""
    settings.choose({"store": settings.Given(store, "the trial")})


def _serve() -> Birth:
    """Fork a process for each line of standard input, and tell of each that stops or ends; only a child returns."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    numbers: dict[int, int] = {}
    rest = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ended(numbers)
        if 0 in ready:
            read = os.read(0, 65536)
            if not read:
                _end_all(numbers)
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                birth = typed.read(line, Birth)
                pid = os.fork()
                if not pid:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(woken)
                    os.close(wake)
                    return birth
                numbers[pid] = birth.number
                _say(Told(number=birth.number, pid=pid))


def _tell_ended(numbers: dict[int, int]) -> None:
    while numbers:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return
        if os.WIFSTOPPED(status):
            _say(Told(number=numbers[pid], pid=pid, stopped=True))
            continue
        _end_group(pid)
        _say(Told(number=numbers.pop(pid), pid=pid, status=os.waitstatus_to_exitcode(status)))


def _end_all(numbers: dict[int, int]) -> None:
    """Whoever asked is gone: nothing of the trials stays behind."""
    for pid in numbers:
        _end_group(pid)
    for pid in numbers:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    os._exit(0)


def _end_group(pid: int) -> None:
    """End a process and everything it started that did not leave its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _say(told: Told) -> None:
    os.write(1, msgspec.json.encode(told) + b"\n")


def _settle_in(birth: Birth) -> None:
    """Make the forked process the one that was asked for: its folder, its settings, its own streams and session."""
    os.setsid()
    os.chdir(birth.folder)
    os.environ.clear()
    os.environ.update(birth.environment)
    _keep_store(birth.environment.get(_STORE))
    for descriptor, name in ((0, os.devnull), (1, birth.out), (2, birth.err)):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)


def _begin(orders: Orders) -> None:
    """From here on its time is what it is told, and its points are counted."""
    if orders.clock:
        skew.follow(Path(orders.clock))
    trap.arm(orders)
    hurry.begin(orders.skipped_seconds)


def _run_script(subject: Subject) -> None:
    """The script as if it had been started by name."""
    sys.argv = [subject.app, *subject.words]
    sys.path.insert(0, str(Path(subject.app).parent))
    runpy.run_path(subject.app, run_name="__main__")


def _run_agent(subject: Subject, agent: Any, birth: Birth) -> None:
    """Run the agent, or resume it; what became of that is told to the oracle, and to whoever reads the output."""
    orders, spec = birth.orders, spec_of(agent)
    try:
        bound = bound_arguments(subject, spec)
        found = session().store.read_run(RUN_ID) if birth.pardon else None
        value = (
            perdure.run(agent, *bound.args, run_id=RUN_ID, **bound.kwargs) if found is None else resume(agent, found)
        )
    except PerdureError as error:
        told = {"code": error.code, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
        trap.tell(verb="error", trial=orders.trial, life=orders.life, error=told)
        sys.stderr.write("\n".join(error.lines()) + "\n")
        raise SystemExit(error.exit_code) from None
    except Exception as error:  # noqa: BLE001 - the agent's own failure, which its run has recorded
        told = {"code": "failed", "message": f"{type(error).__name__}: {error}", "hint": "", "exit_code": 1}
        trap.tell(verb="error", trial=orders.trial, life=orders.life, error=told)
        traceback.print_exc()
        raise SystemExit(1) from None
    sealed = codec.seal(value).decode()
    trap.tell(verb="result", trial=orders.trial, life=orders.life, value=sealed)
    sys.stdout.write(json.dumps(json.loads(sealed)) + "\n")


if __name__ == "__main__":
    main()
