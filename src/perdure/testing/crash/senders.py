"""Inside a process under test: the oracle is told which effect a connection to the outside belongs to.

Several effects may be performed at once, and what was done to the outside must be counted for the one that did it. A
connection is given its port before it is opened, so that the oracle knows it by that port.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import Any, Final
from urllib.parse import urlsplit

from perdure.testing.crash.bodies import performing
from perdure.testing.crash.oracle import OUTSIDE
from perdure.testing.crash.trap import trap

_CONNECT: Final = "socket.connect"


def prepare() -> None:
    """Watch every connection of this process and of those that it forks; without orders nothing is done."""
    sys.addaudithook(_hear)


def _hear(event: str, details: tuple[Any, ...]) -> None:
    if event != _CONNECT or trap.orders is None or performing.get() < 0:
        return
    connection, address = details
    if not isinstance(address, tuple) or address[1] != _outside_port():
        return
    with contextlib.suppress(OSError):  # bound already: the oracle goes by the newest effect of the process then
        connection.bind(("::1" if connection.family == socket.AF_INET6 else "127.0.0.1", 0))
        port = connection.getsockname()[1]
        trap.tell(verb="connected", trial=trap.orders.trial, port=port, number=performing.get())


def _outside_port() -> int:
    return urlsplit(os.environ.get(OUTSIDE, "")).port or -1
