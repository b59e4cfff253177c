"""What a campaign tells people and programs: a table of what was counted, then each fault with its replay command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from perdure.store import shown as shown_store
from perdure.telemetry.text import counted, duration, legible
from perdure.testing.crash.contents import is_among
from perdure.testing.crash.damage import NOTES as DAMAGE_NOTES
from perdure.testing.crash.grounds import UNSYNCED
from perdure.testing.crash.judge import RAN_OUT
from perdure.testing.crash.modes import fault_words
from perdure.testing.crash.points import BOOKKEEPING
from perdure.testing.crash.tally import WORDS, Fault
from perdure.testing.crash.trial import OVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.testing.crash.campaign import Report
    from perdure.testing.crash.trial import Reference

MOST_TRIALS: Final = 5
"""So many with faults are shown one by one."""

ON_COMMAND_LINE: Final = "--json lists them all"
_NAME_COLUMNS: Final = 22
_NUMBER_COLUMNS: Final = 7
_MOST_FILES: Final = 3
_WHAT_CHARACTERS: Final = 500


class PointObject(Struct, frozen=True):
    """A point at which a run can be killed."""

    at: Annotated[str, Meta(description="the point, as --at takes it")]
    name: Annotated[str, Meta(description="the step, the effect, the verb of the store, or the file")]
    window: Annotated[str, Meta(description="which side of it")]


class Campaign(Struct, frozen=True):
    """A campaign of crashes, as programs get it."""

    target: Annotated[str, Meta(description="what was killed")]
    mode: Annotated[str, Meta(description="the mode of the campaign")]
    store: Annotated[str, Meta(description="sqlite, or the server on which each trial had a schema of its own")]
    fine: Annotated[bool, Meta(description="whether every promise was kept and at least one kill landed")]
    points: Annotated[int, Meta(description="at how many points trials began")]
    points_of_run: Annotated[int, Meta(description="how many points the uncrashed run has")]
    trials: Annotated[int, Meta(description="how many trials were played")]
    planned: Annotated[int, Meta(description="how many kills were planned")]
    landed: Annotated[int, Meta(description="how many of them landed")]
    in_effect: Annotated[int, Meta(description="how many landed between an intent and its receipt")]
    resumed: Annotated[int, Meta(description="how many trials were resumed to their end")]
    steps_rerun: Annotated[int, Meta(description="how often the body of a completed step ran again")]
    effects_repeated: Annotated[int, Meta(description="how often an effect happened once too often")]
    effects_lost: Annotated[int, Meta(description="how many effects never happened, and nobody was told")]
    effects_in_doubt: Annotated[int, Meta(description="how many were reported as in doubt, and settled by asking")]
    results_equal: Annotated[int, Meta(description="how many trials ended with the result of the uncrashed run")]
    files_equal: Annotated[int, Meta(description="how many left the files of --compare as they are without a kill")]
    results_not_compared: Annotated[
        int, Meta(description="how many could not be compared: uncrashed runs differ, or a step gave another value")
    ]
    effects_not_judged: Annotated[
        int, Meta(description="how many were killed in mid-body and happened by their checks, which nobody else knows")
    ]
    quiet_again: Annotated[int, Meta(description="how many did nothing when they were resumed once more")]
    slowest_resume_seconds: Annotated[float, Meta(description="the slowest process that resumed")]
    seconds: Annotated[float, Meta(description="how long the campaign took")]
    seed: Annotated[int, Meta(description="its seed")]
    counts: Annotated[dict[str, int], Meta(description="what its mode counted besides")]
    faults: Annotated[tuple[Fault, ...], Meta(description="everything that must not happen, and did")]
    unstable: Annotated[tuple[str, ...], Meta(description="points that only one of two uncrashed runs passed")] = ()
    varies: Annotated[str, Meta(description="the first call that only one of two uncrashed runs made")] = ""
    not_come_by: Annotated[int, Meta(description="kills planned where the run went another way: no fault")] = 0
    left_behind: Annotated[
        tuple[str, ...], Meta(description="processes that bodies left behind, and that were ended")
    ] = ()
    files_not_compared: Annotated[
        tuple[str, ...], Meta(description="files that the uncrashed run writes, and that --compare does not name")
    ] = ()
    listed: Annotated[
        tuple[PointObject, ...], Meta(description="with --dry-run, every point of the run, in order")
    ] = ()


def campaign_object(report: Report, *, listed: bool = False) -> Campaign:
    """A report as programs get it; of a dry run with its points."""
    tally = report.tally
    return Campaign(
        target=report.subject.shown or report.subject.app,
        mode=report.mode,
        store=store_of(report),
        fine=report.is_fine or listed,
        points=tally.points,
        points_of_run=len(report.reference.points),
        trials=tally.trials,
        planned=tally.planned,
        landed=tally.landed,
        in_effect=tally.in_effect,
        resumed=tally.resumed,
        steps_rerun=tally.rerun,
        effects_repeated=tally.repeated,
        effects_lost=tally.lost,
        effects_in_doubt=tally.in_doubt,
        results_equal=tally.equal,
        files_equal=tally.files_equal,
        results_not_compared=tally.not_compared,
        effects_not_judged=tally.unjudged,
        quiet_again=tally.again,
        slowest_resume_seconds=round(tally.slowest_seconds, 3),
        seconds=round(report.seconds, 3),
        seed=report.options.seed,
        counts=dict(tally.counts),
        faults=tuple(tally.faults),
        unstable=report.reference.unstable,
        varies=tally.varies or report.reference.varies,
        not_come_by=tally.unreached,
        left_behind=tuple(tally.strays),
        files_not_compared=tuple(uncompared_files(report)),
        listed=tuple(PointObject(each.text, each.name, each.window) for each in report.reference.points if listed),
    )


def text(report: Report, *, elsewhere: str = ON_COMMAND_LINE) -> str:
    """The whole report, for people; `elsewhere` says where the faults are that it has no room for."""
    return "\n".join([*table(report), *verdict(report), *faults(report, elsewhere=elsewhere)])


def table(report: Report) -> Iterator[str]:
    """What was counted."""
    tally, name = report.tally, report.subject.shown or report.subject.app
    took = duration(report.seconds)
    yield f"{legible(name)}: {report.mode}, on {store_of(report)}, {counted(tally.trials, 'trial')} in {took}"
    yield ""
    rows = list(_rows(report))
    columns = max(_NAME_COLUMNS, *(len(row[0]) for row in rows))
    for row in rows:
        yield f"  {row[0]:<{columns}}{row[1]:>{_NUMBER_COLUMNS}}" + (f"  {row[2]}" if row[2] else "")
    yield ""


def verdict(report: Report) -> Iterator[str]:
    """Whether it is fine, in one line."""
    tally = report.tally
    if not tally.landed:
        yield f"0 {fault_words(report.mode)[0]} landed of {tally.planned} planned: nothing was tested."
    elif not tally.faults:
        yield " ".join([f"Every promise was kept{_where(report)}.", *_reservations(report)])
    else:
        yield f"{counted(len(tally.faults), 'fault')}: {_kinds(tally.faults)}."
    yield from _uncompared(report)
    yield from _instability(report.reference, tally.varies)
    if tally.strays:
        yield _left_behind(tally.strays)


def faults(report: Report, *, elsewhere: str = ON_COMMAND_LINE) -> Iterator[str]:
    """Each trial with a fault: what happened, what it means, and how to see it again."""
    trials: dict[str, list[Fault]] = {}
    for fault in report.tally.faults:
        trials.setdefault(fault.folder, []).append(fault)
    for number, (folder, found) in enumerate(list(trials.items())[:MOST_TRIALS], 1):
        first = found[0]
        yield ""
        place = f"{fault_words(first.mode)[1]} at {' then '.join(first.points)}"
        where = place if first.points else f"{first.mode}, seed {first.seed}"
        yield f"  {number}. {legible(where, _WHAT_CHARACTERS)}"
        for fault in found:
            yield f"     {WORDS[fault.kind]}: {legible(' '.join(fault.what.split()), _WHAT_CHARACTERS)}"
        yield f"     seed {first.seed}, kept in {folder}"
        yield f"     replay: {first.replay}"
    if len(trials) > MOST_TRIALS:
        yield ""
        yield f"  … and {counted(len(trials) - MOST_TRIALS, 'more trial')} with faults; {elsewhere}"


def points_text(target: str, reference: Reference) -> Iterator[str]:
    """The points of a dry run, for people."""
    effects, took = counted(effects_of(reference), "effect"), duration(reference.seconds)
    yield f"{legible(target)}: {counted(len(reference.points), 'point')}, {effects}, {took} without a kill"
    yield ""
    yield from (f"  {legible(point.text)}" for point in reference.points)
    for line in _instability(reference):
        yield ""
        yield line


def effects_of(reference: Reference) -> int:
    """How many effects the uncrashed run had."""
    judged = sum(count for effect, count in reference.effects.items() if effect not in reference.asking)
    return judged + sum(reference.requests.values())


def store_of(report: Report) -> str:
    """Where the trials kept their runs, never with a password."""
    return shown_store(report.options.store) if report.options.store else "sqlite"


def _rows(report: Report) -> Iterator[tuple[str, str, str]]:
    tally = report.tally
    if tally.points:
        yield "points", f"{tally.points:,}", f"of {len(report.reference.points):,}" if _is_partial(report) else ""
    else:
        yield "seed", str(report.options.seed), ""
    word = fault_words(report.mode)[0]
    yield f"{word} planned", f"{tally.planned:,}", ""
    inside = f"{tally.in_effect:,} of them inside an effect" if tally.in_effect else ""
    yield f"{word} landed", f"{tally.landed:,}", inside
    yield "resumed to the end", f"{tally.resumed:,}", ""
    yield "steps re-run", f"{tally.rerun:,}", ""
    yield "effects repeated", f"{tally.repeated:,}", ""
    unjudged = f"{tally.unjudged:,} killed in mid-body happened, by their checks: not judged" if tally.unjudged else ""
    yield "effects lost", f"{tally.lost:,}", unjudged
    yield "effects in doubt", f"{tally.in_doubt:,}", "reported, and settled by asking" if tally.in_doubt else ""
    yield "results equal", f"{tally.equal:,}", _compared(report)
    if report.options.compare:
        yield "files equal", f"{tally.files_equal:,}", _compared_files(report)
    if not report.reference.uses_perdure:
        yield "quiet once more", "-", _NO_RESUME
    elif report.reference.is_quiet_again:
        yield "fails again alike" if report.reference.fails else "quiet once more", f"{tally.again:,}", ""
    yield "slowest resume", duration(tally.slowest_seconds), ""
    if tally.unreached:
        yield "not come by", f"{tally.unreached:,}", _UNREACHED
    for name in sorted(tally.counts, key=_place):
        yield name, f"{tally.counts[name]:,}", _NOTES.get(name, "")


_UNREACHED: Final = "the run was past it by then, or went another way, also without a kill: nothing was killed"
_OVER: Final = "its run was; to start it again begins another, unless it names a run_id"
_NO_RESUME: Final = "not tried: without perdure, to start it after its end is another run"
_NOT_QUIET: Final = "Started once more after its end it begins anew, also without a kill: that was not judged."


_NOTES: Final = {
    OVER: _OVER,
    RAN_OUT: "the clock jumped past a limit that the agent sets: what it does then was not compared",
    UNSYNCED: 'steps since the newest effect, executed again: durability="process" may lose them',
    **DAMAGE_NOTES,
}
"""What the counts of modes mean."""


def _place(name: str) -> int:
    """Where a count stands: those that are explained in their own order, after the others."""
    return 1 + list(_NOTES).index(name) if name in _NOTES else 0


_NO_EFFECTS: Final = "No effect and no request to the outside was seen: only"
_ENDS: Final = "that it comes to its end was judged."
_UNSYNCED: Final = 'Its durability="process" was judged by what that promises: effects are never lost; steps may be.'
_PARTLY: Final = "Fields in which two uncrashed runs differ were not compared."


def _is_partial(report: Report) -> bool:
    return 0 < report.tally.points < len(report.reference.points)


def _where(report: Report) -> str:
    """At how many points, where that is not all of them: one that no run came by was not judged."""
    listed, judged = len(report.reference.points), report.tally.judged
    return f" at {judged:,} of {counted(listed, 'point')}" if report.tally.points and judged < listed else ""


def _compared(report: Report) -> str:
    """How many results were compared, where that is not all of them, and why."""
    tally = report.tally
    if not tally.not_compared:
        alike = "" if report.reference.agreed.is_whole else "in the fields that two uncrashed runs agree on"
        is_same = report.reference.fails and tally.equal == tally.resumed and not alike
        return "all failed with the same error, as without a kill" if is_same else alike
    why = "a step gave another value" if report.reference.has_result else "two uncrashed runs differ"
    why = "time ran out" if report.reference.has_result and RAN_OUT in tally.counts and not tally.varied else why
    why = "the agent itself varies" if tally.varies or report.reference.varies else why
    return f"of {tally.compared:,} compared; {tally.not_compared:,} not compared: {why}"


def _compared_files(report: Report) -> str:
    """What was compared, and what of it could not be."""
    named = ", ".join(legible(path) for path in report.options.compare)
    left_out = ", ".join(legible(name) for name in report.reference.varying_files[:3])
    return f"{named}; two uncrashed runs differ in {left_out}: not compared" if left_out else named


def _reservations(report: Report) -> Iterator[str]:
    """What was not judged."""
    tally, reference = report.tally, report.reference
    if not reference.effects and not reference.requests:
        own = ["steps"] if reference.uses_perdure else []
        results = ["results" if reference.uses_perdure else "last lines"] if tally.compared else []
        judged = [*own, *results, *(["files"] if report.options.compare else [])]
        yield f"{_NO_EFFECTS} {' and '.join(judged)} were judged." if judged else f"{_NO_EFFECTS} {_ENDS}"
    elif not tally.in_effect:
        yield f"None of the {fault_words(report.mode)[0]} landed inside an effect."
    if tally.not_compared:
        yield f"{counted(tally.not_compared, 'result')} could not be compared."
    elif not reference.agreed.is_whole:
        yield _PARTLY
    if report.options.compare:
        yield f"Compared were results, recorded values, and {' and '.join(map(legible, report.options.compare))}."
    if reference.unsynced and report.mode in ("power", "kill-database"):
        yield _UNSYNCED
    if not reference.is_quiet_again and reference.uses_perdure:
        yield _NOT_QUIET


def _uncompared(report: Report) -> Iterator[str]:
    """The files that it writes and nobody asked to compare: what a kill does to them was not seen."""
    found = uncompared_files(report)
    if found:
        named = ", ".join(legible(name) for name in found[:_MOST_FILES])
        more = f" and {counted(len(found) - _MOST_FILES, 'more file')}" if len(found) > _MOST_FILES else ""
        yield f"It writes {named}{more}, and that was not compared: --compare PATH does."


def uncompared_files(report: Report) -> list[str]:
    """The files that the uncrashed run wrote in its folder, but those that were compared."""
    return [name for name in report.reference.written if not is_among(name, report.options.compare)]


def _instability(reference: Reference, varies: str = "") -> Iterator[str]:
    """What uncrashed runs do not have in common: said once, and whose doing it is."""
    found = [text for text in reference.unstable if not (_is_bookkeeping(text) or text in reference.by_chance)]
    named = ", ".join(legible(point) for point in (found or reference.unstable)[:3])
    more = ", …" if len(found or reference.unstable) > 3 else ""  # noqa: PLR2004 - as many as are named
    if varies or reference.varies:
        yield (
            "The agent itself varies: of two runs that nobody killed, only one calls"
            f" {legible(varies or reference.varies)}. What it should have done is not known then: judged is that no"
            " call did a thing twice, that what was recorded stays, and that it comes to an end."
        )
    elif found:
        yield (
            f"Two uncrashed runs differ in {counted(len(found), 'point')} ({named}{more}):"
            " the run is not deterministic, and nothing was killed there."
        )
    elif reference.unstable:
        yield (
            f"Two uncrashed runs differ in {counted(len(reference.unstable), 'write')} of their bookkeeping"
            f" ({named}{more}), as runs do that are under way at once: nothing was killed there."
        )


def _is_bookkeeping(text: str) -> bool:
    return text.rpartition(":")[0].partition("@")[0].partition("#")[0] in BOOKKEEPING


def _left_behind(strays: list[str]) -> str:
    return (
        f"{len(strays):,} × a process that a body started in a session of its own outlived its trial, and was ended:"
        f" {strays[0]}{', …' if len(set(strays)) > 1 else ''}"
    )


def _kinds(found: list[Fault]) -> str:
    kinds = list(dict.fromkeys(fault.kind for fault in found))
    return "; ".join(f"{sum(fault.kind == kind for fault in found):,} × {WORDS[kind]}" for kind in kinds)
