"""An error of ours that nobody caught prints three lines instead of a traceback, and sets its family's exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from perdure.errors import PerdureError, RunCancelled

if TYPE_CHECKING:
    from types import TracebackType

_CANCELLED_EXIT_CODE = 1


def install() -> None:
    """Put our hook before the one that is there, once."""
    before = sys.excepthook
    if getattr(before, "is_perdure", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, PerdureError):
            sys.stderr.write("\n".join(error.lines()) + "\n")
            raise SystemExit(error.exit_code)
        if isinstance(error, RunCancelled):
            sys.stderr.write(f"perdure: {error}\n")
            raise SystemExit(_CANCELLED_EXIT_CODE)
        before(kind, error, trace)

    hook.is_perdure = True  # type: ignore[attr-defined]
    sys.excepthook = hook
