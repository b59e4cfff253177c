"""An answer has the shape its question asks for; what does not fit is named, field by field, before it is recorded."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

import perdure
from perdure.errors import AnswerRefused, JournalDiverged, RunWaits, UsageError
from perdure.forms import misfits, schema_of
from tests.engine.journals import state_of
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world
from tests.waits.desk import killed, mails, opened, questions, shown


@dataclass
class Address:
    street: str
    number: int


@dataclass
class Refund:
    cents: int
    reason: str = ""
    to: Address | None = None


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Order(msgspec.Struct):
    size: Size
    count: Annotated[int, msgspec.Meta(ge=1, le=9)]
    toppings: list[str] = []


class Guest(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1)
    age: int | None = pydantic.Field(default=None, ge=0)
    diet: Literal["any", "vegan"] = "any"


SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}, "note": {"type": "string", "maxLength": 5}},
    "required": ["amount"],
    "additionalProperties": False,
}
asking: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def unedited() -> None:
    asking.clear()


@perdure.agent
def agent() -> str:
    answer = perdure.ask("How?", **asking)
    world.note(repr(answer.value))
    world.moment("answered")
    return f"{type(answer.value).__name__} {answer.value!r} {answer.choice!r}"


@perdure.agent
async def agent_async() -> str:
    answer = await perdure.ask("How?", **asking)
    world.note(repr(answer.value))
    world.moment("answered")
    return f"{type(answer.value).__name__} {answer.value!r} {answer.choice!r}"


def nested() -> list[Any]:
    """Lists in lists, deeper than anybody means."""
    inner: list[Any] = []
    for _ in range(100_000):
        inner = [inner]
    return inner


def ask(form: Any, **options: Any) -> None:
    asking.update(form=form, **options)
    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")


@pytest.mark.parametrize("which", [agent, agent_async], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("form", "answer", "value"),
    [
        (SCHEMA, {"amount": 5}, {"amount": 5}),
        ({"type": "array", "items": {"type": "number"}}, [1, 2.5], [1, 2.5]),
        (Refund, {"cents": 5}, Refund(5)),
        (Refund, {"cents": 5, "to": {"street": "Elm", "number": 3}}, Refund(5, "", Address("Elm", 3))),
        (Refund, Refund(5, "late"), Refund(5, "late")),
        (Order, {"size": "small", "count": 2}, Order(Size.SMALL, 2)),
        (Order, Order(Size.LARGE, 9, ["olives"]), Order(Size.LARGE, 9, ["olives"])),
        (Guest, {"name": "ada"}, Guest(name="ada")),
        (Guest, {"name": "ada", "age": 36, "diet": "vegan"}, Guest(name="ada", age=36, diet="vegan")),
        (Guest, Guest(name="ada", age=36), Guest(name="ada", age=36)),
        (int, 5, 5),
        (bool, True, True),
        (Size, "large", Size.LARGE),
        (None, "a free text", "a free text"),
    ],
    ids=shown,
)
def test_an_answer_that_fits_comes_back_as_its_type_now_and_at_every_replay(
    which: Any, form: Any, answer: Any, value: Any
) -> None:
    asking["form"] = form
    with pytest.raises(RunWaits):
        perdure.run(which, run_id="r")
    perdure.answer("r", answer)
    world.killed_at("answered", lambda: perdure.run(which, run_id="r"))
    assert perdure.run(which, run_id="r") == f"{type(value).__name__} {value!r} ''"
    assert world.lines == [repr(value)] * 2


@pytest.mark.parametrize(
    ("form", "answer", "words"),
    [
        (SCHEMA, {}, "answer.amount is missing: an integer is expected"),
        (SCHEMA, {"amount": "5"}, 'answer.amount must be an integer, not "5"'),
        (SCHEMA, {"amount": True}, "answer.amount must be an integer, not true"),
        (SCHEMA, {"amount": 1.5}, "answer.amount must be an integer, not 1.5"),
        (SCHEMA, {"amount": 0}, "answer.amount must be at least 1, not 0"),
        (SCHEMA, {"amount": 1, "note": "too long"}, "answer.note must have at most 5 characters, not 8"),
        (SCHEMA, {"amount": 1, "more": 1}, "answer.more is unknown; known are amount, note"),
        (SCHEMA, [], "answer must be an object, not []"),
        (SCHEMA, "text", 'answer must be an object, not "text"'),
        (SCHEMA, None, "answer must be an object, not null"),
        (Refund, {"cents": 5, "to": {"street": "Elm"}}, "answer.to.number is missing: an integer is expected"),
        (Refund, {"cents": 5, "to": {"street": 1, "number": 3}}, "answer.to.street must be a string, not 1"),
        (Order, {"size": "huge", "count": 1}, 'answer.size must be one of "large", "small", not "huge"'),
        (Order, {"size": "small", "count": 10}, "answer.count must be at most 9, not 10"),
        (
            Order,
            {"size": "small", "count": 1, "toppings": ["a", 2]},
            "answer.toppings[1] must be a string, not 2",
        ),
        (Guest, {"name": ""}, "answer.name must have at least 1 characters, not 0"),
        (Guest, {"age": 1}, "answer.name is missing: a string is expected"),
        (Guest, {"name": "ada", "age": -1}, "answer.age must be at least 0, not -1"),
        (Guest, {"name": "ada", "diet": "meat"}, 'answer.diet must be one of "any", "vegan", not "meat"'),
        (int, "5", 'answer must be an integer, not "5"'),
        (None, 5, "the answer must be a text, not 5"),
        (None, {"text": "a"}, "the answer must be a text, not "),
    ],
    ids=shown,
)
def test_an_answer_that_does_not_fit_is_refused_with_the_field_and_what_was_expected(
    form: Any, answer: Any, words: str
) -> None:
    ask(form)
    with pytest.raises(AnswerRefused) as refused:
        perdure.answer("r", answer)
    assert words in refused.value.message
    assert "still waits" in refused.value.safe
    assert mails() == []
    assert state_of("r") == "waiting (human)"


def test_every_field_that_does_not_fit_is_named() -> None:
    ask(SCHEMA)
    with pytest.raises(AnswerRefused, match=r"answer\.note .*; answer\.more "):
        perdure.answer("r", {"amount": 1, "note": 2, "more": 3})


@pytest.mark.parametrize(
    "answer",
    [
        object(),
        {"amount": object()},
        [object],
        {"amount": float("nan")},
        {"amount": 1, "note": "\ud800"},
        b"x",
        nested(),
    ],
    ids=["object", "object in a dict", "class in a list", "nan", "surrogate", "bytes", "nested"],
)
def test_an_answer_that_is_no_data_is_refused(answer: Any) -> None:
    ask({"type": ["object", "number", "array"]})
    with pytest.raises(UsageError) as refused:
        perdure.answer("r", answer)
    assert refused.value.hint
    assert mails() == []


@pytest.mark.parametrize(
    "form",
    [
        {"type": "string", "contains": {}},
        {"properties": {"a": {"uniqueItems": True}}},
        {"anyOf": [{"type": "string"}, {"not": {}}]},
        {"items": {"$dynamicRef": "#a"}},
        {"$defs": {"a": {"if": {}}}},
        {"type": "text"},
        {"type": ["string", "text"]},
        {"type": 5},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "https://example.com/schema"},
        {"pattern": "("},
        {"minimum": "1"},
        {"maxLength": "5"},
        {"properties": []},
        {"properties": {"a": 5}},
        {"required": "amount"},
        {"enum": 5},
        {"anyOf": {}},
        {"items": 5},
        5,
        "string",
        object,
        lambda: None,
    ],
    ids=shown,
)
def test_a_form_that_cannot_be_checked_is_refused_when_it_is_asked(form: Any) -> None:
    asking["form"] = form
    with pytest.raises(UsageError) as refused:
        perdure.run(agent, run_id="r")
    assert refused.value.safe == "nothing was asked."
    assert refused.value.hint
    assert opened() == []


def test_an_unknown_keyword_is_named() -> None:
    asking["form"] = {"properties": {"a": {"multipleOf": 3}}}
    with pytest.raises(UsageError, match="'multipleOf', which perdure cannot check"):
        perdure.run(agent, run_id="r")


def test_a_form_that_refers_to_itself_is_checked_to_its_depth() -> None:
    form = {
        "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}, "name": {"type": "string"}}}},
        "$ref": "#/$defs/node",
    }
    ask(form)
    with pytest.raises(AnswerRefused, match=r"answer\.next\.next\.name must be a string, not 1"):
        perdure.answer("r", {"next": {"next": {"name": 1}}})
    perdure.answer("r", {"next": {"next": {"name": "a"}}})


def test_a_form_that_refers_to_itself_alone_ends() -> None:
    form = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    assert misfits(1, schema_of(form)) == ["answer is nested too deeply"]


def test_an_answer_nested_deeper_than_can_be_checked_does_not_fit() -> None:
    form = schema_of({"$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}, "$ref": "#/$defs/list"})
    answer: list[Any] = []
    for _ in range(100):
        answer = [answer]
    assert misfits(answer[0][0], form) != []
    assert misfits([[[]]], form) == []
    assert misfits([[[1]]], form) == ["answer[0][0][0] must be an array, not 1"]


def test_a_form_may_refer_to_the_whole_of_itself() -> None:
    form = schema_of({"properties": {"next": {"$ref": "#"}, "a/b": {"type": "string"}}})
    assert misfits({"next": {"next": {"a/b": 1}}}, form) == ["answer.next.next.a/b must be a string, not 1"]
    escaped = schema_of({"$defs": {"a/b": {"type": "string"}}, "$ref": "#/$defs/a~1b"})
    assert misfits(1, escaped) == ["answer must be a string, not 1"]


@pytest.mark.parametrize(
    ("form", "default"),
    [(SCHEMA, {"amount": 0}), (Refund, {"cents": "5"}), (Order, 5), (Guest, {}), (None, 5)],
    ids=shown,
)
def test_a_default_that_does_not_fit_is_refused_when_it_is_asked(form: Any, default: Any) -> None:
    asking.update(form=form, timeout="8h", default=default)
    with pytest.raises(UsageError, match="The default does not fit") as refused:
        perdure.run(agent, run_id="r")
    assert refused.value.safe == "nothing was asked."
    assert opened() == []


@pytest.mark.parametrize(
    ("form", "default", "value"),
    [
        (SCHEMA, {"amount": 1}, {"amount": 1}),
        (Refund, Refund(1), Refund(1)),
        (Order, Order(Size.SMALL, 1), Order(Size.SMALL, 1)),
        (Guest, Guest(name="ada"), Guest(name="ada")),
        (None, "later", "later"),
    ],
    ids=shown,
)
def test_a_default_that_fits_comes_back_as_its_type(
    manual_clock: ManualClock, form: Any, default: Any, value: Any
) -> None:
    ask(form, timeout="8h", default=default)
    manual_clock.pass_seconds(8 * 3600)
    assert perdure.run(agent, run_id="r") == f"{type(value).__name__} {value!r} ''"


def test_the_form_is_stored_for_whoever_looks() -> None:
    ask(Guest)
    (question,) = questions()
    assert msgspec.json.decode(bytes(question.form)) == Guest.model_json_schema()


def test_another_form_parks_the_run() -> None:
    ask(SCHEMA)
    perdure.answer("r", {"amount": 1})
    asking["form"] = {**SCHEMA, "required": []}
    with pytest.raises(JournalDiverged):
        perdure.run(agent, run_id="r")
    assert world.lines == []


def test_a_type_that_the_recorded_answer_no_longer_fits_parks_the_run() -> None:
    class Strict(pydantic.BaseModel):
        cents: int

        @pydantic.field_validator("cents")
        @classmethod
        def even(cls, cents: int) -> int:
            if cents % 2:
                raise ValueError("must be even")
            return cents

    ask(Strict)
    perdure.answer("r", {"cents": 3})
    with pytest.raises(JournalDiverged):
        perdure.run(agent, run_id="r")
    assert state_of("r") == "waiting (parked)"


def test_a_large_answer_is_stored_beside_the_journal_and_survives() -> None:
    ask(None)
    long = "text " * 50_000
    perdure.answer("r", long)
    killed("after:answer:main.0#1", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == f"str {long!r} ''"
