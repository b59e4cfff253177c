"""Forks processes that have loaded perdure and what it stands on; see the package."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

LOADED = """
    apsw asyncio click concurrent.futures.process concurrent.futures.thread difflib fcntl json
    msgspec queue shlex shutil socket subprocess tempfile textwrap threading tomllib traceback urllib.parse uuid zlib
    perdure perdure.cli perdure.cli.answer perdure.cli.doctor perdure.cli.export perdure.cli.inbox perdure.cli.ls
    perdure.cli.ps perdure.cli.resume perdure.cli.settle perdure.cli.show perdure.cli.start perdure.cli.verify
    perdure.cli.worker perdure.engine.agent perdure.engine.child perdure.engine.ending perdure.engine.execute
    perdure.engine.lifecycle perdure.engine.mapping.call perdure.engine.recovery perdure.engine.session
    perdure.store.postgres.store perdure.store.sqlite.store perdure.worker.supervisor
    perdure.testing.crash.bodies perdure.testing.crash.files perdure.testing.crash.hurry
    perdure.testing.crash.libraries perdure.testing.crash.senders perdure.testing.crash.skew
    perdure.testing.crash.writes
    http.server runpy socketserver
"""
MOST_BYTES = 1 << 20
"""Of a request."""


def main() -> None:
    """Serve until nobody asks any more; each child becomes the program that was asked for."""
    sys.path[0] = sys.argv[2]
    for name in (*LOADED.split(), *sys.argv[3:]):
        importlib.import_module(name)
    sys.modules["perdure.testing.crash.libraries"].rehearse()
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=int(sys.argv[1]))
    request = _served(requests)
    _settle_in(request)
    _end(_executed(_program(request["arguments"])))


def _served(requests: socket.socket) -> dict[str, Any]:
    """Fork for every request, and tell how each child ended; returns only in a child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    tells: dict[int, int] = {}
    while True:
        watched: list[Any] = [requests, woken, 0]
        ready, _, _ = select.select(watched, [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ended(tells)
        if 0 in ready:
            raise SystemExit(0)  # whoever started it has ended
        if requests not in ready:
            continue
        text, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 4)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            request: dict[str, Any] = json.loads(text)
            _take_streams(descriptors[:3])
            return request
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        tells[pid] = descriptors[3]
        _tell(tells[pid], pid)


def _tell_ended(tells: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            descriptor = tells.pop(pid)
            _tell(descriptor, status)
            os.close(descriptor)


def _tell(descriptor: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever asked is gone
        os.write(descriptor, struct.pack("i", number))


def _take_streams(descriptors: list[int]) -> None:
    """Have these for the standard streams, opened as the interpreter opens its own, and no other descriptor."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, max(64, *descriptors) + 64)
    encoding = sys.stdout.encoding
    sys.stdin = open(0, encoding=encoding, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115
    sys.stdout = _written(1, encoding, sys.stdout.errors or "strict", by_line=os.isatty(1))
    sys.stderr = _written(2, encoding, "backslashreplace", by_line=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def _written(descriptor: int, encoding: str, errors: str, *, by_line: bool) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    if os.environ.get("PYTHONUNBUFFERED"):
        return io.TextIOWrapper(raw, encoding, errors, newline="\n", write_through=True)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, newline="\n", line_buffering=by_line)


def _settle_in(request: dict[str, Any]) -> None:
    """Be a process of its own: its signals, its place among the others, its folder and its settings."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if request["session"]:
        os.setsid()
    elif request["group"] != -1:
        os.setpgid(0, request["group"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.orig_argv[:] = request["arguments"]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*(os.path.abspath(each) for each in named if each), *sys.path[1:]]  # noqa: PTH100 - may be gone
    importlib.invalidate_caches()
    if any(os.path.exists(os.path.join(each, "sitecustomize.py")) for each in named):  # noqa: PTH110, PTH118 - texts
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")  # as an interpreter does when it starts


def _program(words: list[str]) -> Callable[[], object]:
    """What the words of a command say that is to be executed as `__main__`."""
    is_safe = words[1] == "-P"
    what, *rest = words[2:] if is_safe else words[1:]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if what == "-m":
        if not hasattr(sys.modules.get(rest[0]), "__path__"):
            sys.modules.pop(rest[0], None)  # a new interpreter has not loaded it yet
        sys.argv[:] = ["-m", *rest[1:]]
        sys.path[:0] = [] if is_safe else [os.getcwd()]  # noqa: PTH109 - a text
        return lambda: runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]  # noqa: SLF001
    sys.argv[:] = ["-c", *rest[1:]] if what == "-c" else [what, *rest]
    if not is_safe:
        sys.path.insert(0, "" if what == "-c" else str(Path(what).resolve().parent))
    if what != "-c":
        main.__file__ = os.path.abspath(what)  # noqa: PTH100 - links are kept
    return lambda: exec(_compiled(what, rest), main.__dict__)  # noqa: S102 - what was asked for


def _compiled(what: str, rest: list[str]) -> types.CodeType:
    if what == "-c":
        return compile(rest[0], "<string>", "exec", dont_inherit=True)
    return compile(Path(what).read_bytes(), os.path.abspath(what), "exec", dont_inherit=True)  # noqa: PTH100


def _executed(program: Callable[[], object]) -> int:
    """Execute a program and give its exit code; of an error that it leaves, its own part of the way is told."""
    try:
        program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except Exception as error:  # noqa: BLE001 - told as the interpreter tells it
        trace = error.__traceback__
        error.__traceback__ = trace and trace.tb_next and trace.tb_next.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """End as the interpreter does, but leave the memory to the system: taking it apart is most of a short life."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            sys.exit(code)  # the interpreter has its own words for it
    os._exit(code)


if __name__ == "__main__":
    main()
