"""Transcripts of sessions in every store: entries in order and once, and orphan tool calls closed with what is true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure.adapters import transcripts
from perdure.adapters.transcripts import IN_DOUBT, NOT_STARTED, UNKNOWN, Call, Session
from perdure.settings import Settings
from perdure.store import open_cabinet
from perdure.store.cabinet import Cabinet

HERE = Session("project", "session")


@pytest.fixture
def cabinet(location: str) -> Iterator[Cabinet]:
    opened = open_cabinet(Settings(store=location, durability="process"))
    yield opened
    opened.close()


def entry(uuid: str, *content: dict[str, Any], role: str = "assistant", turn: str = "turn-1") -> dict[str, Any]:
    return {"type": role, "uuid": uuid, "message": {"role": role, "id": turn, "content": [*content]}}


def use(tool_use_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": tool_use_id, "name": "Bash", "input": {"command": "send"}}


def result(tool_use_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": "done"}


def append(cabinet: Cabinet, *entries: dict[str, Any], session: Session = HERE, at: int = 1) -> None:
    cabinet.write(
        lambda rows: transcripts.append(
            rows,
            session,
            entries,
            at_milliseconds=at,
            fold=lambda before: {"folded": (before or {}).get("folded", 0) + 1},
        )
    )


def note(cabinet: Cabinet, tool_use_id: str, call: Call) -> None:
    cabinet.write(lambda rows: transcripts.note_call(rows, HERE, tool_use_id, call))


def load(cabinet: Cabinet, session: Session = HERE) -> list[dict[str, Any]] | None:
    return cabinet.read(lambda rows: transcripts.load(rows, session))


def close(cabinet: Cabinet) -> list[tuple[str, str, bool]]:
    """Close what is open, and say how: the call, what is told of it, whether that is an error."""
    closing = cabinet.read(lambda rows: transcripts.orphans(rows, HERE))
    append(cabinet, *closing)
    parts = [each["message"]["content"][0] for each in closing]
    return [(part["tool_use_id"], part["content"], part["is_error"]) for part in parts]


def test_entries_come_back_in_the_order_in_which_they_came_and_once_by_their_uuid(cabinet: Cabinet) -> None:
    append(cabinet, {"type": "x", "uuid": "b"}, {"type": "title"}, {"type": "x", "uuid": "b"})
    append(cabinet, {"type": "x", "uuid": "a"}, {"type": "x", "uuid": "b"}, {"type": "title"})
    assert [found.get("uuid", found["type"]) for found in load(cabinet) or []] == ["b", "title", "a", "title"]


def test_a_session_is_listed_with_its_newest_time_and_its_summary_and_its_helpers_are_not(cabinet: Cabinet) -> None:
    append(cabinet, {"type": "x"}, at=5)
    append(cabinet, {"type": "x"}, at=7)
    append(cabinet, {"type": "x"}, session=Session("project", "session", "helpers/1"), at=9)
    append(cabinet, {"type": "x"}, session=Session("other", "session"), at=9)
    listed = cabinet.read(lambda rows: [*transcripts.heads(rows, "project")])
    assert [(name, head.at_milliseconds, head.summary) for name, head in listed] == [("session", 7, {"folded": 2})]
    assert cabinet.read(lambda rows: transcripts.parts(rows, HERE)) == ["helpers/1"]


def test_deleting_a_session_takes_all_of_it_and_nothing_else(cabinet: Cabinet) -> None:
    helper, other = Session("project", "session", "helpers/1"), Session("project", "session-2")
    for session in (HERE, helper, other):
        append(cabinet, {"type": "x"}, session=session)
    cabinet.write(lambda rows: transcripts.delete(rows, HERE))
    assert (load(cabinet), load(cabinet, helper), len(load(cabinet, other) or [])) == (None, None, 1)


def test_a_call_whose_result_never_came_is_closed_with_what_is_true_of_it(cabinet: Cabinet) -> None:
    append(
        cabinet, entry("q", role="user"), entry("a", use("over"), use("begun")), entry("b", use("never"), use("failed"))
    )
    for name, call in {
        "over": Call("Bash", {}, is_over=True, told={"stdout": "sent"}),
        "begun": Call("Bash", {}),
        "failed": Call("Bash", {}, is_over=True, is_failed=True, told="refused"),
    }.items():
        note(cabinet, name, call)
    cabinet.write(lambda rows: transcripts.watch(rows, HERE))
    assert close(cabinet) == [
        ("over", '{"stdout":"sent"}', False),
        ("begun", IN_DOUBT, True),
        ("never", NOT_STARTED, True),
        ("failed", "refused", True),
    ]
    assert close(cabinet) == []


def test_closing_entries_hang_on_each_other_behind_the_last_one(cabinet: Cabinet) -> None:
    append(cabinet, entry("a", use("one"), use("two")), {"type": "cost"})
    close(cabinet)
    first, second = (load(cabinet) or [])[-2:]
    assert (first["parentUuid"], second["parentUuid"]) == ("a", first["uuid"])


def test_a_call_of_a_session_that_nobody_watched_is_not_said_to_be_undone(cabinet: Cabinet) -> None:
    append(cabinet, entry("a", use("one")))
    assert close(cabinet) == [("one", UNKNOWN, True)]


def test_of_parallel_calls_only_those_without_a_result_are_closed(cabinet: Cabinet) -> None:
    append(cabinet, entry("a", use("one")), entry("b", use("two")), entry("c", result("one"), role="user"))
    assert [name for name, _, _ in close(cabinet)] == ["two"]


def test_a_call_that_began_and_is_in_no_transcript_is_told_in_words(cabinet: Cabinet) -> None:
    append(cabinet, entry("a", use("known")))
    for name in ("known", "lost"):
        call = Call("Bash", {"command": name})
        note(cabinet, name, call)
    told = cabinet.read(lambda rows: transcripts.untold(rows, HERE))
    assert len(told) == 1
    assert 'called Bash with {"command":"lost"}' in told[0]
    assert IN_DOUBT in told[0]


def test_a_session_of_which_nothing_was_kept_is_begun_anew_under_another_id(cabinet: Cabinet) -> None:
    def enter() -> tuple[Session, bool]:
        return cabinet.write(lambda rows: transcripts.enter(rows, HERE))

    assert enter() == (HERE, False)
    again, is_begun = enter()
    assert (again != HERE, is_begun) == (True, False)
    append(cabinet, entry("a"), session=again)
    assert enter() == enter() == (again, True)


def test_a_session_that_somebody_else_began_goes_on_under_its_own_id(cabinet: Cabinet) -> None:
    append(cabinet, entry("a"))
    assert cabinet.write(lambda rows: transcripts.enter(rows, HERE)) == (HERE, True)
