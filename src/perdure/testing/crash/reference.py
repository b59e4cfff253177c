"""The uncrashed run: observed twice, so that what is different by nature is not held against a crashed one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure.errors import PerdureError, StepFailed, StoreFull, UsageError
from perdure.testing.crash.agreement import Agreed
from perdure.testing.crash.contents import Contents, agreed_contents, file_stamps, read_contents
from perdure.testing.crash.evidence import Performed
from perdure.testing.crash.failing import failure_of, lacks_room, refuse_success
from perdure.testing.crash.judge import done_effects, done_requests, shown
from perdure.testing.crash.points import Point, are_at_once, is_by_chance
from perdure.testing.crash.trial import MOST_ROUNDS, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perdure.testing.crash.nursery import Ended
    from perdure.testing.crash.oracle import Account
    from perdure.testing.crash.trial import Trial


class Observation(Struct, frozen=True):
    """One uncrashed run."""

    points: tuple[Point, ...]
    result: Any
    values: dict[str, Any]
    runs: frozenset[str]
    account: Account
    seconds: float
    main: tuple[str, str]
    is_quiet_again: bool
    arguments: dict[str, str] = {}
    contents: Contents = {}
    fails: bool = False
    unsynced: bool = False
    performed: dict[str, list[Performed]] = {}
    expired: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    """The files that it made or changed in its folder."""


def observed(trial: Trial) -> Observation:
    """Run the subject to its end without a kill, and once more, and note everything."""
    points: dict[str, Point] = {}
    seconds, stamps = 0.0, file_stamps(trial.place.work)
    for _ in range(MOST_ROUNDS):
        ended = trial.live(traced=True)
        seconds += ended.seconds
        points |= {point.text: point for point in _numbered(trial.passed(ended), after=points.values())}
        if trial.is_done(ended):
            break
        if ended.is_late:
            raise _hangs(trial, ended)
        if not trial.attend().helped:
            raise _fails(trial, ended)
    else:
        raise _fails(trial, ended)
    account, evidence = trial.account(), trial.evidence()
    result, before = trial.result(ended), evidence.marks()
    runs = frozenset(evidence.results())
    main = next(iter(account.main.values()), ("", ""))
    fails = failure_of(trial, ended) is not None
    if trial.options.fails and not fails:
        raise refuse_success()
    contents = read_contents(trial.place.work, trial.options.compare)
    written = frozenset(name for name, _ in file_stamps(trial.place.work).items() - stamps.items())
    is_quiet = trial.bench.subject.kind == "agent" or _is_quiet_again(trial, account, before)
    return Observation(
        points=tuple(points.values()),
        result=result,
        values=evidence.values(),
        runs=runs,
        account=account,
        seconds=seconds,
        main=main,
        is_quiet_again=is_quiet,
        arguments=evidence.arguments(),
        contents=contents,
        fails=fails,
        unsynced=any(each.run.durability == "process" for each in evidence.runs),
        performed=evidence.performed(),
        expired=frozenset(evidence.expired()),
        written=written,
    )


def _numbered(points: tuple[Point, ...], *, after: Iterable[Point]) -> list[Point]:
    """The points of a process, counted on from those of the processes before it."""
    earlier = Counter((point.name, point.window, point.key) for point in after)
    return [
        Point(each.name, each.window, each.key, each.occurrence + earlier[each.name, each.window, each.key])
        for each in points
    ]


def _is_quiet_again(trial: Trial, known: Account, before: dict[str, Any]) -> bool:
    """Whether a script does nothing when it is started after its end; an agent's run has an id, and must not.

    One that has no run of perdure is not asked: nothing that it did is recorded, and to start it again is another run.
    """
    if not known.main:
        return False
    again, after = trial.live(), trial.account()
    counted = (len(known.bodies), len(known.requests))
    did_nothing = (len(after.bodies), len(after.requests)) == counted and trial.evidence().marks() == before
    return did_nothing and trial.is_done(again)


def compared(one: Observation, other: Observation, *, explore: Callable[..., Any]) -> Reference:
    """What two uncrashed runs agree on."""
    uses_perdure = one.main != ("", "")
    seen, seen_by_other = (
        {point.text: point for point in each.points if _counts(point, uses_perdure=uses_perdure)}
        for each in (one, other)
    )
    done, _ = done_effects(one.account.bodies)
    has_payloads = done_requests(one.account, payloads=True) == done_requests(other.account, payloads=True)
    contents, varying = agreed_contents(one.contents, other.contents)
    return Reference(
        points=tuple(point for text, point in seen.items() if text in seen_by_other),
        result=one.result,
        agreed=Agreed(one.result, other.result),
        values={key: value for key, value in one.values.items() if other.values.get(key) == value},
        arguments=one.arguments,
        calls=frozenset((body.name, body.key) for body in one.account.bodies),
        effects=dict(done),
        requests=dict(done_requests(one.account, payloads=has_payloads)),
        returned=_returned(one.account),
        asking=_asking(one.account),
        runs=one.runs,
        is_quiet_again=one.is_quiet_again and other.is_quiet_again,
        has_payloads=has_payloads,
        seconds=max(one.seconds, other.seconds),
        main=one.main,
        uses_perdure=uses_perdure,
        varies=_first_difference(one.points, other.points),
        fails=one.fails and other.fails,
        contents=contents,
        varying_files=varying,
        unsynced=one.unsynced,
        performed=_agreed_performed(one, other),
        expired=one.expired | other.expired,
        has_strands=any(one.runs | other.runs) or are_at_once(one.points) or are_at_once(other.points),
        written=tuple(sorted(one.written | other.written)),
        unstable=tuple(text for text in (*seen, *seen_by_other) if text not in seen or text not in seen_by_other),
        by_chance=tuple(
            text for text, point in (seen | seen_by_other).items() if is_by_chance(point, one.runs | other.runs)
        ),
        explore=explore,
    )


def _agreed_performed(one: Observation, other: Observation) -> dict[str, Performed]:
    """The effects that both runs performed with the same arguments, in every attempt."""
    found: dict[str, Performed] = {}
    for key, attempts in one.performed.items():
        calls = {(each.name, each.arguments) for each in (*attempts, *other.performed.get(key, []))}
        if key in other.performed and len(calls) == 1:
            found[key] = attempts[0]
    return found


def _first_difference(one: tuple[Point, ...], other: tuple[Point, ...]) -> str:
    """The first call that only one of two runs made; in which order calls are made at once does not matter."""
    calls, other_calls = (
        {f"{each.name}@{each.key}": None for each in points if each.window in ("before_step", "before_intent")}
        for points in (one, other)
    )
    return next((call for call in (*calls, *other_calls) if call not in calls or call not in other_calls), "")


def _counts(point: Point, *, uses_perdure: bool) -> bool:
    """Files are points where a script keeps its state by hand; inside the body of a step nobody could judge them."""
    is_file = point.name in FILE_NAMES and point.window in ("before", "after")
    return not (is_file and uses_perdure)


FILE_NAMES = frozenset({"open", "replace", "rename", "remove", "unlink", "truncate", "link", "symlink"})


def _returned(account: Account) -> dict[tuple[str, str], str]:
    return {(body.name, body.key): body.value for body in account.bodies if body.state == "returned" and body.value}


def _asking(account: Account) -> frozenset[tuple[str, str]]:
    """Effects that did something to the outside."""
    requests = Counter((body.name, body.key) for body in account.bodies if body.kind == "effect" and body.requests)
    return frozenset(requests)


def _hangs(trial: Trial, ended: Ended) -> UsageError:
    said = [line for line in (ended.out + ended.err).splitlines() if line.strip() and not line.startswith("perdure: ")]
    last = f"; it last said: {shown(said[-1])}" if said else ""
    return UsageError(
        f"Without any kill it does not end within {trial.options.timeout_seconds:g} s{last}.",
        safe="nothing of yours was touched.",
        hint="give it more time with --timeout SECONDS, or replace what is slow: --stub NAME=JSON, --setup FILE",
    )


def _fails(trial: Trial, ended: Ended) -> PerdureError:
    message = f"Without any kill it does not come to its end: {trial.ending(ended).removesuffix('.')}."
    safe = "nothing of yours was touched, and nothing was killed."
    if lacks_room(trial, ended):
        return StoreFull(message, safe=safe, hint="name a folder where there is room for the trials: --folder PATH")
    return StepFailed(message, safe=safe, hint=_READS_NOTHING if _EMPTY in ended.err else _MEND)


_EMPTY: Final = "EOFError"
_READS_NOTHING: Final = (
    "its standard input is empty in every trial: let it take arguments, after --, or read a file; --copy FILE puts one"
    " into its working folder"
)
_MEND: Final = (
    "mend that first; its working folder is new and empty, and so is its standard input: --copy FILE puts something"
    " there; if it is meant to fail: --expect-failure"
)
