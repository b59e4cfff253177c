"""Watches a script from inside its process; Python loads this by its name, because its folder is on the path.

WATCH_SCRIPT is the file. WATCH_LOG collects a line whenever one of its plain functions is called and whenever one
returns: the interpreter counts, not perdure. WATCH_GATE, as `function|part of a line|occurrence`, is the place where
this process says so into the pipe WATCH_PIPE and goes no further: whoever started it kills it there.
"""

from __future__ import annotations

import dis
import inspect
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

SCRIPT: Final = os.environ.get("WATCH_SCRIPT", "")
NAMES: Final = {SCRIPT, os.path.basename(SCRIPT)}  # noqa: PTH119 - as Python names the file it was told to run
FUNCTION, LINE, OCCURRENCE = os.environ.get("WATCH_GATE", "||0").split("|")
SUSPENDS: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

_lines: Final = Path(SCRIPT).read_text(encoding="utf-8").splitlines() if SCRIPT else []
_log: Final = os.open(os.environ["WATCH_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if SCRIPT else -1
_gate: Final = os.open(os.environ["WATCH_PIPE"], os.O_WRONLY) if FUNCTION else -1
_arrivals = 0


def _watch(frame: FrameType, event: str, argument: Any) -> Any:
    """Called for every call in every thread; only those of the script are looked at further."""
    del argument
    code = frame.f_code
    if event != "call" or code.co_filename not in NAMES or code.co_name.startswith("<"):
        return None
    if not code.co_flags & SUSPENDS:
        _write("call", frame)
    frame.f_trace_lines = code.co_name == FUNCTION
    return _watch_inside


def _watch_inside(frame: FrameType, event: str, argument: Any) -> Any:
    del argument
    if event == "line" and LINE in _lines[frame.f_lineno - 1]:
        _arrive()
    elif event == "return" and not frame.f_code.co_flags & SUSPENDS and _is_returning(frame):
        _write("return", frame)
    return _watch_inside


def _is_returning(frame: FrameType) -> bool:
    """Whether a value is returned; an exception that passes through ends a frame with the same event."""
    return "RETURN" in dis.opname[frame.f_code.co_code[frame.f_lasti]]


def _write(what: str, frame: FrameType) -> None:
    """One line of the log: what happened, the function, and its first argument."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    first = str(frame.f_locals.get(names[0])) if names else ""
    os.write(_log, f"{what}\t{frame.f_code.co_name}\t{' '.join(first.split())}\n".encode())


def _arrive() -> None:
    global _arrivals  # noqa: PLW0603 - one process, one count
    _arrivals += 1
    if _arrivals == int(OCCURRENCE):
        os.write(_gate, b"!")
        while True:
            signal.pause()


if SCRIPT:
    threading.settrace(_watch)
    sys.settrace(_watch)
