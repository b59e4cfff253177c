"""`perdure run script.py`: the script as a process of its own, as if perdure were not there; unless it is killed.

The script has our standard streams, our terminal and our process group. Signals that only we get are passed on to it,
and we end as it ended: with its exit code, or by the signal that ended it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from perdure import clock
from perdure.cli.options import looking, named_store
from perdure.cli.screen import bold, tell
from perdure.errors import PerdureError
from perdure.records import Delivery, Kind, Run, read_body
from perdure.store.protocol import Which
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perdure.store.protocol import Store

_PASSED_ON: Final = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGCONT")
_ALREADY_THERE: Final = ("SIGINT", "SIGQUIT")
"""A terminal sends these to the script too, which decides what they mean."""

_CONSIDERED: Final = 200
_NAMED: Final = 3


def run_script(path: str, arguments: Sequence[str]) -> int:
    """Run the script to its end; its exit code. Killed by a signal, it takes us along, after a line."""
    environment = dict(os.environ)
    if location := named_store():
        environment["PERDURE_STORE"] = location
    began_at = clock.wall_seconds()
    with _passing_on() as child:
        process = subprocess.Popen([sys.executable, path, *arguments], env=environment)  # noqa: S603 - what was named
        child.append(process)
        code = process.wait()
    if code >= 0:
        return code
    _say_killed(path, -code, process.pid, began_at)
    _die_alike(-code)
    return 128 - code


@contextlib.contextmanager
def _passing_on() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Meanwhile signals do not end us: what is sent to us goes to the script, once it is there."""
    child: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, frame: Any) -> None:  # noqa: ANN401 - the interpreter's
        del frame
        if not child:
            early.append(number)
        elif number not in shared or not _from_terminal():
            child[0].send_signal(number)

    shared = [getattr(signal, name) for name in _ALREADY_THERE]
    numbers = [getattr(signal, name) for name in (*_PASSED_ON, *_ALREADY_THERE) if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # whoever started us wants it ignored, by the script as well
            signal.signal(number, pass_on)
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
