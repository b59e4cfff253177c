"""`perdure settle`: a person says what became of an effect in doubt."""

from __future__ import annotations

import click
import msgspec
from msgspec import Raw

from perdure import clock
from perdure.cli.options import json_value, looking, run_argument, store_option, writing
from perdure.cli.runs import find_run
from perdure.cli.screen import bold, dim, say
from perdure.cli.status import Open, open_effects, resume_command, settle_command, status_of
from perdure.engine.control import who
from perdure.engine.settle import Letter
from perdure.errors import UsageError
from perdure.records import NULL, Mail, Run, RunState
from perdure.replay import Journal
from perdure.telemetry.text import legible

_NO_RESULT = "\0"
"""What click puts where --happened was given without a result: no JSON text begins with it."""


@click.command()
@run_argument(required=True)
@click.argument("step")
@click.option(
    "--happened",
    metavar="[JSON]",
    is_flag=False,
    flag_value=_NO_RESULT,
    default=None,
    help="It took place; JSON is what it returned (null where none is given).",
)
@click.option("--did-not-happen", is_flag=True, help="It did not take place: a resume performs it.")
@click.option("--fail", "fails", is_flag=True, help="Neither: the run fails at this step.")
@store_option
def settle(run: str, step: str, *, happened: str | None, did_not_happen: bool, fails: bool) -> None:
    """Say what became of an effect in doubt; STEP is its name, or its number in `perdure show RUN`."""
    letter = _letter(happened, did_not_happen=did_not_happen, fails=fails)
    with looking() as store:
        found = find_run(store, run)
        effects = open_effects(store, found, Journal(store.load_journal(found.run_id)))
        effect = _chosen(found, effects, step)
    letter = msgspec.structs.replace(letter, attempt=effect.attempt)
    if effect.letter == letter:
        say(f"{bold(found.name)}  {legible(effect.name)} was already settled like that by {legible(effect.by)}")
    else:
        _post(found, effect, letter)
        if effect.letter is not None:
            earlier = effect.letter.outcome.replace("_", " ")
            say(f"  the earlier verdict ({earlier}, by {legible(effect.by)}) was not used yet: the newest counts")
    _show_next(found, effect, effects)


def _letter(happened: str | None, *, did_not_happen: bool, fails: bool) -> Letter:
    if (happened is not None) + did_not_happen + fails != 1:
        raise UsageError(
            "Say one of: --happened [JSON], --did-not-happen, --fail.",
            safe="nothing was recorded.",
            hint="perdure settle RUN STEP --did-not-happen",
        )
    if did_not_happen:
        return Letter(outcome="did_not_happen")
    if fails:
        return Letter(outcome="fail")
    return Letter(outcome="happened", value=_result(happened or ""))


def _result(text: str) -> Raw:
    if text == _NO_RESULT:
        return NULL
    return Raw(msgspec.json.encode(json_value(text, of="--happened")))


def _chosen(run: Run, effects: list[Open], step: str) -> Open:
    matches = [effect for effect in effects if effect.name == step] or [
        effect for effect in effects if str(effect.number) == step
    ]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(f"{effect.number} {legible(effect.name)}" for effect in matches or effects)
    if matches:
        message = f"{len(matches)} effects named {legible(step)} of run {run.name} are in doubt: {known}."
        raise UsageError(message, safe="nothing was recorded.", hint="name the one you mean by its number")
    message = f"Step {legible(step)!r} of run {run.name} is not in doubt"
    raise UsageError(
        f"{message}; in doubt: {known}." if effects else f"{message}; nothing in this run is.",
        safe="nothing was recorded.",
        hint=settle_command(run, effects[0], effects) if effects else f"perdure show {run.name}",
    )


def _post(run: Run, effect: Open, letter: Letter) -> None:
    body = msgspec.json.encode(letter).decode()
    mail = Mail(0, run.run_id, "verdict", effect.key, body, legible(who()), clock.wall_seconds())
    with writing() as store:
        store.post(mail)
    outcome = {"happened": "it happened", "did_not_happen": "it did not happen", "fail": "the run fails there"}
    result = f", result {legible(bytes(letter.value).decode(), 60)}" if letter.outcome == "happened" else ""
    say(f"{bold(run.name)}  {effect.number} {legible(effect.name)}: {outcome[letter.outcome]}{result} (by {mail.by})")


def _show_next(run: Run, settled: Open, effects: list[Open]) -> None:
    others = [effect for effect in effects if effect.letter is None and effect.key != settled.key]
    if others:
        say(f"  still in doubt: {others[0].number} {legible(others[0].shown)}")
        say(f"  {dim('next:')} {settle_command(run, others[0], effects)}")
        return
    with looking() as store:
        status = status_of(store, run)
    if status.state == RunState.RUNNING:
        say(f"  {status.cause}: it takes this up when it reaches the step")
    else:
        say(f"  {dim('next:')} {resume_command(run)}")
