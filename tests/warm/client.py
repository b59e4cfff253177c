"""Has a server start a program, and ends as that ends: `python -IS client.py ADDRESS WORD…` is `python WORD…`.

For whoever starts a process by its words alone, as a shell does. It loads nothing that the program might need: that is
the server's. Signals are not passed on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

STATUS: Final = struct.Struct("i")


def ask(address: str, request: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, int]:
    """The number of the new process, and where it is told how that ended."""
    told, tells = os.pipe()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.connect(address)
            socket.send_fds(asking, [json.dumps(request).encode()], [*streams, tells])
    finally:
        os.close(tells)
    (pid,) = STATUS.unpack(os.read(told, STATUS.size))
    return pid, told


def main() -> None:
    address, *words = sys.argv[1:]
    request = {
        "arguments": [sys.executable, *words],
        "folder": os.getcwd(),  # noqa: PTH109 - a text
        "environment": dict(os.environ),
        "session": False,
        "group": -1,
    }
    _, told = ask(address, request, (0, 1, 2))
    code = os.waitstatus_to_exitcode(*STATUS.unpack(os.read(told, STATUS.size)))
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
