"""What a step raises is recorded: the first run and every replay see the same exception."""

from __future__ import annotations

import asyncio
import enum
import functools
import json
from typing import Any

import pytest

import perdure
from perdure.errors import StepFailed, UnstorableValue
from perdure.records import Kind
from tests.engine.journals import bodies_of, records_of, state_of
from tests.engine.world import world


class Unbooked(Exception):
    pass


class Overbooked(Exception):
    """Makes its message from what it is given, as many exceptions do."""

    def __init__(self, flight: str, seats: int) -> None:
        super().__init__(f"flight {flight} lacks {seats} seats")
        self.seats = seats


class Told(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Level(enum.Enum):
    LOW = 1


def _unknown() -> Exception:
    class Hidden(Exception):
        pass

    return Hidden("inside")


def _missing_file() -> Exception:
    try:
        open("/nowhere/at/all")  # noqa: PTH123, SIM115 - the exception of the builtin itself
    except OSError as error:
        return error
    raise AssertionError


REBUILT: dict[str, Exception] = {
    "builtin": ValueError("no such flight"),
    "builtin with a key": KeyError("flight"),
    "builtin with plain arguments": OSError(5, "Input/output error"),
    "builtin with a file name": _missing_file(),
    "builtin without arguments": RuntimeError(),
    "decoding": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "own": Unbooked("seat 12", 3),
    "own with its own message": Told(7),
    "own with other parameters": Overbooked("LH 1", 2),
    "of a module that is imported": json.JSONDecodeError("no value", "", 0),
    "of a module that is imported, from deeper in it": asyncio.QueueFull("3 wait"),
    "text of any kind": ValueError("ümläut \x00 \U0001f600"),
}
REPLACED: dict[str, tuple[Exception, str]] = {
    "a class nobody can name": (_unknown(), "Hidden: inside"),
    "arguments that cannot be stored": (Unbooked(object()), "Unbooked: <object object"),
}


@perdure.step
def fails_mutely() -> None:
    raise Mute("x")


@perdure.step
def fails(case: str) -> None:
    world.note("performed")
    if case in REBUILT:
        raise REBUILT[case]
    raise REPLACED[case][0]


@perdure.agent
def agent(case: str) -> list[str]:
    try:
        fails(case)
    except Exception as error:  # noqa: BLE001 - what it is, is the point
        found = [type(error).__qualname__, str(error), *map(repr, error.args)]
    world.note(" | ".join(found).replace("\n", " ").replace("\x00", ""))
    world.moment("caught")
    return found


@pytest.mark.parametrize("case", REBUILT)
def test_a_class_the_step_can_name_comes_back_with_its_message(case: str) -> None:
    world.killed_at("caught", lambda: perdure.run(agent, case, run_id="r"))
    assert perdure.run(agent, case, run_id="r")[:2] == [type(REBUILT[case]).__qualname__, str(REBUILT[case])]
    performed, first_run, replay = world.lines
    assert performed == "performed"
    assert first_run == replay


@pytest.mark.parametrize("case", REPLACED)
def test_anything_else_comes_back_as_step_failed_naming_it(case: str) -> None:
    world.killed_at("caught", lambda: perdure.run(agent, case, run_id="r"))
    kind, message = perdure.run(agent, case, run_id="r")[:2]
    assert kind == "StepFailed"
    assert REPLACED[case][1] in message
    assert world.lines[1] == world.lines[2]


def test_a_decorated_step_can_name_what_its_own_code_can() -> None:
    """A decorator of another module has other names around it."""
    elsewhere: dict[str, Any] = {"functools": functools}
    exec("def decorated(f): return functools.wraps(f)(lambda *args: f(*args))", elsewhere)  # noqa: S102

    def fails(seat: str) -> None:
        raise Unbooked(seat, 3)

    step = perdure.step(elsewhere["decorated"](fails))

    @perdure.agent
    def agent() -> str:
        try:
            step("seat 12")
        except Unbooked as error:
            return str(error)
        return "booked"

    assert perdure.run(agent) == str(Unbooked("seat 12", 3))


def test_an_exception_that_cannot_be_printed_fails_the_run_like_any_other() -> None:
    @perdure.agent
    def agent() -> None:
        fails_mutely()

    with pytest.raises(Mute):
        perdure.run(agent, run_id="r")
    assert state_of("r") == "failed"


def test_step_failed_says_how_to_catch_the_class_itself() -> None:
    @perdure.agent
    def agent() -> None:
        fails("a class nobody can name")

    with pytest.raises(StepFailed) as caught:
        perdure.run(agent)
    assert "import it, or its module, in the module that defines fails" in caught.value.hint


def test_the_original_exception_is_the_cause_at_the_first_run() -> None:
    @perdure.agent
    def agent() -> None:
        fails("own")

    with pytest.raises(Unbooked) as caught:
        perdure.run(agent)
    assert caught.value.__cause__ is REBUILT["own"]


def test_the_traceback_is_kept_for_whoever_looks_at_the_run() -> None:
    with pytest.raises(ValueError, match="no such flight"):
        perdure.run(_uncaught, run_id="r")
    assert "raise REBUILT[case]" in bodies_of("r", Kind.STEP)[0].failure.trace


@perdure.agent
def _uncaught() -> None:
    fails("builtin")


def test_a_caught_failure_replays_and_the_run_goes_on_from_it() -> None:
    @perdure.step
    def fallback() -> str:
        world.note("fallback")
        return "fallback"

    @perdure.agent
    def agent() -> str:
        try:
            fails("builtin")
        except ValueError:
            found = fallback()
        world.moment("after")
        return found

    world.killed_at("after", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == "fallback"
    assert world.lines == ["performed", "fallback"]


def test_a_result_that_cannot_be_stored_fails_the_step_and_not_only_the_replay() -> None:
    @perdure.step
    def holds_a_lock() -> Any:
        world.note("performed")
        return {"client": object()}

    @perdure.agent
    def agent() -> str:
        with pytest.raises(UnstorableValue) as caught:
            holds_a_lock()
        return f"{caught.value.message} | {caught.value.safe} | {caught.value.hint}"

    message = perdure.run(agent, run_id="r")
    assert "Step 1 (holds_a_lock) cannot be saved: result.client is an object" in message
    assert "return plain data" in message
    assert records_of("r", Kind.STEP) == []


def test_a_step_returns_what_a_replay_will_return() -> None:
    @perdure.step
    def returns_a_tuple() -> list[int]:
        return (1, 2)  # type: ignore[return-value]

    @perdure.step
    def returns_an_enum() -> Level:
        return Level.LOW

    @perdure.agent
    def agent() -> list[Any]:
        found = [repr(returns_a_tuple()), repr(returns_an_enum())]
        world.moment("after")
        return found

    world.killed_at("after", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == ["[1, 2]", repr(Level.LOW)]
    assert perdure.run(agent, run_id="new") == ["[1, 2]", repr(Level.LOW)]
    assert state_of("r") == "completed"
