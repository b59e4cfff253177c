"""What `perdure run` tells the process that executes a script."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

CHILD: Final = str(Path(__file__).with_name("child.py"))
"""The file that is executed in place of the script."""

HASH_SEED: Final = "PYTHONHASHSEED"
"""The variable that says in which order Python puts what it hashes."""


class Order(Struct, frozen=True, omit_defaults=True):
    """What was asked of the run."""

    run_id: str | None = None
    fresh: bool = False
    resumes: bool = True
    """Whether an unfinished run of the same command may be gone on with."""
    tags: dict[str, str] = {}
    deadline: str | None = None
    strict: bool = False
    again: bool = False
    """Whether the script goes on after it was killed: what is protected has been said."""
    pardon: bool = False
    """Whether a person named the run: one that was parked for ending its processes is given another chance."""
    seeded: bool = False
    """Whether `HASH_SEED` is of our making."""


def name_of(path: str) -> str:
    """The name of the agent that a script is: its path as it was typed, without what does not tell it apart."""
    found = Path(path)
    with contextlib.suppress(ValueError):
        found = found.resolve().relative_to(Path.cwd())
    return found.as_posix()


def hash_seed(path: str, arguments: Sequence[str]) -> str:
    """A seed that the same command always has: what a script reads from a set comes in the same order after a crash."""
    digest = hashlib.sha256(msgspec.json.encode([name_of(path), *arguments])).digest()
    return str(int.from_bytes(digest[:4], "big") or 1)  # 0 would be no seed
