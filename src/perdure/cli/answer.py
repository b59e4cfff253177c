"""`perdure answer`: a person answers the open question of a run."""

from __future__ import annotations

from typing import Annotated, Any

import click
import msgspec
from msgspec import Meta, Raw, Struct

from perdure.cli.contract import RunObject, run_object
from perdure.cli.control import standing, tell_next
from perdure.cli.mode import may_ask
from perdure.cli.options import (
    by_option,
    command,
    commands,
    json_option,
    looking,
    run_argument,
    store_option,
)
from perdure.cli.question import question_of, tell_question
from perdure.cli.runs import current_run
from perdure.cli.screen import bold, print_json, say, say_next
from perdure.cli.typed import json_value
from perdure.engine import control
from perdure.errors import UsageError
from perdure.records import Run
from perdure.replay import Journal
from perdure.status import OpenWait, open_waits
from perdure.telemetry.text import legible

_MISSING = object()


class Answered(Struct, frozen=True):
    """An answer that counts, and where that leaves the run."""

    question: Annotated[str, Meta(description="the question's text")]
    answer: Annotated[Raw, Meta(description="the answer: one of the choices, the text, or the form's value")]
    note: Annotated[str, Meta(description="what was written beside it")]
    still_open: Annotated[int, Meta(description="how many questions of the run nobody has answered")]
    run: Annotated[RunObject, Meta(description="the run after that")]


def question_option(command: Any) -> Any:  # noqa: ANN401 - a command, before and after
    """`--question N|TEXT`: which of several."""
    words = "Which of several: its number in the inbox, or part of its text."
    return click.option("--question", metavar="N|TEXT", help=words)(command)


def note_option(command: Any) -> Any:  # noqa: ANN401 - a command, before and after
    """`--note TEXT`: kept with the answer."""
    return click.option("--note", metavar="TEXT", default="", help="Kept with the answer, for the agent to read.")(
        command
    )


@click.command()
@run_argument(required=True)
@click.argument("answer", required=False)
@click.option("--value", metavar="JSON", help="The answer as JSON: for a form.")
@question_option
@note_option
@by_option
@json_option(Answered)
@store_option
def answer(
    run: str, answer: str | None, *, value: str | None, question: str | None, note: str, by: str, as_json: bool
) -> None:
    """Answer the open question of RUN: ANSWER is one of its choices, or the text; a form is answered with --value.

    Without an answer the question is shown, and asked where there is a terminal. The first answer counts. The run goes
    on where a process waits for it, else with `perdure resume`.
    """
    given = _value(answer, value)
    found, waits = asked(run)
    chosen = chosen_question(waits, numbered(question))
    if chosen is not None and not as_json:
        say(f"{bold(legible(found.name))}  {legible(found.agent)} asks")
        tell_question(chosen)
    if given is _MISSING:
        given = _asked_for(found, waits, chosen)
    picked = chosen.question_number if chosen is not None else numbered(question)
    control.answer(found.run_id, given, question=picked, by=by, note=note)
    if not as_json:
        say(f"  {bold('answered')}{f' by {legible(by)}' if by else ''}")
    tell_answered(found, waits, chosen, given, note=note, as_json=as_json)


def asked(wanted: str) -> tuple[Run, list[OpenWait]]:
    """The run that is meant, and what it waits for."""
    with looking() as store:
        found = current_run(store, wanted)
        return found, open_waits(store, found, Journal(store.load_journal(found.run_id)))


def how_to_answer(run: Run, wait: OpenWait, waits: list[OpenWait]) -> str:
    """The command that answers this question, of this run and no other of its name."""
    with looking() as store:
        return commands().among(store).answer(run, wait, waits)


def numbered(question: str | None) -> str | int | None:
    """What --question names: a number, or a part of the text."""
    return int(question) if question is not None and question.isdecimal() else question


def chosen_question(waits: list[OpenWait], wanted: str | int | None) -> OpenWait | None:
    """The question that is meant, where that is clear; otherwise the refusal says what there is."""
    questions = [wait for wait in waits if wait.opened.question is not None]
    if isinstance(wanted, int):
        return next((wait for wait in questions if wait.question_number == wanted), None)
    texts = [wait for wait in questions if wanted is None or wanted in question_of(wait).text]
    return texts[0] if len(texts) == 1 else None


def tell_answered(
    run: Run, waits: list[OpenWait], chosen: OpenWait | None, given: object, *, note: str, as_json: bool
) -> None:
    """End with what is still open, and how the run goes on."""
    after, status = standing(run)
    others = [wait for wait in waits if wait.question_number and wait is not chosen and not wait.has_come]
    if as_json:
        text = question_of(chosen).text if chosen is not None else ""
        value = Raw(msgspec.json.encode(given))
        print_json(Answered(text, value, note, len(others), run_object(after, status)))
    elif others:
        say(f"  still open: {others[0].question_number} {legible(question_of(others[0]).text)}")
        say_next(how_to_answer(run, others[0], waits))
    else:
        tell_next(status)


def _value(text: str | None, as_json: str | None) -> Any:  # noqa: ANN401 - the answer
    if text is not None and as_json is not None:
        raise UsageError(
            "ANSWER and --value exclude each other.", safe="nothing was recorded.", hint="perdure answer RUN ANSWER"
        )
    if as_json is not None:
        return json_value(as_json, of="--value")
    return _MISSING if text is None else text


def _asked_for(run: Run, waits: list[OpenWait], chosen: OpenWait | None) -> Any:  # noqa: ANN401 - the answer
    """The answer typed on a terminal; without one, how to give it."""
    if chosen is None:
        open_ones = [wait for wait in waits if wait.opened.question is not None]
        raise UsageError(
            f"Run {run.name} has {len(open_ones) or 'no'} open questions.",
            safe="nothing was recorded.",
            hint="name one with --question N; perdure inbox lists them" if open_ones else command("show", run.name),
        )
    if not may_ask():
        raise UsageError(
            "No answer was given, and there is no terminal to ask on.",
            safe=f"nothing was recorded; run {run.name} still waits.",
            hint=how_to_answer(run, chosen, waits),
        )
    typed: str = click.prompt("  answer", err=True)
    return json_value(typed, of="--value") if bytes(question_of(chosen).form) != b"null" else typed
