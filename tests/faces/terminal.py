"""Commands on a terminal of their own, with or without somebody who types."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Any

from tests import warm

SECONDS = 60


def typed(place: Any, arguments: list[str], keys: bytes, *, code: int = 0) -> str:
    """What a command shows on a terminal on which somebody types."""
    return _shown(place, arguments, keys, code, {})


def on_a_terminal(place: Any, *arguments: str, **environment: str) -> str:
    """What a command shows on a terminal on which nobody types."""
    return _shown(place, list(arguments), None, None, environment)


def _shown(place: Any, arguments: list[str], keys: bytes | None, code: int | None, environment: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    process = warm.Popen(
        [sys.executable, "-P", "-m", "perdure", *arguments],
        cwd=place.folder,
        env={**place.environment, "TERM": "xterm-256color", **environment},
        stdin=subprocess.DEVNULL if keys is None else theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    if keys is not None:
        os.write(ours, keys)
    told = b""
    try:
        while chunk := os.read(ours, 65536):
            told += chunk
    except OSError:
        pass  # the terminal ends with its last process
    ended = process.wait(SECONDS)
    os.close(ours)
    assert code is None or ended == code, told.decode()
    return told.decode()


def line_after_tab(place: Any, line: str) -> str:
    """What stands on the line of a bash that knows this `completion.bash`, once somebody typed this and pressed Tab."""
    opening = place.folder / ".opening"
    opening.write_text(
        "source completion.bash\n"
        'bind "set bell-style none"\n'
        'bind -x \'"\\C-g": echo "line=[$READLINE_LINE]"; exit\'\n'
        "PS1='ready> '\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", str(opening), "-i"],
        cwd=place.folder,
        env={**place.environment, "TERM": "dumb", "INPUTRC": os.devnull, "COLUMNS": "200"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    told = ""
    try:
        while "ready> " not in told:
            told += os.read(ours, 65536).decode()
        os.write(ours, f"{line}\t\a".encode())
        while "]" not in told.partition("line=[")[2]:
            told += os.read(ours, 65536).decode()
    finally:
        process.kill()
        process.wait(SECONDS)
        os.close(ours)
    return told.partition("line=[")[2].partition("]")[0]
