"""Judging a trial: what is left is compared with the uncrashed run and with what the oracle saw."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from perdure.testing.crash.nursery import Ended
    from perdure.testing.crash.oracle import Account, Body
    from perdure.testing.crash.trial import Trial

SHOWN_CHARACTERS: Final = 400


def judge_all(trial: Trial, last: Ended) -> None:
    """Effects first; of a run that came to its end also its result, and whether one more resume changes anything."""
    is_done = trial.is_done(last)
    _judge_effects(trial, is_done=is_done)
    if is_done:
        _judge_result(trial, last)
        _judge_again(trial, last)


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
    for effect in sorted({*done, *reference.effects} - reference.asking):
        wanted = reference.effects.get(effect, 0)
        if effect not in keyed or done[effect] < wanted:
            _judge_count(trial, f"{effect[0]} ({effect[1]})", done[effect], wanted, is_done=is_done)
    requests = done_requests(account, payloads=reference.has_payloads)
    for request in sorted({*requests, *reference.requests}):
        wanted = reference.requests.get(request, 0)
        named = f"{request[0]} {shown(request[1])!r}" if len(request) > 1 else request[0]
        _judge_count(trial, named, requests[request], wanted, is_done=is_done)


def _judge_count(trial: Trial, effect: str, happened: int, wanted: int, *, is_done: bool) -> None:
    if happened > wanted:
        trial.tally.repeated += happened - wanted
        trial.fault("repeated", f"{effect} happened {happened} times instead of {wanted}")
    elif happened < wanted and is_done:
        trial.tally.lost += wanted - happened
        trial.fault("lost", f"{effect} happened {happened} times instead of {wanted}")


def _judge_result(trial: Trial, last: Ended) -> None:
    expected, found = trial.reference.result, trial.result(last)
    if trial.reference.has_result and found != expected:
        trial.fault("result", f"it returned {shown(found)} instead of {shown(expected)}")
    else:
        trial.tally.equal += 1
    values = trial.evidence().values()
    for key, value in trial.reference.values.items():
        if values.get(key) != value:
            trial.fault("values", f"{key} is recorded as {shown(values.get(key))} instead of {shown(value)}")


def _judge_again(trial: Trial, last: Ended) -> None:
    """Starting a completed run again returns its result, executes nothing and writes nothing."""
    if not trial.reference.is_quiet_again:
        return
    before, known = trial.evidence().marks(), trial.account()
    again = trial.live()
    after = trial.account()
    did = []
    if not trial.is_done(again) or trial.result(again) != trial.result(last):
        did.append(f"it ended otherwise: {trial.ending(again)}")
    did += [f"{body.name} ({body.key}) was executed" for body in after.bodies[len(known.bodies) :]]
    did += [f"{each.name} was done to the outside" for each in after.requests[len(known.requests) :]]
    if trial.evidence().marks() != before:
        did.append("something was written to the store")
    for each in did:
        trial.fault("again", each)
    trial.tally.again += not did
