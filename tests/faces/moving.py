"""What the tests of the commands that move runs share: looking at runs, and an agent whose effects are counted."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Any

_SESSION = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes its standard input the terminal that Ctrl-C comes from."""


def runs_of(place: Any) -> list[dict[str, Any]]:
    """All runs, newest first, as `perdure ls --json` gives them."""
    listed: list[dict[str, Any]] = place.perdure("ls", "--json").json()["runs"]
    return listed


def name_of(place: Any) -> str:
    """The newest run's name."""
    return str(runs_of(place)[0]["name"])


def on_terminal(place: Any, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start Python with these arguments on a terminal of its own, as a person would; the process, and the terminal."""
    agents = ("AI_AGENT", "CLAUDECODE", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _SESSION, sys.executable, *arguments],
        cwd=place.folder,
        env={name: value for name, value in place.environment.items() if name not in agents} | {"TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    return process, ours


def read_until(terminal: int, *wanted: bytes) -> bytes:
    """What a terminal shows, up to these texts, one after the other."""
    shown, rest = b"", b""
    for text in wanted:
        while text not in rest:
            more = os.read(terminal, 4096)
            assert more, shown
            shown, rest = shown + more, rest + more
        rest = rest.partition(text)[2]
    return shown


SLOW = """
    @perdure.step
    def first() -> int:
        return 1

    @perdure.step
    def wait() -> int:
        print("ready", flush=True)
        while not os.path.exists("quick"):
            time.sleep(0.01)
        return 2

    @perdure.agent
    def work() -> int:
        return first() + wait()

    if __name__ == "__main__":
        perdure.run(work)
"""
"""Waits in its second step until there is a file `quick`."""

GATED = """
    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    @perdure.effect(in_flight_seconds=0)
    def send(number: int, to: int) -> str:
        log(f"send {number} {to}")
        return f"sent {to}"

    @send.check
    def was_sent(intent: perdure.Intent) -> perdure.Verdict:
        call = f"send {intent.arguments['number']} {intent.arguments['to']}"
        lines = open("log.txt").read().splitlines() if os.path.exists("log.txt") else []
        return perdure.happened("sent") if call in lines else perdure.did_not_happen()

    @perdure.step
    def gate(number: int) -> int:
        os.write(1, f"at the gate {number}\\n".encode())  # in one piece: several threads say it
        while not os.path.exists("open"):
            time.sleep(0.01)
        return number

    @perdure.agent
    def deliver(number: int) -> str:
        send(number, 1)
        send(number, 2)
        gate(number)
        return send(number, 3)
"""
"""Sends two mails, waits at a gate until there is a file `open`, and sends a third; log.txt counts them."""
