"""Whether a test was told of what went wrong in a run: in one that was only started, nobody may have asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.engine import execute

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE: Final = Path(__file__).parent.parent
_EXECUTE: Final = execute.__file__


def has_reached_test(error: BaseException) -> bool:
    """Whether this exception left its run and came to code that is not ours, by `perdure.run` or by a handle.

    A traceback begins where an exception came to. One that an agent kept to itself never passed the engine; one that
    nobody asked for ended in the thread of its run.
    """
    files = list(_files(error))
    return bool(files) and _EXECUTE in files and _PACKAGE not in Path(files[0]).parents


def _files(error: BaseException) -> Iterator[str]:
    """The files of its traceback, from the outermost frame inwards."""
    entry = error.__traceback__
    while entry is not None:
        yield entry.tb_frame.f_code.co_filename
        entry = entry.tb_next
