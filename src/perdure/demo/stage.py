"""What the demos share: their pace, where they die, the files that stand for the world, and a line to their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

import perdure
from perdure import clock
from perdure.settings import current_settings
from perdure.store import file_of

if TYPE_CHECKING:
    from perdure import events

MODEL_SECONDS: Final = 0.4
STEP_SECONDS: Final = 0.1

pace = 1.0
"""How long things take: 1 so that a person can watch, 0 without pauses."""

death = ""
"""Where this process is killed; nowhere where it is empty."""


def take(seconds: float) -> None:
    """Take so long, at this pace."""
    clock.sleep(seconds * pace)


def ask_model(tokens: int, dollars: float) -> None:
    """A call of the made-up model, whose tokens and dollars are as made up."""
    take(MODEL_SECONDS)
    perdure.current().spent(tokens=tokens, dollars=dollars)


def die() -> NoReturn:
    """Be killed, as any process can be: nothing is cleaned up, nobody is told."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit


def folder() -> Path:
    """Where the store is kept, and beside it what the demos did."""
    return Path(file_of(current_settings().store) or "").expanduser().absolute().parent


def write(file: str, **entry: str) -> None:
    """Do something that the world remembers: a line in a real file, on the device when this returns."""
    line = msgspec.json.encode(entry) + b"\n"
    with (folder() / file).open("ab", buffering=0) as world:
        world.write(line)
        os.fsync(world.fileno())


def written(file: str) -> list[dict[str, str]]:
    """What the world remembers; a line cut by a kill is nothing."""
    entries = []
    with contextlib.suppress(FileNotFoundError):
        for line in (folder() / file).read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                entries.append(msgspec.json.decode(line, type=dict[str, str]))
    return entries


def verdict(file: str, intent: perdure.Intent, result: str) -> perdure.Verdict:
    """Whether the world remembers this effect, which would have returned `result`."""
    has_happened = any(entry.get("key") == intent.key for entry in written(file))
    return perdure.happened(result) if has_happened else perdure.did_not_happen()


def tell(event: events.Observable) -> None:
    """One line for each event; when nobody listens any more, there is nothing left to demonstrate."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode([type(event).__name__, event]) + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(1)
