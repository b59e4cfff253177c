"""`perdure answer`: a person answers the open question of a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.control import tell_next
from perdure.cli.options import by_option, commands, json_value, looking, run_argument, store_option
from perdure.cli.question import tell_question
from perdure.cli.runs import current_run
from perdure.cli.screen import bold, dim, say
from perdure.engine import control
from perdure.errors import UsageError
from perdure.replay import Journal
from perdure.status import OpenWait, open_waits
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from perdure.records import Run

_MISSING = object()


@click.command()
@run_argument(required=True)
@click.argument("answer", required=False)
@click.option("--json", "as_json", metavar="JSON", help="The answer as JSON: for a form.")
@click.option("--question", metavar="N|TEXT", help="Which of several: its number in the inbox, or part of its text.")
@by_option
@store_option
def answer(run: str, answer: str | None, *, as_json: str | None, question: str | None, by: str) -> None:
    """Answer the open question of RUN: ANSWER is one of its choices, or the text; a form is answered with --json.

    Without an answer the question is shown, and asked where there is a terminal. The first answer counts. The run goes
    on where a process waits for it, else with `perdure resume`.
    """
    value = _value(answer, as_json)
    wanted = int(question) if question is not None and question.isdecimal() else question
    with looking() as store:
        found = current_run(store, run)
        waits = open_waits(store, found, Journal(store.load_journal(found.run_id)))
    chosen = _chosen(waits, wanted)
    if chosen is not None:
        say(f"{bold(legible(found.name))}  {legible(found.agent)} asks")
        tell_question(chosen)
    if value is _MISSING:
        value = _asked_for(found, waits, chosen)
    picked = chosen.question_number if chosen is not None else wanted
    control.answer(found.run_id, value, question=picked, by=by)
    say(f"  {bold('answered')}{f' by {legible(by)}' if by else ''}")
    _tell_others(found, waits, picked)


def _value(text: str | None, as_json: str | None) -> Any:  # noqa: ANN401 - the answer
    if text is not None and as_json is not None:
        raise UsageError(
            "ANSWER and --json exclude each other.", safe="nothing was recorded.", hint="perdure answer RUN ANSWER"
        )
    if as_json is not None:
        return json_value(as_json, of="--json")
    return _MISSING if text is None else text


def _chosen(waits: list[OpenWait], wanted: str | int | None) -> OpenWait | None:
    """The question that is meant, where that is clear; otherwise the refusal says what there is."""
    questions = [wait for wait in waits if wait.opened.question is not None]
    if isinstance(wanted, int):
        numbered = [wait for wait in questions if wait.question_number == wanted]
        if numbered:
            return numbered[0]
    texts = [wait for wait in questions if wanted is None or _is_in(str(wanted), wait)]
    return texts[0] if len(texts) == 1 else None


def _is_in(text: str, wait: OpenWait) -> bool:
    return wait.opened.question is not None and text in wait.opened.question.text


def _asked_for(run: Run, waits: list[OpenWait], chosen: OpenWait | None) -> Any:  # noqa: ANN401 - the answer
    """The answer typed on a terminal; without one, how to give it."""
    question = chosen.opened.question if chosen is not None else None
    if chosen is None or question is None:
        open_ones = [wait for wait in waits if wait.opened.question is not None]
        raise UsageError(
            f"Run {run.name} has {len(open_ones) or 'no'} open questions.",
            safe="nothing was recorded.",
            hint="name one with --question N; perdure inbox lists them" if open_ones else commands()("show", run.name),
        )
    if not sys.stdin.isatty():
        raise UsageError(
            "No answer was given, and there is no terminal to ask on.",
            safe=f"nothing was recorded; run {run.name} still waits.",
            hint=commands().answer(run, chosen, waits),
        )
    typed: str = click.prompt("  answer")
    return json_value(typed, of="--json") if bytes(question.form) != b"null" else typed


def _tell_others(run: Run, waits: list[OpenWait], answered: str | int | None) -> None:
    others = [wait for wait in waits if wait.question_number not in (0, answered) and not wait.has_come]
    if not others:
        tell_next(run)
        return
    question = others[0].opened.question
    say(f"  still open: {others[0].question_number} {legible(question.text if question else '')}")
    say(f"  {dim('next:')} {commands().answer(run, others[0], waits)}")
