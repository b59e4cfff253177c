"""Rows of steps per second beside the raw limit of the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.laboratory import Entry, Laboratory, Outcome, Sizes
from benchmarks.report import Budget, PerStep, Row


@dataclass(frozen=True, slots=True)
class Limit:
    """The smallest share of the raw limit that is good enough."""

    text: str
    at_least: float


def rows(
    benchmark: str,
    laboratory: Laboratory,
    entries: Sequence[Entry],
    *,
    case: Callable[[Entry], str],
    limits: Mapping[str, Limit],
    sizes: Sizes,
) -> list[Row]:
    """Measure every entry; the first is the raw limit."""
    outcomes = laboratory.interleave(entries)
    raw = outcomes[entries[0].label]
    return [
        row(
            benchmark,
            entry,
            outcomes[entry.label],
            case=case(entry),
            raw=raw,
            limit=limits.get(entry.label),
            per_step=PerStep() if outcomes[entry.label].failure else laboratory.count(entry, sizes),
        )
        for entry in entries
    ]


def row(
    benchmark: str,
    entry: Entry,
    outcome: Outcome,
    *,
    case: str,
    raw: Outcome,
    limit: Limit | None,
    per_step: PerStep,
) -> Row:
    """Sum up one entry."""
    if outcome.failure or raw.failure:
        budget = Budget(limit.text, None) if limit else None
        note = outcome.failure or f"nothing to compare with: {raw.failure}"
        return Row(benchmark, case, entry.label, None, "", guarantee=entry.guarantee, budget=budget, note=note)
    ratio = outcome.ratio("per_second", raw)
    return Row(
        benchmark=benchmark,
        case=case,
        contender=entry.label,
        value=outcome.median("per_second"),
        unit="steps/s",
        ratio=ratio,
        per_step=replace(per_step, processor_us=outcome.median("processor_us")),
        guarantee=entry.guarantee,
        budget=Budget(limit.text, ratio, at_least=limit.at_least) if limit else None,
    )
