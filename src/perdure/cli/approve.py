"""`perdure approve` and `perdure reject`: a person's yes or no to what a run asks."""

from __future__ import annotations

import click

from perdure.cli.answer import (
    Answered,
    asked,
    chosen_question,
    how_to_answer,
    note_option,
    numbered,
    question_option,
    tell_answered,
)
from perdure.cli.control import standing
from perdure.cli.options import by_option, commands, json_option, looking, run_argument, store_option
from perdure.cli.question import question_of, tell_question
from perdure.cli.screen import bad, bold, good, say
from perdure.engine import control
from perdure.errors import UsageError
from perdure.forms import approving
from perdure.records import Run
from perdure.status import OpenWait
from perdure.telemetry.text import legible

_NOTHING = "nothing was recorded."


@click.command()
@run_argument(required=True)
@click.argument("step", required=False)
@question_option
@note_option
@by_option
@json_option(Answered)
@store_option
def approve(run: str, step: str | None, *, question: str | None, note: str, by: str, as_json: bool) -> None:
    """Say yes to what RUN asks: an effect that needs approval, or a question whose choices are a yes and a no.

    STEP names one of several: the effect, or its number in `perdure show RUN`. The run goes on where a process waits
    for it, else with `perdure resume`.
    """
    _reply(run, step, question, says_yes=True, note=note, by=by, as_json=as_json)


@click.command()
@run_argument(required=True)
@click.argument("step", required=False)
@question_option
@note_option
@by_option
@json_option(Answered)
@store_option
def reject(run: str, step: str | None, *, question: str | None, note: str, by: str, as_json: bool) -> None:
    """Say no to what RUN asks; an effect that is rejected is not performed, and its agent is told why with --note."""
    _reply(run, step, question, says_yes=False, note=note, by=by, as_json=as_json)


def _reply(
    run: str, step: str | None, question: str | None, *, says_yes: bool, note: str, by: str, as_json: bool
) -> None:
    verb = "approve" if says_yes else "reject"
    found, waits = asked(run)
    chosen = _chosen(found, waits, step, question, verb)
    pair = approving(question_of(chosen))
    if pair is None:
        raise _no_yes(found, waits, chosen)
    if not as_json:
        say(f"{bold(legible(found.name))}  {legible(found.agent)} asks")
        tell_question(chosen)
    choice = pair[0] if says_yes else pair[1]
    control.answer(found.run_id, choice, question=chosen.question_number, by=by, note=note)
    if not as_json:
        word = good("approved") if says_yes else bad("rejected")
        say(f"  {word}{f' by {legible(by)}' if by else ''}{f': {legible(note)}' if note else ''}")
    tell_answered(found, waits, chosen, choice, note=note, as_json=as_json)


def _chosen(run: Run, waits: list[OpenWait], step: str | None, question: str | None, verb: str) -> OpenWait:
    """The one question that is meant; a run with none, or with several, is told what there is to type."""
    questions = [wait for wait in waits if wait.question_number]
    if not questions:
        raise _none(run)
    meant = [wait for wait in questions if step is None or _is_step(wait, step)]
    if question is not None:
        wanted = chosen_question(questions, numbered(question))
        meant = [wait for wait in meant if wait is wanted]
    if len(meant) == 1:
        return meant[0]
    with looking() as store:
        hint = commands().among(store).reply(verb, run, (meant or questions)[0], questions)
    listed = "; ".join(f"{wait.question_number}: {legible(question_of(wait).text, 60)}" for wait in meant or questions)
    how_many = len(meant) or "no"
    raise UsageError(
        f"Run {run.name} has {how_many} open questions{' like that' if step or question else ''} ({listed}).",
        safe=_NOTHING,
        hint=hint,
    )


def _is_step(wait: OpenWait, step: str) -> bool:
    return step in (str(wait.number), wait.record.name) or wait.record.name == f"approve {step}"


def _none(run: Run) -> UsageError:
    _, status = standing(run)
    return UsageError(
        f"Run {run.name} has no open question: it is {status.words}.",
        safe=_NOTHING,
        hint=status.next or commands()("show", run.name),
    )


def _no_yes(run: Run, waits: list[OpenWait], chosen: OpenWait) -> UsageError:
    question = question_of(chosen)
    expects = f"{' or '.join(map(legible, question.options))}" if question.options else "an answer in words"
    return UsageError(
        f"{legible(question.text, 200)!r} of run {run.name} expects {expects}, not a yes or a no.",
        safe=f"{_NOTHING[:-1]}; the run still waits.",
        hint=how_to_answer(run, chosen, waits),
    )
