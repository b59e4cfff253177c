"""The result: rows, their budgets, the table and the JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

HEADINGS = (
    "benchmark",
    "case",
    "contender",
    "value",
    "× raw",
    "fsyncs",
    "txns",
    "CPU µs",
    "budget",
    "",
    "guarantee, notes",
)
NUMERIC = {3, 4, 5, 6, 7}


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit that perdure set itself, and what was measured against it; None where the trials failed."""

    text: str
    measured: float | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def kept(self) -> bool:
        """Say whether there is a measurement, and it is within the limit."""
        if self.measured is None:
            return False
        enough = self.at_least is None or self.measured >= self.at_least
        return enough and (self.at_most is None or self.measured <= self.at_most)


@dataclass(frozen=True, slots=True)
class PerStep:
    """What one step costs that carries over to other disks; None where it could not be counted."""

    fsyncs: float | None = None
    transactions: float | None = None
    processor_us: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `ratio` is to the raw limit measured in the same rounds."""

    benchmark: str
    case: str
    contender: str
    value: float | None
    unit: str
    ratio: float | None = None
    per_step: PerStep | None = None
    guarantee: str = ""
    budget: Budget | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Return PASS or MISS, or nothing where no budget is set; a failed trial passes nothing."""
        if self.budget is None:
            return ""
        if self.budget.measured is None:
            return "FAILED"
        return "PASS" if self.budget.kept else "MISS"


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out in columns."""
    lines = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(laid_out(line, widths) for line in lines)


def as_json(rows: Iterable[Row], machine: dict[str, Any]) -> str:
    """Write the rows for programs."""
    return json.dumps({"machine": machine, "rows": [asdict(row) | {"verdict": row.verdict} for row in rows]}, indent=2)


def cells(row: Row) -> tuple[str, ...]:
    """Write one row as text."""
    return (
        row.benchmark,
        row.case,
        row.contender,
        "-" if row.value is None else f"{number(row.value)} {row.unit}",
        "-" if row.ratio is None else f"{row.ratio:.2f}",
        "-" if row.per_step is None else counted(row.per_step.fsyncs),
        "-" if row.per_step is None else counted(row.per_step.transactions),
        "-" if row.per_step is None or row.per_step.processor_us is None else number(row.per_step.processor_us),
        "" if row.budget is None else judged(row.budget),
        row.verdict,
        "; ".join(filter(None, (row.guarantee, row.note))),
    )


def judged(budget: Budget) -> str:
    """Write a limit and what was measured against it."""
    return f"{budget.text}: {'-' if budget.measured is None else f'{budget.measured:.2f}'}"


def counted(per_step: float | None) -> str:
    """Write a count per step; a count that was impossible here is said to be so."""
    return "not counted" if per_step is None else f"{per_step:.2f}"


def number(value: float) -> str:
    """Write a number with about three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def laid_out(line: Sequence[str], widths: Sequence[int]) -> str:
    """Pad one line; numbers are set to the right."""
    padded = (
        cell.rjust(width) if column in NUMERIC else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join(padded).rstrip()
