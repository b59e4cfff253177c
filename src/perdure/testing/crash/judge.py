"""Judging a trial: what is left is compared with the uncrashed run and with what the oracle saw."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from perdure.errors import PerdureError
from perdure.testing.crash.contents import differences, read_contents
from perdure.testing.crash.evidence import Evidence, Performed

if TYPE_CHECKING:
    from perdure.testing.crash.nursery import Ended
    from perdure.testing.crash.oracle import Account, Body
    from perdure.testing.crash.trial import Trial

RAN_OUT: Final = "time ran out"
"""How trials are counted whose clock jumped past a limit that the agent had set."""

SHOWN_CHARACTERS: Final = 400
_AROUND_CHARACTERS: Final = 30


def judge_all(trial: Trial, last: Ended) -> None:
    """Effects first; of a run that came to its end also its result, and whether one more resume changes anything."""
    is_done = trial.is_done(last)
    wandered = stray_call(trial)
    outlasted = ran_out(trial)
    if outlasted:
        trial.tally.count(RAN_OUT)
    varied = trial.reference.varies or wandered or varied_call(trial) or outlasted
    if varied:
        trial.tally.varied += not outlasted
        trial.tally.varies = trial.tally.varies or wandered
        _judge_repeats(trial)
    else:
        _judge_effects(trial, is_done=is_done)
        _judge_arguments(trial)
    _judge_resends(trial)
    if is_done:
        if varied or not trial.reference.has_result:
            trial.tally.not_compared += 1
        else:
            trial.tally.equal += judge_result(trial, last)
        _judge_values(trial, varied=varied)
        _judge_files(trial)
        _judge_again(trial, last)


def judge_result(trial: Trial, ended: Ended, *, who: str = "it") -> bool:
    """Whether a process returned what two uncrashed runs agree on; where it did not, that is a fault."""
    if trial.reference.varies or stray_call(trial) or varied_call(trial):
        return False
    expected, found = trial.reference.result, trial.result(ended)
    field = trial.reference.agreed.differs(found)
    if field:
        where = "" if field == "." else f" (in {shown(field)})"
        trial.fault("result", f"{who} returned {shown(found)} instead of {shown(expected)}{where}")
    return not field


def varied_call(trial: Trial) -> str:
    """The key of a step whose body, given the same arguments, gave another value than in the uncrashed runs.

    What comes after it may differ for that alone. A body that was given other arguments is no such step.
    """
    reference, evidence = trial.reference, _readable(trial)
    values, arguments = evidence.values(), evidence.arguments()
    for body in trial.account().bodies:
        known, key = reference.returned.get((body.name, body.key)), body.key
        is_other = body.state == "returned" and known is not None and body.value not in (None, known)
        is_kept = key in reference.values and key in values and values[key] != reference.values[key]
        if is_other and is_kept and arguments.get(key) == reference.arguments.get(key):
            return key
    return ""


def stray_call(trial: Trial) -> str:
    """A call that the uncrashed run does not make, by a process before which nothing had happened: no kill is to blame.

    The agent itself goes one way or the other then.
    """
    calls = trial.reference.calls
    made = ((body.name, body.key) for body in trial.account().bodies if body.life in trial.fresh)
    return next((f"{name}@{key}" for name, key in made if calls and (name, key) not in calls), "")


def ran_out(trial: Trial) -> str:
    """What ended because its time was over, by a clock that the trial itself set: the agent goes another way then.

    Whether a run may do so is for its author to say, and no promise of a recovery.
    """
    if not trial.clock:
        return ""
    return next(iter(sorted(_readable(trial).expired() - trial.reference.expired)), "")


def _readable(trial: Trial) -> Evidence:
    """What is committed; nothing where the store is damaged: what the process made of that is judged first."""
    try:
        return trial.evidence()
    except PerdureError:
        return Evidence()


def done_effects(bodies: list[Body]) -> tuple[Counter[tuple[str, str]], set[tuple[str, str]]]:
    """How often each effect happened, by name and key; and those whose key the outside honours."""
    done: Counter[tuple[str, str]] = Counter()
    keyed: set[tuple[str, str]] = set()
    for body in bodies:
        if body.kind == "effect":
            done[body.name, body.key] += body.state == "returned"
            if body.keyed:
                keyed.add((body.name, body.key))
    return done, keyed


def done_requests(account: Account, *, payloads: bool) -> Counter[tuple[str, ...]]:
    """How often each thing was really done to the outside."""
    done = [each for each in account.requests if each.state == "done"]
    return Counter((each.name, each.payload) if payloads else (each.name,) for each in done)


def shown(value: Any) -> str:
    """A value in an error, not too long."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _judge_effects(trial: Trial, *, is_done: bool) -> None:
    """What happened too often, and, where the run came to its end, what never did."""
    account, reference = trial.account(), trial.reference
    done, keyed = done_effects(account.bodies)
    unknown = _known_by_verdict(trial, account)
    for effect in sorted({*done, *reference.effects} - reference.asking):
        wanted = reference.effects.get(effect, 0)
        if done[effect] < wanted and effect in unknown:
            trial.tally.unjudged += is_done
        elif effect not in keyed or done[effect] < wanted:
            _judge_count(trial, f"{effect[0]} ({effect[1]})", done[effect], wanted, is_done=is_done)
    requests = done_requests(account, payloads=reference.has_payloads)
    for request in sorted({*requests, *reference.requests}):
        wanted = reference.requests.get(request, 0)
        _judge_count(trial, _named(request), requests[request], wanted, is_done=is_done)


def _judge_arguments(trial: Trial) -> None:
    """An effect on whose arguments two uncrashed runs agree is performed with those, whoever performs it.

    Where a process gives it others that nobody had killed one before, the agent itself does.
    """
    expected = trial.reference.performed
    begun = {(each.key, each.attempt) for each in trial.account().bodies if each.life in trial.fresh}
    for key, attempts in _readable(trial).performed().items():
        known = expected.get(key)
        others = [each for each in attempts if known and each.name == known.name and each.arguments != known.arguments]
        for found in others[:1]:
            if known is not None:
                trial.fault("arguments", f"{found.name}@{key} was performed {_otherwise(found, known)}")
            if (key, found.attempt) in begun:
                trial.tally.swaying.append(f"{found.name}@{key}")


def _judge_resends(trial: Trial) -> None:
    """What is asked for again under its key must be the same request: real outsides refuse a key with another one."""
    requests = trial.account().requests
    done = {(each.name, each.key): each.payload for each in requests if each.state == "done"}
    again = {(each.name, each.key): each.payload for each in requests if each.state == "known"}
    for name, key in sorted(again):
        before, after = shown(done[name, key]), shown(again[name, key])
        if done[name, key] != again[name, key]:
            trial.fault("arguments", f"{name} was asked for again under its key with {after}, not {before}")


def _judge_repeats(trial: Trial) -> None:
    """Of a run that went another way, what one call did twice; what it should have done nobody knows."""
    account, reference = trial.account(), trial.reference
    done, keyed = done_effects(account.bodies)
    for effect in sorted({*done} - reference.asking - keyed):
        _judge_count(trial, f"{effect[0]} ({effect[1]})", done[effect], max(1, reference.effects.get(effect, 0)))
    for request, number in sorted(done_requests(account, payloads=True).items()):
        if reference.has_payloads:
            _judge_count(trial, _named(request), number, max(1, reference.requests.get(request, 0)))


def _known_by_verdict(trial: Trial, account: Account) -> set[tuple[str, str]]:
    """Effects that were killed in the middle of their bodies, and that happened as their checks say.

    A body that was killed where it began did nothing, whatever its check says.
    """
    happened = _readable(trial).happened()
    return {
        (body.name, body.key)
        for body in account.bodies
        if body.kind == "effect" and body.state == "begun" and body.key in happened and not _is_unbegun(body, account)
    }


def _is_unbegun(body: Body, account: Account) -> bool:
    """Whether its process was killed where the body began."""
    places = [text.rpartition(":") for life, text in account.landed if life == body.life]
    return any(
        window == "inside_effect" and place.partition("#")[0] in (body.name, f"{body.name}@{body.key}")
        for place, _, window in places
    )


def _otherwise(found: Performed, known: Performed) -> str:
    """Both calls; of calls too long to be shown whole, where they begin to differ."""
    if found.shown != known.shown and not any(cut in each.shown for each in (found, known) for cut in ("…", "...")):
        return f"as {found.shown} instead of {known.shown}"
    pairs = enumerate(zip(found.given, known.given, strict=False))
    alike = next((at for at, (one, other) in pairs if one != other), min(len(found.given), len(known.given)))
    first = max(0, alike - _AROUND_CHARACTERS)
    parts = [each.given[first : alike + _AROUND_CHARACTERS] for each in (found, known)]
    return f"as {found.shown}: …{parts[0]}… instead of …{parts[1]}…"


def _named(request: tuple[str, ...]) -> str:
    return f"{request[0]} {shown(request[1])!r}" if len(request) > 1 else request[0]


def _judge_count(trial: Trial, effect: str, happened: int, wanted: int, *, is_done: bool = False) -> None:
    if happened > wanted == 0:
        trial.tally.repeated += happened
        trial.fault("extra", f"{effect} happened {happened} times, and never without a kill")
    elif happened > wanted:
        trial.tally.repeated += happened - wanted
        trial.fault("repeated", f"{effect} happened {happened} times instead of {wanted}")
    elif happened < wanted and is_done:
        trial.tally.lost += wanted - happened
        trial.fault("lost", f"{effect} happened {happened} times instead of {wanted}")


def _judge_values(trial: Trial, *, varied: str) -> None:
    """What was recorded before a kill is there afterwards; all else is as in the uncrashed run, if that can be said."""
    values = trial.evidence().values()
    expected = {} if varied else trial.reference.values
    for key, value in expected.items():
        if values.get(key) != value:
            trial.fault("values", f"{key} is recorded as {shown(values.get(key))} instead of {shown(value)}")
    for key, value in trial.recorded.items():
        is_failure = isinstance(value, tuple)  # a resume attempts the call anew whose failure ended the run
        if key not in expected and not is_failure and values.get(key) != value:
            trial.fault("values", f"{key} was recorded as {shown(value)}, and now as {shown(values.get(key))}")


def _judge_files(trial: Trial) -> None:
    """The files that somebody named are left as they are without a kill."""
    if not trial.options.compare:
        return
    reference, found = trial.reference, read_contents(trial.place.work, trial.options.compare)
    told = differences(reference.contents, found, varying=reference.varying_files)
    for each in told:
        trial.fault("files", each)
    trial.tally.files_equal += not told


def _judge_again(trial: Trial, last: Ended) -> None:
    """Starting a completed run again returns its result, executes nothing and writes nothing.

    A failed one is attempted again, and fails in the same way: what was completed is not executed for it.
    """
    if not trial.reference.is_quiet_again:
        return
    if trial.reference.fails:
        trial.tally.again += trial.result(trial.live()) == trial.result(last)
        return
    before, known = trial.evidence().marks(), trial.account()
    again = trial.live()
    after = trial.account()
    did = _ended_otherwise(trial, again, last)
    did += [f"{body.name} ({body.key}) was executed" for body in after.bodies[len(known.bodies) :]]
    did += [f"{each.name} was done to the outside" for each in after.requests[len(known.requests) :]]
    if trial.evidence().marks() != before:
        did.append("something was written to the store")
    for each in did:
        trial.fault("again", each)
    trial.tally.again += not did


def _ended_otherwise(trial: Trial, again: Ended, last: Ended) -> list[str]:
    """What the end of a completed run that was started again has that the first one had not.

    A result that is recorded is the same for ever; a line that a script prints need not be.
    """
    if not trial.is_done(again):
        return [f"it did not come to its end: {trial.ending(again)}"]
    before, found = trial.result(last), trial.result(again)
    is_recorded = trial.bench.subject.kind == "agent" or bool(trial.evidence().results())
    if before == found or not is_recorded:
        return []
    return [f"it returned {shown(found)}, and {shown(before)} before"]
