"""What `perdure run` tells the process that executes a script."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

CHILD: Final = str(Path(__file__).with_name("child.py"))
"""The file that is executed in place of the script."""


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
