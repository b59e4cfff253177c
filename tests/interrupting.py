"""Exceptions that come out of nowhere, as those do that a signal handler raises."""

from __future__ import annotations

import contextlib
import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


def lines_of(function: Callable[..., object]) -> list[int]:
    """The lines of a function, by number, up to where it puts things back.

    Python looks for signals after calls: none comes between the end of a block and what its `finally` begins with.
    """
    source, first = inspect.getsourcelines(function)
    end = next(
        (first + number for number, line in enumerate(source) if line.strip() == "finally:"), first + len(source)
    )
    starts = {line for _, line in dis.findlinestarts(function.__code__) if line is not None}
    return sorted(line for line in starts if first < line < end)


@contextlib.contextmanager
def interrupted_at(function: Callable[..., object], line: int) -> Iterator[None]:
    """Raise KeyboardInterrupt as the function first comes to this line, and swallow it; it may never come there."""
    code = function.__code__

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line" and frame.f_lineno == line:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
