"""What the campaigns of a test run really did: each notes its counts, and one table at the end sums them up.

The notes are lines of one file, which all processes of the run append to; the one that was started by hand reads it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NOTES: Final = "CAMPAIGN_NOTES"
_NUMBERS: Final = {
    "trials": "trials",
    "planned": "planned",
    "in effects": "in_effect",
    "in doubt": "in_doubt",
    "re-run": "rerun",
    "repeated": "repeated",
    "lost": "lost",
    "wrong": "wrong",
}
"""The columns of the table that are numbers, and the field of a note that each shows."""

_HEADS: Final = ("campaign", *_NUMBERS, "faults landed")


@dataclass(frozen=True)
class Note:
    """What one campaign counted."""

    campaign: str
    trials: int
    landed: Mapping[str, int]
    """Faults that really happened, by kind."""
    planned: int
    in_effect: int = 0
    """Those that landed while an effect was under way."""
    in_doubt: int = 0
    """Reported, and settled by a check or a person: no loss."""
    rerun: int = 0
    repeated: int = 0
    lost: int = 0
    wrong: int = 0
    """Everything else that was not as promised."""

    @property
    def losses(self) -> int:
        return self.rerun + self.repeated + self.lost + self.wrong


def begin() -> None:
    """Let this process, and all it starts, note into one file."""
    if NOTES not in os.environ:
        os.environ[NOTES] = str(Path(tempfile.mkdtemp(prefix="campaign-notes-")) / f"{os.getpid()}")


def note(campaign: str, *, landed: Mapping[str, int], **counts: int) -> None:
    """Add the counts of a campaign; outside a test run nobody reads them. One in which no fault landed has failed."""
    path = os.environ.get(NOTES)
    if path:
        line = json.dumps({"campaign": campaign, "landed": dict(landed), **counts}) + "\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)
    assert sum(landed.values()) > 0, f"{campaign}: 0 faults landed, which proves nothing"


def end() -> list[Note]:
    """Everything that was noted, one note a campaign, to the process that began it; the file is gone afterwards."""
    path = Path(os.environ.get(NOTES, ""))
    if path.name != f"{os.getpid()}":
        return []
    del os.environ[NOTES]
    if not path.exists():
        path.parent.rmdir()
        return []
    notes: dict[str, list[Note]] = {}
    for line in path.read_text().splitlines():
        each = Note(**json.loads(line))
        notes.setdefault(each.campaign, []).append(each)
    shutil.rmtree(path.parent)
    return [summed(notes[campaign], campaign) for campaign in sorted(notes)]


def table(notes: list[Note]) -> Iterator[str]:
    """The notes as lines, with their sum."""
    rows = [_HEADS, *(_row(each) for each in [*notes, summed(notes)])]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADS))]
    for number, row in enumerate(rows):
        first, *numbers, last = zip(row, widths, strict=True)
        shown = (first[0].ljust(first[1]), *(text.rjust(width) for text, width in numbers), last[0])
        yield "  ".join(shown)
        if number in (0, len(rows) - 2):
            yield "  ".join("-" * width for width in widths)


def verdict(notes: list[Note], *, failed: int) -> str:
    """What it comes to. A test that failed may have found a loss before it could count it."""
    total = summed(notes)
    landed = f"{sum(total.landed.values()):,} faults landed, {total.in_effect:,} of them inside effects"
    losses = f"{total.losses:,} losses found"
    return f"{landed}; {losses}" + (f", and {failed:,} tests failed" if failed else "")


def summed(notes: list[Note], campaign: str = "in all") -> Note:
    """Several notes as one."""
    counts = {name: sum(getattr(each, name) for each in notes) for name in _NUMBERS.values()}
    landed: dict[str, int] = {}
    for each in notes:
        for kind, count in each.landed.items():
            landed[kind] = landed.get(kind, 0) + count
    return Note(campaign, landed=landed, **counts)


def _row(each: Note) -> tuple[str, ...]:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(each.landed.items()) if count)
    numbers = (f"{getattr(each, name):,}" for name in _NUMBERS.values())
    return (each.campaign, *numbers, kinds or "none")
