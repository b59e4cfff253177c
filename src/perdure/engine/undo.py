"""Taking effects back: those with an `undo` are undone, newest first, and each undoing is an effect itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.engine.call import Prepared
from perdure.engine.effect import effect_flow
from perdure.engine.scope import Frame, Scope
from perdure.replay import Replayed

if TYPE_CHECKING:
    from collections.abc import Generator

    from perdure.engine.active import Active
    from perdure.engine.drive import Operation

_SCOPE = "undo"


def undo_flow(active: Active) -> Generator[Operation, Any, int]:
    """Undo what this execution's effects did; how many were taken back."""
    count = 0
    for prepared, value in reversed(list(active.undoable)):
        inverse = prepared.spec.inverse(prepared.call.key)
        undoing = Prepared(inverse, Frame(active, Scope(_SCOPE)), (value, *prepared.args), prepared.kwargs)
        if isinstance(undoing.decision, Replayed):
            undoing.recorded(undoing.decision.done)
        else:
            yield from effect_flow(undoing)
        count += 1
    return count
