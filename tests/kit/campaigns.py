"""Campaigns of the modes' own agents, as tests start them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.modes import fault_words
from perdure.testing.crash.options import Options
from perdure.testing.crash.subject import agent_subject
from tests.kit import courier
from tests.summary import note

ARGUMENTS: dict[str, tuple[Any, ...]] = {"errand": ("parcel",), "rounds": ("parcel",), "thinker": (5,)}


def campaign(mode: str, agent: str, folder: Path, *, bug: str = "", **options: Any) -> Report:
    """Play a mode with one of the couriers, with a bug planted into every process where one is named."""
    subject = agent_subject(getattr(courier, agent), *ARGUMENTS[agent])
    setup = (f"tests.planted.{bug}",) if bug else ()
    chosen = Options(jobs=2, folder=str(folder), **options)
    with Laboratory(msgspec.structs.replace(subject, setup=setup), chosen) as laboratory:
        report = laboratory.campaign(mode)
    print(f"\n{described(report)}")
    return report


def described(report: Report) -> str:
    """What a campaign counted, on one line, and the first faults below."""
    tally = report.tally
    counted = (
        f"{report.mode}: {tally.trials} trials, {tally.planned} planned, {tally.landed} landed,"
        f" {tally.in_effect} inside effects, {tally.resumed} resumed, {tally.rerun} steps re-run,"
        f" {tally.repeated} repeated, {tally.lost} lost, {tally.in_doubt} in doubt, {tally.equal} equal,"
        f" {len(tally.faults)} faults, {tally.counts}"
    )
    found = [f"  {fault.kind}: {fault.what[:300]}\n    {fault.replay}" for fault in tally.faults[:8]]
    return "\n".join([counted, *found])


def note_counts(report: Report) -> None:
    """Put what a campaign of a sound agent counted into the summary of the test run."""
    tally = report.tally
    known = {"rerun": tally.rerun, "repeated": tally.repeated, "lost": tally.lost}
    note(
        f"crash kit: {report.mode}, {'PostgreSQL' if report.options.store else 'SQLite'}",
        trials=tally.trials,
        landed={fault_words(report.mode)[0]: tally.landed},
        planned=tally.planned,
        in_effect=tally.in_effect,
        in_doubt=tally.in_doubt,
        wrong=sum(fault.kind not in known for fault in tally.faults),
        **known,
    )


def expect_fine(report: Report) -> None:
    """Every promise was kept, and every fault that was planned has landed."""
    tally = report.tally
    note_counts(report)
    assert report.is_fine, described(report)
    assert tally.landed == tally.planned > 0, described(report)
    assert tally.equal == tally.again == tally.trials, described(report)


def kinds(report: Report) -> set[str]:
    """Which promises were broken."""
    return {fault.kind for fault in report.tally.faults}
