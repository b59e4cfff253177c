"""How a bug is planted: parts of perdure are replaced, and put back where the bug is to be gone again.

Importing `tests.planted.NAME` plants that bug for the life of the process, which is how a child of a campaign gets it
(`--setup tests.planted.NAME`). A test that needs it for a while, in its own process, uses `planted`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

_replaced: list[tuple[Any, str, Any]] = []


def replace(owner: Any, name: str, planted: Any) -> Any:
    """Put something wrong in the place of a part of perdure; what was there."""
    right = vars(owner)[name]
    _replaced.append((owner, name, right))
    setattr(owner, name, planted)
    return right


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """This bug is there inside the block, and nowhere else."""
    module = f"tests.planted.{name}"
    before = len(_replaced)
    importlib.import_module(module)
    try:
        yield
    finally:
        while len(_replaced) > before:
            owner, part, right = _replaced.pop()
            setattr(owner, part, right)
        sys.modules.pop(module, None)
