"""Which part of a long journal is told at once. Pure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure.cli.typed import whole_number
from perdure.errors import UsageError
from perdure.records import Kind
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.records import Record

SHOWN: Final = 40
"""So many moments of a long run are told at once."""

_BATCH: Final = Kind.BATCH.value
"""A plain text: ten thousand comparisons with the word of an enumeration would be felt."""


class Window(Struct, frozen=True):
    """Records in a row, and how many of those worth telling come before and after them."""

    records: Sequence[Record]
    earlier: int = 0
    later: int = 0


def newest_window(records: Sequence[Record]) -> Window:
    """The newest ones; a run that is hardly longer is told whole."""
    worth = worth_telling(records)
    earlier = len(worth) - SHOWN if len(worth) > SHOWN + SHOWN // 4 else 0
    return Window(worth[earlier:], earlier=earlier)


def window_from(records: Sequence[Record], numbers: Mapping[str, int], step: int) -> Window:
    """From the first record of this step on."""
    worth = worth_telling(records)
    start = next((at for at, record in enumerate(worth) if numbers.get(record.key) == step), None)
    if start is None:
        raise UsageError(
            f"There is no step {step}: the run has {counted(len(numbers), 'step')}.",
            safe="nothing was changed.",
            hint="--from 1 is the beginning" if numbers else "perdure show tells where it stands",
        )
    return Window(worth[start : start + SHOWN], earlier=start, later=max(0, len(worth) - start - SHOWN))


def worth_telling(records: Sequence[Record]) -> list[Record]:
    """All but the first, which the head tells; of the batches of one map in a row the last says it all."""
    pairs = itertools.zip_longest(records[1:], records[2:])
    return [
        record
        for record, following in pairs
        if record.kind != _BATCH or following is None or (following.kind, following.key) != (_BATCH, record.key)
    ]


def step_number(text: str | None, *, of: str, hint: str) -> int | None:
    """The number that was typed; None where there is none."""
    if text is None:
        return None
    number = whole_number(text)
    if number is None:
        raise UsageError(f"{of} {legible(text, 60)!r} is no number.", safe="nothing was changed.", hint=hint)
    return number
