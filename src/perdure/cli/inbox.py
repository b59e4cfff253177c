"""`perdure inbox`: everything that waits for a person, oldest first, each with the command that ends the wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct

from perdure.cli.options import commands, looking, store_option
from perdure.cli.question import SHORT_LINES, tell_question
from perdure.cli.runs import every_run
from perdure.cli.screen import bold, dim, print_json, say, spread
from perdure.cli.status import status_of
from perdure.errors import PerdureError
from perdure.records import FINISHED, Run, RunState, WaitReason
from perdure.replay import Journal
from perdure.status import OpenWait, Status, open_waits
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from perdure.store.protocol import Store

_WITHOUT_QUESTIONS: Final = frozenset({WaitReason.TIME, WaitReason.SIGNAL, WaitReason.CHILD})
"""A run that also waits for a person would say so first."""


class Asking(Struct, frozen=True):
    """A run with questions that nobody has answered."""

    run: Run
    status: Status
    waits: list[OpenWait]
    questions: list[OpenWait]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@store_option
def inbox(*, as_json: bool) -> None:
    """List everything that waits for a person: questions, effects in doubt, parked runs.

    \b
    --json: {"store", "questions": [question, …], "others": [run, …]}
    question: number, run_id, name, agent, step, text, options, form, show, assignee,
              asked_at, due_at, answer (the command); times are seconds since 1970, UTC
    others:   run_id, name, agent, reason, cause, next
    """  # noqa: D301 - \b is click's mark for text that is not rewrapped
    with looking() as store:
        asking, others = _needing_a_person(store)
        if as_json:
            questions = [_question_object(each, wait) for each in asking for wait in each.questions]
            objects = [_run_object(run, status) for run, status in others]
            print_json({"store": store.location, "questions": questions, "others": objects})
            return
    if not asking and not others:
        say(f"Nothing in {store.location} waits for a person.")
    for each in asking:
        _tell(each)
    for run, status in others:
        _tell_other(run, status)


def _needing_a_person(store: Store) -> tuple[list[Asking], list[tuple[Run, Status]]]:
    asking: list[Asking] = []
    others: list[tuple[Run, Status]] = []
    for run in reversed(every_run(store)[0]):
        if run.state in FINISHED or run.state == RunState.FAILED or run.reason in _WITHOUT_QUESTIONS:
            continue
        status = status_of(store, run)
        waits = _waits(store, run)
        questions = [wait for wait in waits if wait.question_number and not wait.has_come]
        if questions:
            asking.append(Asking(run, status, waits, questions))
        if status.reason in (WaitReason.IN_DOUBT, WaitReason.PARKED):
            others.append((run, status))
    return sorted(asking, key=lambda each: each.questions[0].record.at), others


def _waits(store: Store, run: Run) -> list[OpenWait]:
    try:
        return open_waits(store, run, Journal(store.load_journal(run.run_id)))
    except PerdureError:  # a damaged run is listed with its status
        return []


def _tell(each: Asking) -> None:
    run = each.run
    asked = counted(len(each.questions), "question")
    say(spread(f"{bold(legible(run.name))}  {legible(run.agent)}", dim(asked)))
    for wait in each.questions:
        tell_question(wait, lines=SHORT_LINES)
        say(f"    {dim('next:')} {commands().answer(run, wait, each.waits)}")


def _tell_other(run: Run, status: Status) -> None:
    say(spread(f"{bold(legible(run.name))}  {legible(run.agent)}", status.words))
    if status.cause:
        say(f"    {legible(status.cause.splitlines()[0].removeprefix(f'Run {run.name}: '))}")
    say(f"    {dim('next:')} {status.next}")


def _question_object(each: Asking, wait: OpenWait) -> dict[str, Any]:
    run, question = each.run, wait.opened.question
    if question is None:
        raise TypeError(wait)
    return {
        "number": wait.question_number,
        "run_id": run.run_id,
        "name": run.name,
        "agent": run.agent,
        "step": wait.number,
        "text": question.text,
        "options": question.options,
        "form": msgspec.json.decode(bytes(question.form)),
        "show": msgspec.json.decode(bytes(question.show)),
        "assignee": question.assignee,
        "asked_at": wait.record.at,
        "due_at": wait.opened.due_at or None,
        "answer": commands().answer(run, wait, each.waits),
    }


def _run_object(run: Run, status: Status) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "name": run.name,
        "agent": run.agent,
        "reason": status.reason,
        "cause": status.cause,
        "next": status.next,
    }
