"""Which call of a function is what a model asked for: exactly that, loosely that, or something else."""

from __future__ import annotations

import dataclasses
import inspect
import ipaddress
import re
from collections import deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.userland.arguments import Fit, fit_of, fits
from perdure.adapters.userland.likeness import same

EXACT, LOOSE, NO = Fit.EXACT, Fit.LOOSE, Fit.NO


class Connection:
    """What no model can have written."""


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Unit(StrEnum):
    METRE = "m"


class Inner(pydantic.BaseModel):
    n: int


class Query(pydantic.BaseModel):
    text: str
    limit: int = 5
    since: date | None = pydantic.Field(default=None, alias="from")
    inner: Inner | None = None
    made: datetime = pydantic.Field(default_factory=lambda: datetime.now(UTC))


class Tidy(pydantic.BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def lower(cls, value: str) -> str:
        return value.lower()


@dataclasses.dataclass
class Place:
    city: str
    country: str = "no"
    tags: list[str] = dataclasses.field(default_factory=list)


@attrs.define
class Person:
    name: str
    age: int = 3
    notes: list[str] = attrs.field(factory=list)


class Item(msgspec.Struct, rename="camel"):
    item_name: str
    count: int = 1


class Pair(NamedTuple):
    a: int
    b: int = 2


class Options(TypedDict):
    deep: bool


Row = namedtuple("Row", "x y")  # noqa: PYI024


def fit(head: str, call: str, asked: dict[str, Any] | None, **names: Any) -> Fit:
    """How a call fits what was asked of a function with this head."""
    scope: dict[str, Any] = {**globals(), **names}
    exec(f"def tool({head}): pass\ndef given(*args, **kwargs): return args, kwargs", scope)  # noqa: S102
    args, kwargs = eval(f"given({call})", scope)  # noqa: S307
    return fit_of(inspect.signature(scope["tool"]), args, kwargs, asked)


@pytest.mark.parametrize(
    ("head", "call", "asked", "expected"),
    [
        ("city", "'Oslo'", {"city": "Oslo"}, EXACT),
        ("city", "city='Oslo'", {"city": "Oslo"}, EXACT),
        ("city", "'Bergen'", {"city": "Oslo"}, NO),
        ("city", "'oslo'", {"city": "Oslo"}, NO),
        ("a, /, b, *, c", "1, 2, c=3", {"a": 1, "b": 2, "c": 3}, EXACT),
        ("a, b", "2, 1", {"a": 1, "b": 2}, NO),
        ("", "", {}, EXACT),
        ("a", "1", None, NO),
        ("a", "1, 2", {"a": 1}, NO),
        # Defaults need not be asked for, and may be.
        ("city, unit='C'", "'Oslo', 'C'", {"city": "Oslo"}, EXACT),
        ("city, unit='C'", "'Oslo'", {"city": "Oslo", "unit": "C"}, EXACT),
        ("city, unit='C'", "'Oslo'", {"city": "Oslo", "unit": "F"}, NO),
        ("city, unit='C'", "'Oslo', 'F'", {"city": "Oslo", "unit": "C"}, NO),
        ("city, unit=None", "'Oslo', None", {"city": "Oslo"}, EXACT),
        ("city, unit=None", "'Oslo'", {"city": "Oslo", "unit": None}, EXACT),
        ("path='.'", "'.'", {}, EXACT),
        ("path='.'", "'/etc'", {}, NO),
        # Collected arguments.
        ("**more", "a=1, b=2", {"a": 1, "b": 2}, EXACT),
        ("a, **more", "1, b=2", {"a": 1, "b": 2}, EXACT),
        ("*rest", "1, 2", {"rest": [1, 2]}, EXACT),
        ("*rest", "", {}, EXACT),
        ("*rest", "1, 3", {"rest": [1, 2]}, NO),
        # What no model can have written is context.
        ("client, city", "Connection(), 'Oslo'", {"city": "Oslo"}, EXACT),
        ("context, path='.'", "Connection(), '.'", {}, EXACT),
        ("deps, city", "Place('x'), 'Oslo'", {"city": "Oslo"}, EXACT),
        ("client, city", "Connection(), 'Bergen'", {"city": "Oslo"}, NO),
        # What somebody added, left out or renamed.
        ("user, status", "'ann', 'open'", {"status": "open"}, LOOSE),
        ("city", "'Oslo'", {"city": "Oslo", "mood": "curious"}, LOOSE),
        ("q", "'tea'", {"query": "tea"}, LOOSE),
        ("user", "'ann'", {}, NO),
        ("q", "'milk'", {"query": "tea"}, NO),
        ("city, days", "'Oslo', 2", {"city": "Oslo", "days": 3}, NO),
        ("", "", {"city": "Oslo"}, NO),
        # One parameter that gets everything.
        ("arguments", "{'a': 1, 'b': [2]}", {"a": 1, "b": [2]}, EXACT),
        ("arguments", "{'a': 1}", {"a": 1, "b": 2}, NO),
        ("context, arguments", "Connection(), {'a': 1}", {"a": 1}, EXACT),
        ("arguments: str", "'{\"a\": 1}'", {"a": 1}, EXACT),
        ("arguments: str", "'{\"a\": 2}'", {"a": 1}, NO),
        ("query", "Query(text='tea')", {"text": "tea"}, EXACT),
        ("query", "Query(text='tea', limit=3)", {"text": "tea"}, NO),
        ("query", "Query(text='tea', limit=3)", {"text": "tea", "limit": 3}, EXACT),
        ("query", "Query(text='tea', limit=3)", {"text": "tea", "limit": "3"}, EXACT),
        ("query", "Query(**{'text': 'tea', 'from': '2026-01-02'})", {"text": "tea", "from": "2026-01-02"}, EXACT),
        ("query", "Query(text='x', inner=Inner(n=1))", {"text": "x", "inner": {"n": 1}}, EXACT),
        ("query", "Query(text='x', inner=Inner(n=1))", {"text": "x", "inner": {"n": 2}}, NO),
        ("query", "Tidy(text='TEA')", {"text": "TEA"}, EXACT),
        ("inner", "Inner.model_construct()", {}, EXACT),
        ("where", "Place('Oslo')", {"city": "Oslo"}, EXACT),
        ("where", "Place('Oslo', 'se')", {"city": "Oslo"}, NO),
        ("where, days", "Place('Oslo'), 2", {"where": {"city": "Oslo"}, "days": 2}, EXACT),
        ("who", "Person('ann')", {"name": "ann"}, EXACT),
        ("who", "Person('ann', 4)", {"name": "ann"}, NO),
        ("item", "Item('tea')", {"itemName": "tea"}, EXACT),
        ("item", "Item('tea', 2)", {"itemName": "tea"}, NO),
        ("pair", "Pair(1)", {"pair": {"a": 1}}, EXACT),
        ("pair", "Pair(1, 3)", {"pair": [1, 3]}, EXACT),
        ("row", "Row(1, 2)", {"row": {"x": 1, "y": 2}}, EXACT),
        ("places", "[Place('a'), Place('b')]", {"places": [{"city": "a"}, {"city": "b"}]}, EXACT),
        ("options: Options", "{'deep': True}", {"options": {"deep": True}}, EXACT),
    ],
)
def test_a_call_is_compared_with_what_was_asked(
    head: str, call: str, asked: dict[str, Any] | None, expected: Fit
) -> None:
    assert fit(head, call, asked) is expected


def test_the_object_of_a_method_is_no_argument_even_where_a_model_could_have_written_it() -> None:
    signature = inspect.signature(lambda self, to: None)
    assert fit_of(signature, ({"a": 1}, "ann"), {}, {"to": "ann"}, is_method=True) is EXACT
    assert fit_of(signature, ({"a": 1}, "ann"), {}, {"to": "ann"}) is LOOSE
    assert fits(signature, ({"a": 1}, "ann"), {}, {"to": "ann"})
    assert not fits(signature, ({"a": 1}, "ann"), {}, {"to": "bob"})


OSLO = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("value", "asked", "other"),
    [
        (5, 5.0, 6),
        (5.0, 5, 5.1),
        (5, "5", "6"),
        ("5", 5, 6),
        (0.1, 0.1, 0.2),
        (Decimal("0.10"), 0.1, 0.11),
        (Decimal("12.50"), "12.5", "12.51"),
        (Fraction(1, 3), "1/3", "1/4"),
        (True, True, 1),
        (True, "true", "false"),
        (False, False, 0),
        (1, 1, True),
        (date(2026, 1, 2), "2026-01-02", "2026-01-03"),
        (datetime(2026, 1, 2, 3, 4), "2026-01-02T03:04", "2026-01-02T03:05"),  # noqa: DTZ001
        (datetime(2026, 1, 2, 3, 4), "2026-01-02 03:04:00", "2026-01-02 03:04:01"),  # noqa: DTZ001
        (datetime(2026, 1, 2), "2026-01-02", "2026-01-03"),  # noqa: DTZ001
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00Z", "2026-01-02T04:00:00Z"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T04:00:00+01:00", "2026-01-02T03:00:00+01:00"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00", "2026-01-02T04:00:00"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), 1767322800, 1767322801),
        (time(10, 30), "10:30", "10:31"),
        (timedelta(minutes=90), "PT1H30M", "PT1H31M"),
        (timedelta(days=8), "P1W1D", "P1W"),
        (timedelta(minutes=90), "01:30:00", "01:30:01"),
        (timedelta(seconds=90), 90, 91),
        (-timedelta(hours=1), "-PT1H", "PT1H"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005", "00000000-0000-0000-0000-000000000006"),
        (UUID(int=5), "00000000000000000000000000000005", "5"),
        (Colour.RED, "red", "blue"),
        (Colour.RED, "RED", "Red"),
        (Size.BIG, 3, 4),
        (Unit.METRE, "m", "km"),
        (b"abc", "abc", "abd"),
        (b"\x00\xff", "AP8=", "AP8A"),
        (Path("/tmp/a"), "/tmp/a", "/tmp/b"),  # noqa: S108
        (PurePosixPath("a"), "a", "b"),
        (ipaddress.ip_address("10.0.0.1"), "10.0.0.1", "10.0.0.2"),
        (pydantic.AnyUrl("https://example.com"), "https://example.com", "https://example.org"),
        (pydantic.SecretStr("s"), "s", "t"),
        (re.compile("a+"), "a+", "a"),
        ((1, 2), [1, 2], [2, 1]),
        ({1, 2}, [2, 1, 1], [1]),
        (frozenset("ab"), ["a", "b"], ["a", "c"]),
        (deque([1]), [1], [1, 1]),
        ([date(2026, 1, 2)], ["2026-01-02"], ["2026-01-03"]),
        ({1: "a"}, {"1": "a"}, {"2": "a"}),
        ({"a": {"b": [None]}}, {"a": {"b": [None]}}, {"a": {"b": []}}),
        ({}, {}, {"a": 1}),
        ([], [], {}),
        ("", "", None),
        (None, None, ""),
        (float("nan"), float("nan"), 1.0),
        ("2026-01-02", "2026-01-02", "2026-1-2"),
    ],
)
def test_a_value_is_known_by_what_it_was_made_of(value: Any, asked: Any, other: Any) -> None:
    assert same(value, asked)
    assert not same(value, other)


@pytest.mark.parametrize("value", [Connection(), object(), print, Connection, iter([1]), len, pytest])
def test_what_cannot_be_compared_is_not_the_same(value: Any) -> None:
    for asked in ("a", 1, 1.5, True, None, [1], {"a": 1}, [], {}, repr(value), str(value)):
        assert not same(value, asked)


def test_a_value_that_refuses_to_be_compared_is_not_the_same() -> None:
    class Prickly:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("no")

        __hash__ = None  # type: ignore[assignment]

    for asked in ("a", 1, [1], {"a": 1}):
        assert not same(Prickly(), asked)
        assert not same([Prickly()], [asked])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=40)
@given(JSON, JSON)
def test_plain_data_is_the_same_only_where_it_is_equal(one: Any, two: Any) -> None:
    assert same(one, one)
    if msgspec.json.encode(one, order="sorted") == msgspec.json.encode(two, order="sorted"):
        assert same(one, two)
    elif isinstance(one, (dict, list, type(None))):
        assert same(one, two) == same(two, one)


@settings(max_examples=40)
@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,6}\Z"), JSON, max_size=5))
def test_a_call_with_all_that_was_asked_fits_exactly(asked: dict[str, Any]) -> None:
    signature = inspect.signature(lambda **more: None)
    assert fit_of(signature, (), asked, asked) is EXACT
