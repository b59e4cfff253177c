"""What a call means, given the journal: every case of the decision, and what must hold for any journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from perdure.bodies import Attempt, Done, Doubt, Ended, Failure, Intended, Settled, Started, write_body
from perdure.records import Kind, Record, RunState
from perdure.replay import (
    Call,
    Decision,
    Diverged,
    Fresh,
    InDoubt,
    Journal,
    Replayed,
    Verdicted,
    decide,
    is_patched,
    left_over,
    remembered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

SEARCH = Call(key=".0", name="search", arguments=b"ada", kind="step", shown="search('ada')")
SEND = Call(key=".1", name="send_email", arguments=b"ada", kind="effect", shown="send_email('ada')")
BROKEN = Failure(type="builtins.OSError", message="no route")


def record(kind: Kind, content: Struct | None = None, call: Call | None = SEARCH, **changes: Any) -> Record:
    key, name, arguments = ("", "shop:outreach", b"") if call is None else (call.key, call.name, call.arguments)
    fields: dict[str, Any] = {"seq": 0, "kind": kind, "key": key, "name": name, "arguments": arguments, "at": 5.0}
    text = write_body(content) if content is not None else "{}"
    return Record(**{**fields, "epoch": 1, "body": text, **changes})


def done(value: str = "1", **fields: Any) -> Done:
    return Done(value=Raw(value.encode()), **fields)


def intended(attempt: int = 1) -> Intended:
    return Intended(effect_key="k", attempt=attempt, arguments=Raw(b"{}"), shown=SEND.shown)


def settled(outcome: Any, attempt: int = 1) -> Settled:
    return Settled(attempt=attempt, outcome=outcome, by="ada", value=Raw(b'"sent"'))


def decided(*records: Record, call: Call = SEARCH, suspects: int = 0) -> Decision:
    return decide(Journal(records, suspects=suspects), call)


class TestStep:
    def test_without_record_is_performed(self) -> None:
        assert decided() == Fresh(attempt=1)

    def test_completed_is_replayed(self) -> None:
        assert decided(record(Kind.STEP, done("42"))) == Replayed(done("42"))

    def test_failure_raised_to_the_agent_is_replayed(self) -> None:
        failed = Done(failure=BROKEN, attempt=3)
        assert decided(record(Kind.STEP, failed)) == Replayed(failed)

    def test_failed_attempt_is_followed_by_the_next_and_not_too_early(self) -> None:
        assert decided(record(Kind.ATTEMPT, Attempt(2, BROKEN, next_at=17.5))) == Fresh(
            attempt=3, not_before=17.5, since=5.0, last=BROKEN
        )

    def test_completion_after_failed_attempts_is_replayed(self) -> None:
        found = decided(record(Kind.ATTEMPT, Attempt(1, BROKEN, next_at=9.0)), record(Kind.STEP, done("2", attempt=2)))
        assert found == Replayed(done("2", attempt=2))

    def test_suspicion_of_lost_records_does_not_hold_a_step_up(self) -> None:
        assert decided(suspects=3) == Fresh(attempt=1)


class TestEffect:
    def test_without_intent_is_performed(self) -> None:
        assert decided(call=SEND) == Fresh(attempt=1)

    def test_receipt_is_replayed(self) -> None:
        found = decided(record(Kind.INTENT, intended(), SEND), record(Kind.RECEIPT, done('"sent"'), SEND), call=SEND)
        assert found == Replayed(done('"sent"'))

    def test_intent_without_receipt_is_in_doubt(self) -> None:
        intent = record(Kind.INTENT, intended(2), SEND)
        assert decided(intent, call=SEND) == InDoubt(attempt=2, intent=intent)

    def test_doubt_says_why(self) -> None:
        intent = record(Kind.INTENT, intended(), SEND)
        doubt = record(Kind.DOUBT, Doubt(attempt=1, why="connection lost after sending"), SEND)
        found = decided(intent, doubt, call=SEND)
        assert found == InDoubt(attempt=1, intent=intent, why="connection lost after sending")

    def test_failure_that_proves_nothing_happened_allows_the_next_attempt(self) -> None:
        attempt = record(Kind.ATTEMPT, Attempt(1, BROKEN, next_at=7.0), SEND)
        assert decided(record(Kind.INTENT, intended(), SEND), attempt, call=SEND) == Fresh(
            attempt=2, not_before=7.0, since=5.0, last=BROKEN
        )

    @pytest.mark.parametrize("outcome", ["happened", "fail"])
    def test_verdict_is_acted_on(self, outcome: str) -> None:
        verdict = settled(outcome)
        records = record(Kind.INTENT, intended(), SEND), record(Kind.VERDICT, verdict, SEND)
        assert decided(*records, call=SEND) == Verdicted(verdict)

    def test_verdict_that_it_did_not_happen_allows_the_next_attempt(self) -> None:
        records = record(Kind.INTENT, intended(), SEND), record(Kind.VERDICT, settled("did_not_happen"), SEND)
        assert decided(*records, call=SEND) == Fresh(attempt=2)

    def test_new_attempt_after_a_verdict_is_in_doubt_on_its_own(self) -> None:
        second = record(Kind.INTENT, intended(2), SEND)
        found = decided(
            record(Kind.INTENT, intended(), SEND),
            record(Kind.VERDICT, settled("did_not_happen"), SEND),
            second,
            call=SEND,
        )
        assert found == InDoubt(attempt=2, intent=second)

    def test_unrecorded_effect_is_in_doubt_while_records_may_be_lost(self) -> None:
        found = decided(record(Kind.STEP, done()), call=SEND, suspects=1)
        assert isinstance(found, InDoubt)
        assert (found.attempt, found.intent) == (1, None)
        assert "lost or damaged" in found.why

    def test_recorded_effect_is_not_suspected(self) -> None:
        receipt = record(Kind.RECEIPT, done(), SEND)
        assert decided(receipt, call=SEND, suspects=5) == Replayed(done())

    def test_suspicion_is_recorded_and_stays_in_doubt(self) -> None:
        doubt = record(Kind.DOUBT, Doubt(attempt=1, why="lost", lost=True), SEND)
        assert decided(doubt, call=SEND) == InDoubt(attempt=1, intent=doubt, why="lost")


class TestDivergence:
    @pytest.mark.parametrize(
        "call",
        [
            Call(key=".0", name="fetch", arguments=b"ada", kind="step"),
            Call(key=".0", name="search", arguments=b"bob", kind="step"),
            Call(key=".0", name="search", arguments=b"ada", kind="effect"),
        ],
        ids=["other name", "other arguments", "other kind"],
    )
    def test_another_call_at_a_recorded_place_diverges_and_shows_both(self, call: Call) -> None:
        found = decided(record(Kind.STEP, done(shown="search('ada')")), call=call)
        assert found == Diverged(recorded="search('ada')", kind="step")

    @pytest.mark.parametrize("kind", [Kind.INTENT, Kind.ATTEMPT, Kind.STEP])
    def test_unfinished_calls_are_compared_as_well(self, kind: Kind) -> None:
        body = {Kind.INTENT: intended(), Kind.ATTEMPT: Attempt(1, BROKEN, next_at=1.0), Kind.STEP: done()}[kind]
        other = Call(key=".1", name="send_email", arguments=b"eve", kind="effect")
        assert isinstance(decided(record(kind, body, SEND), call=other), Diverged)

    def test_call_that_was_never_shown_is_named(self) -> None:
        found = decided(record(Kind.STEP, done()), call=Call(".0", "fetch", b"", "step"))
        assert found == Diverged(recorded="search(…)", kind="step")

    def test_left_over_records_are_found(self) -> None:
        journal = Journal([record(Kind.STEP, done()), record(Kind.RECEIPT, done(), SEND)])
        entry = left_over(journal, [".1"])
        assert entry is not None
        assert entry.name == "send_email"
        assert left_over(journal, []) is None


class TestFailedRun:
    def failed(self, *before: Record) -> Journal:
        ended = Ended(state=RunState.FAILED, failure=BROKEN, reopened=(SEARCH.key, SEND.key, "gone"))
        return Journal([*before, record(Kind.ENDED, ended, None)])

    def test_call_that_failed_the_run_is_attempted_anew(self) -> None:
        journal = self.failed(
            record(Kind.ATTEMPT, Attempt(2, BROKEN, next_at=99.0)),
            record(Kind.STEP, Done(failure=BROKEN, attempt=3)),
        )
        assert decide(journal, SEARCH) == Fresh(attempt=1)

    def test_effect_counts_its_attempts_on(self) -> None:
        journal = self.failed(record(Kind.INTENT, intended(2), SEND), record(Kind.VERDICT, settled("fail", 2), SEND))
        found = decide(journal, SEND)
        assert isinstance(found, Fresh)
        assert found.attempt == 3

    def test_reopened_call_still_compares_its_arguments(self) -> None:
        journal = self.failed(record(Kind.STEP, Done(failure=BROKEN, shown="search('ada')")))
        assert decide(journal, Call(".0", "search", b"bob", "step")) == Diverged("search('ada')", "step")

    def test_completed_calls_stand(self) -> None:
        other = Call(".7", "other", b"", "step")
        journal = self.failed(record(Kind.STEP, done("7"), other), record(Kind.STEP, Done(failure=BROKEN)))
        assert decide(journal, other) == Replayed(done("7"))

    def test_completion_after_reopening_counts(self) -> None:
        journal = self.failed(record(Kind.STEP, Done(failure=BROKEN)))
        journal.absorb(record(Kind.STEP, done("8")))
        assert decide(journal, SEARCH) == Replayed(done("8"))


class TestJournal:
    def test_knows_what_is_open_and_what_is_completed_oldest_first(self) -> None:
        calls = [Call(f".{index}", "send_email", b"", "effect") for index in range(4)]
        journal = Journal(
            [record(Kind.INTENT, intended(), call) for call in calls]
            + [record(Kind.RECEIPT, done(), calls[2]), record(Kind.VERDICT, settled("happened"), calls[1])]
        )
        assert [key for key, _ in journal.open_entries()] == [".0", ".3"]
        assert [key for key, _ in journal.completed()] == [".2"]

    def test_knows_how_the_run_began_and_ended(self) -> None:
        started = Started(agent="shop:outreach", arguments=Raw(b"{}"), code="v1")
        ended = Ended(state=RunState.COMPLETED, value=Raw(b"1"))
        journal = Journal([record(Kind.STARTED, started, None), record(Kind.ENDED, ended, None)])
        assert journal.started() == started
        assert journal.ended == ended

    def test_without_first_record_is_an_error_when_asked(self) -> None:
        with pytest.raises(ValueError, match="no first record"):
            Journal().started()

    def test_bodies_of_completed_steps_are_read_when_asked_for(self) -> None:
        journal = Journal([record(Kind.STEP, body="not json"), record(Kind.STEP, done(), SEND, key=".9")])
        assert len(list(journal.completed())) == 2
        with pytest.raises(ValueError, match="malformed"):
            decide(journal, SEARCH)

    def test_records_of_deliveries_and_repairs_say_nothing_about_calls(self) -> None:
        journal = Journal([record(Kind.DELIVERY, call=None), record(Kind.REPAIRED, call=None)])
        assert journal.entries == {}

    @pytest.mark.parametrize(
        ("key", "index", "spawned", "beyond"),
        [
            (".4", 4, {}, True),
            (".4", 5, {}, False),
            ("/work#1.0", 9, {"work": 1}, True),
            ("/work#1.0", 9, {"work": 2}, False),
            ("/work#0/deep#0.3", 9, {}, True),
            ("=tool:7", 0, {}, False),
            ("/other#0.0", 0, {"work": 5}, True),
        ],
    )
    def test_knows_what_lies_beyond_a_place(self, key: str, index: int, spawned: dict[str, int], beyond: bool) -> None:
        journal = Journal([record(Kind.STEP, done(), key=key)])
        assert (journal.beyond("", index, spawned) is not None) == beyond


class TestPatched:
    def test_new_place_runs_new_code_and_records_it(self) -> None:
        assert is_patched(Journal(), scope="", index=0, spawned={}, name="tax") == (True, ".0?tax")

    def test_recorded_mark_runs_new_code(self) -> None:
        journal = Journal([record(Kind.PATCHED, key=".0?tax"), record(Kind.STEP, done(), key=".5")])
        assert is_patched(journal, scope="", index=0, spawned={}, name="tax") == (True, "")

    def test_place_that_was_passed_before_runs_old_code(self) -> None:
        journal = Journal([record(Kind.STEP, done(), key=".0")])
        assert is_patched(journal, scope="", index=0, spawned={}, name="tax") == (False, "")


KEYS = (".0", ".1", ".2")


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str]]:
    """For each effect, what an engine may record in turn: an intent, and how it came out."""
    progress = dict.fromkeys(KEYS, "new")
    history: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 12))):
        key = draw(st.sampled_from(KEYS))
        match progress[key]:
            case "new" | "attempt" | "did_not_happen":
                following = "intent"
            case "intent" | "doubt":
                following = draw(st.sampled_from(["receipt", "attempt", "doubt", "happened", "fail", "did_not_happen"]))
            case _:
                continue
        progress[key] = following
        history.append((key, following))
    return history


def replayed(history: Iterable[tuple[str, str]]) -> Journal:
    journal = Journal()
    attempts = dict.fromkeys(KEYS, 0)
    for key, what in history:
        call = Call(key, "send_email", b"ada", "effect")
        attempts[key] += what == "intent"
        bodies: dict[str, tuple[Kind, Struct]] = {
            "intent": (Kind.INTENT, intended(attempts[key])),
            "receipt": (Kind.RECEIPT, done()),
            "attempt": (Kind.ATTEMPT, Attempt(attempts[key], BROKEN, next_at=1.0)),
            "doubt": (Kind.DOUBT, Doubt(attempts[key], "why")),
        }
        kind, body = bodies.get(what) or (Kind.VERDICT, settled(what, attempts[key]))
        journal.absorb(record(kind, body, call))
    return journal


EXPECTED = {
    "receipt": Replayed,
    "happened": Verdicted,
    "fail": Verdicted,
    "intent": InDoubt,
    "doubt": InDoubt,
    "attempt": Fresh,
    "did_not_happen": Fresh,
    "new": Fresh,
}


@given(histories())
def test_effect_is_started_again_only_after_its_last_attempt_is_known_not_to_have_happened(
    history: list[tuple[str, str]],
) -> None:
    journal = replayed(history)
    for key in KEYS:
        last = next((what for other, what in reversed(history) if other == key), "new")
        started = sum(other == key and what == "intent" for other, what in history)
        found = decide(journal, Call(key, "send_email", b"ada", "effect"))
        assert type(found) is EXPECTED[last]
        if isinstance(found, Fresh):
            assert found.attempt == started + 1


@given(histories(), st.integers(0, 12))
def test_deciding_changes_nothing(history: list[tuple[str, str]], asked: int) -> None:
    journal = replayed(history)
    call = Call(KEYS[asked % 3], "send_email", b"ada", "effect")
    assert decide(journal, call) == decide(journal, call) == decide(replayed(history), call)


MIXED = (
    record(Kind.STEP, done("42")),
    record(Kind.STEP, done(blob="ab" * 32)),
    record(Kind.STEP, Done(failure=BROKEN)),
    record(Kind.ATTEMPT, Attempt(1, BROKEN, next_at=9.0)),
    record(Kind.INTENT, intended()),
    record(Kind.RECEIPT, done('"sent"')),
    record(Kind.VERDICT, settled("happened")),
    record(Kind.ENDED, Ended(RunState.FAILED, reopened=(SEARCH.key,)), None),
)
ASKED = (
    SEARCH,
    Call(SEARCH.key, "search", b"eve", "step"),
    Call(SEARCH.key, "other", b"ada", "step"),
    Call(".9", "search", b"ada", "step"),
)


@given(st.lists(st.sampled_from(MIXED), max_size=5), st.sampled_from(ASKED))
def test_what_is_remembered_is_what_would_be_decided(records: list[Record], call: Call) -> None:
    journal = Journal(records)
    decision = decide(journal, call)
    completion = decision.done if isinstance(decision, Replayed) else None
    returned = completion if completion is not None and completion.failure is None else None
    assert remembered(journal, call.key, call.name, call.arguments) == returned
