from __future__ import annotations

import asyncio
import contextlib
import enum
import inspect
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NoReturn,
    Optional,
    Protocol,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import codec
from perdure.codec import (
    describe,
    resolve_annotations,
    seal,
    seal_arguments,
    seal_faithfully,
    unseal,
    unseal_arguments,
)
from perdure.errors import UnstorableValue

if TYPE_CHECKING:
    from somewhere import Invisible  # type: ignore[import-not-found]

T = TypeVar("T")
Seat = NewType("Seat", str)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Corner(enum.Enum):
    ORIGIN = (0, 0)
    FAR = (9, 9)


@dataclass
class Flight:
    number: str
    price: float
    when: datetime | None = None
    stops: list[str] = field(default_factory=list)


@dataclass
class Hotel:
    name: str
    nights: int


@dataclass(eq=False)
class WithoutEquality:
    number: str


@dataclass(frozen=True)
class Stop:
    city: str


@dataclass
class Trip:
    parts: list[Flight | Hotel]
    total: int = field(init=False, default=0)


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    content: T


class Point(NamedTuple):
    x: int
    y: int


class Ticket(msgspec.Struct, rename="camel"):
    seat_number: str
    paid_at: datetime | msgspec.UnsetType = msgspec.UNSET


class Compact(msgspec.Struct, array_like=True, tag="compact"):
    left: int
    right: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Cat(msgspec.Struct, tag=True):
    name: str


class Reference(msgspec.Struct, rename={"target": "$ref"}):
    target: str


@attrs.define
class Luggage:
    kilos: int
    _secret: str = "none"
    checked: bool = attrs.field(init=False, default=False)


class Hop(pydantic.BaseModel):
    to: str
    at: datetime
    colour: Colour = Colour.RED


class Journey(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    hops: list[Hop]
    traveller_name: str = pydantic.Field(alias="travellerName")
    colour: Colour = Colour.BLUE
    seat: str = pydantic.Field(default="1A", validation_alias=pydantic.AliasChoices("place", "seat"))

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def length(self) -> int:
        return len(self.hops)

    @pydantic.field_serializer("traveller_name")
    def shout(self, value: str) -> str:
        return value.upper()


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    known: int


class Names(pydantic.RootModel[list[str]]):
    pass


class Options(TypedDict, total=False):
    colour: Colour
    since: datetime


class HasName(Protocol):
    name: str


class Plain:
    pass


class Client:
    """Stands for a client of some library."""


Client.__module__ = "httpx"

NOON = datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["$", "$tuple", "$dict", "$5.00"])
)
hashable_builtins = (
    st.binary()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.timezones() | st.just(UTC))
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.sampled_from([Path("a/b"), PurePosixPath("/x"), PureWindowsPath("c:\\x")])
)
hashables: st.SearchStrategy[Any] = st.recursive(
    scalars | hashable_builtins, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars | hashable_builtins,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(hashables, max_size=4)
        | st.dictionaries(st.text() | st.sampled_from(["$set", "$tuple", "$unknown"]), inner, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(values)
def test_builtin_values_come_back_the_same_without_an_annotation(value: object) -> None:
    data, returned = seal_faithfully(value)
    assert returned == unseal(data) == unseal(data.decode())
    assert type(returned) is type(value)
    assert seal(returned) == data


@given(values)
def test_sealed_values_are_json_that_other_tools_can_read(value: object) -> None:
    json.loads(seal(value))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ((1, "a"), b'{"$tuple":[1,"a"]}'),
        ({3, 1, 2}, b'{"$set":[1,2,3]}'),
        (frozenset({"b", "a"}), b'{"$frozenset":["a","b"]}'),
        (b"hi", b'{"$bytes":"aGk="}'),
        (NOON, b'{"$datetime":"2024-05-01T12:00:00+02:00"}'),
        (date(2024, 5, 1), b'{"$date":"2024-05-01"}'),
        (time(12, 30), b'{"$time":"12:30:00"}'),
        (timedelta(days=1, seconds=2), b'{"$timedelta":[1,2,0]}'),
        (Decimal("1.50"), b'{"$decimal":"1.50"}'),
        (UUID(int=1), b'{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
        (Path("a/b"), b'{"$path":"a/b"}'),
        ({1: "a"}, b'{"$dict":[[1,"a"]]}'),
        ({"$tuple": []}, b'{"$dict":[["$tuple",[]]]}'),
        ({"$a": 1, "$b": 2}, b'{"$a":1,"$b":2}'),
        (2**100, b"1267650600228229401496703205376"),
        (Reference("x"), b'{"$dict":[["$ref","x"]]}'),
    ],
)
def test_the_layout_on_disk_does_not_change(value: object, written: bytes) -> None:
    assert seal(value) == written


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Flight("LH1", 12.5, NOON, ["FRA"]), Flight),
        (Flight("LH1", 12.5), Optional[Flight]),  # noqa: UP045  The old spelling is another type.
        (None, Flight | None),
        ([Flight("LH1", 12.5)], list[Flight]),
        ((Flight("LH1", 1.0), 3), tuple[Flight, int]),
        ({"a": [Flight("LH1", 1.0)]}, dict[str, list[Flight]]),
        ({"a": Hotel("Adlon", 2)}, Mapping[str, Hotel]),
        ([Hotel("Adlon", 2)], Sequence[Hotel]),
        ([Hotel("Adlon", 2)], Iterable[Hotel]),
        ({Stop("Rome"), Stop("Oslo")}, set[Stop]),
        (frozenset({(Stop("Rome"), 1)}), frozenset[tuple[Stop, int]]),
        (WithoutEquality("LH1"), WithoutEquality),
        (Node("a", [Node("b"), Node("c", [Node("d")])]), Node),
        (Box(Flight("LH1", 1.0)), Box[Flight]),
        (Point(1, 2), Point),
        ([Point(1, 2)], list[Point]),
        (Ticket("1A"), Ticket),
        (Ticket("1A", NOON), Ticket),
        (Compact(1, 2), Compact),
        ([Dog("Rex"), Cat("Tom")], list[Dog | Cat]),
        (Reference("x"), Reference),
        (Luggage(20, "gold"), Luggage),
        (Hop(to="Rome", at=NOON, colour=Colour.BLUE), Hop),
        (Hop(to="Rome", at=NOON), Hop | None),
        ([Hop(to="Rome", at=NOON)], list[Hop]),
        (Journey(hops=[Hop(to="Rome", at=NOON)], travellerName="Ada", place="2B"), Journey),  # type: ignore[call-arg]
        (Loose(known=1, more={"a": (1, 2)}), Loose),  # type: ignore[call-arg]
        (Names(["a", "b"]), Names),
        (Colour.RED, Colour),
        (Level.HIGH, Level),
        (Corner.FAR, Corner),
        ({Colour.RED: 1}, dict[Colour, int]),
        ({Level.LOW: "x"}, dict[Level, str]),
        ({"colour": Colour.RED, "since": NOON}, Options),
        (3, int),
        ("LH1", Literal["LH1", "LH2"]),
        ("1A", Seat),
        (["1A"], list[Seat]),
        (5, Annotated[int, msgspec.Meta(gt=0)]),
        (5, Annotated[int, ["unhashable"]]),
        (Path("a"), Path),
        ([Path("a")], list[Path]),
        (Decimal("1.5"), Decimal | float),
        ({"at": NOON, "x": (1, {2})}, dict[str, Any]),
        (2**70, int),
        (b"x", bytes),
    ],
)
def test_values_come_back_through_their_annotation(value: object, annotation: object) -> None:
    data, returned = seal_faithfully(value, annotation)
    assert type(returned) is type(value)
    assert seal(returned) == data
    assert isinstance(value, WithoutEquality) or returned == value


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (NOON, str | datetime),
        ("noon", str | datetime),
        ([1], list[int] | set[int]),
        ({1}, list[int] | set[int]),
        (date(2024, 1, 1), datetime | date),
        (Flight("LH1", 1.0), Flight | Hotel),
        (Hotel("Adlon", 2), Flight | Hotel),
        (Hotel("Adlon", 2), dict[str, Any] | Hotel),
        ({"free": "form"}, dict[str, Any] | Hotel),
        ([Flight("LH1", 1.0), Hotel("Adlon", 2)], list[Flight | Hotel]),
        ((Flight("LH1", 1.0), Hotel("Adlon", 2)), tuple[Flight | Hotel, ...]),
        ({"a": Hotel("Adlon", 2), "b": None}, dict[str, Flight | Hotel | None]),
        ({"list": [Hotel("A", 1)]}, list[Flight | Hotel] | dict[str, list[Flight | Hotel]]),
        (Hop(to="Rome", at=NOON), Hop | Hotel),
        ("nothing found", Hop | str),
        (Colour.RED, Colour | str),
        ("green", Colour | str),
        (Trip([Flight("LH1", 1.0), Hotel("Adlon", 2)]), Trip),
        ([Stop("Rome")], Annotated[list[Stop | Hotel], "stops"]),
        ({"a": 1}, Union[int, str, dict[str, int]]),  # noqa: UP007  As above.
    ],
)
def test_unions_come_back_as_the_member_that_went_in(value: object, annotation: object) -> None:
    _, returned = seal_faithfully(value, annotation)
    assert returned == value
    assert type(returned) is type(value)


@pytest.mark.parametrize(
    "annotation",
    [T, HasName, Plain, Callable[[], int], NoReturn, Iterable, "Any", list["HasName"], list[HasName], [int]],
)
def test_plain_data_comes_back_whatever_the_annotation_fails_to_say(annotation: object) -> None:
    assert seal_faithfully([1, {"a": (2,)}], annotation)[1] == [1, {"a": (2,)}]


def test_what_a_typed_language_accepts_is_the_same() -> None:
    assert repr(seal_faithfully(1, float)[1]) == "1.0"
    assert repr(seal_faithfully({"price": 1}, dict[str, float])[1]) == "{'price': 1.0}"
    assert seal_faithfully([1, 2], tuple[int, int])[1] == (1, 2)
    assert seal_faithfully((1, 2), list[int])[1] == [1, 2]
    assert seal_faithfully({1}, frozenset[int])[1] == frozenset({1})


def test_a_datetime_in_the_hour_a_clock_change_repeats_comes_back() -> None:
    twice = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    for moment in (twice, twice.replace(fold=1)):
        returned = seal_faithfully(moment)[1]
        assert returned.timestamp() == moment.timestamp()


def test_the_decoded_form_shares_nothing_with_what_went_in() -> None:
    value = {"notes": ["a"]}
    _, returned = seal_faithfully(value)
    value["notes"].append("b")
    assert returned == {"notes": ["a"]}


def cyclic_list() -> list[object]:
    inner: list[object] = []
    inner.append({"back": inner})
    return inner


def nested(depth: int, kind: Callable[[Any], object] = list) -> object:
    value: object = 1
    for _ in range(depth):
        value = kind([value])
    return value


def a_coroutine() -> object:
    async def fetch() -> None: ...

    coroutine = fetch()
    coroutine.close()
    return coroutine


def half_built() -> Flight:
    flight = Flight("LH1", 1.0)
    del flight.number
    return flight


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"client": Client()}, "result.client is an httpx.Client"),
        (Box(Client()), "result.content is an httpx.Client"),
        ([0, 1, 2, {"price": float("nan")}], "result[3].price is NaN"),
        (float("inf"), "result is infinity"),
        ((-float("inf"),), "result[0] is -infinity"),
        (Decimal("sNaN"), "result is NaN"),
        ({"a": Decimal("-Infinity")}, "result.a is -infinity"),
        (Decimal("1E+10001"), "result is a Decimal with an exponent beyond 10000"),
        ({"note": "x\ud800"}, "result.note holds a lone surrogate (\\ud800)"),
        ({"\udfff": 1}, "result.keys() holds a lone surrogate (\\udfff)"),
        ({("a", "\ud800"): 1}, "result.keys()[1] holds a lone surrogate (\\ud800)"),
        ({"\ud800"}, "result{…} holds a lone surrogate (\\ud800)"),
        (Path("\udc80"), "result holds a lone surrogate (\\udc80)"),
        (Hotel("\ud800", 1), "result.name holds a lone surrogate (\\ud800)"),
        ([10**5000], "result[0] is an int of more than 4300 digits"),
        (lambda: 1, "result is a lambda"),
        ({"on click": [print]}, "result['on click'][0] is a builtin_function_or_method"),
        ({3: {"x": object()}}, "result[3].x is an object"),
        ([item for item in [(n for n in "ab")]], "result[0] is a generator"),  # noqa: C416
        (a_coroutine(), "result is a coroutine"),
        ({Plain}, "result{…} is a type"),
        (1j, "result is a complex"),
        (range(3), "result is a range"),
        (bytearray(b"x"), "result is a bytearray"),
        (defaultdict(int), "result is a collections.defaultdict"),
        (OrderedDict(a=1), "result is a collections.OrderedDict"),
        (ValueError("x"), "result is a ValueError"),
        (type("Text", (str,), {"__module__": "numpy"})("x"), "result is a numpy.Text"),
        ({"a": cyclic_list()}, "result.a[0] contains itself"),
        (nested(101), "result[0][0][0][0][0][0][0][0]… nests deeper than 100 levels"),
        ({Stop("Rome"): 1}, "result has a key that is a test_codec.Stop"),
        ({Colour.RED: 1, "red": 2}, "result has two keys that would be stored as one"),
        ({"a": pydantic.SecretStr("x")}, "result.a is a pydantic.types.SecretStr"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_path(
    value: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stop, "__module__", "test_codec")
    with pytest.raises(UnstorableValue) as caught:
        seal(value)
    assert str(caught.value) == message
    assert caught.value.hint


def test_a_field_that_was_never_set_is_refused() -> None:
    with pytest.raises(UnstorableValue, match=r"with a field that was never set .*number"):
        seal(half_built())


def test_an_open_socket_is_refused() -> None:
    with socket.socket() as connection, pytest.raises(UnstorableValue, match=r"result\.s is a socket\.socket"):
        seal({"s": connection})


@pytest.mark.parametrize("kind", [list, tuple, frozenset])
def test_100_levels_are_stored(kind: Callable[[Any], object]) -> None:
    value = nested(100, kind)
    assert seal_faithfully(value)[1] == value


@pytest.mark.parametrize("kind", [list, tuple, frozenset, lambda items: {"inner": items[0]}])
def test_a_value_that_nests_too_deeply_for_the_stack_is_refused(kind: Callable[[Any], object]) -> None:
    value = nested(60, kind)

    def sink(levels: int) -> object:
        return sink(levels - 1) if levels else seal_faithfully(value)

    room = sys.getrecursionlimit() - len(inspect.stack(0))
    for levels in range(room - 350, room - 20):
        try:
            sink(levels)
        except UnstorableValue as error:
            assert str(error) == "result nests too deeply for the stack that is left"  # noqa: PT017
        except RecursionError:
            pytest.fail("a RecursionError escaped")


def test_a_value_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_VALUE_BYTES", 2 * 1024 * 1024)
    seal("x" * (2 * 1024 * 1024 - 2))
    with pytest.raises(UnstorableValue, match=r"^result is 3\.0 MB, the limit is 2 MB$"):
        seal("x" * (3 * 1024 * 1024))
    assert codec.MAX_VALUE_BYTES == 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("value", "annotation", "message", "hint"),
    [
        (
            Flight("LH1", 1.0),
            Any,
            "result is a Flight and would come back as a dict",
            "return plain data, or annotate it: -> Flight",
        ),
        (
            {"best": [Flight("LH1", 1.0)]},
            dict[str, Any],
            "result.best[0] is a Flight and would come back as a dict",
            "return plain data, or annotate the return type so that it names Flight",
        ),
        (Point(1, 2), Any, "result is a Point and would come back as a list", "-> Point"),
        (Point(1, 2), tuple[int, int], "result is a Point and would come back as a tuple", "-> Point"),
        (Colour.RED, Any, "result is a Colour and would come back as a str", "-> Colour"),
        (Level.LOW, int, "result is a Level and would come back as an int", "-> Level"),
        (Hop(to="Rome", at=NOON), HasName, "result is a Hop and would come back as a dict", "-> Hop"),
        ([Hotel("A", 1)], list[HasName], "result[0] is a Hotel and would come back as a dict", "names Hotel"),
        ({"name": "A", "nights": 1}, Hotel, "result is a dict and would come back as a Hotel", "plain data"),
        ({Stop("Rome")}, Any, "result is a set and would come back as a list", "annotate"),
        ({"colour": Colour.RED, "more": 1}, Options, "result has 2 entries, and 1 would come back", "annotate"),
        ({1: "a"}, dict[str, str], "result does not fit its annotation: Expected `str`, got `int`", "annotation"),
        (
            Flight("LH1", "free"),  # type: ignore[arg-type]
            Flight,
            "result.price does not fit its annotation: Expected `float`, got `str`",
            "correct the annotation",
        ),
        ("2024-05-01", date, "result does not fit its annotation: Expected `date`, got `str`", "annotation"),
        (None, str, "result does not fit its annotation: Expected `str`, got `null`", "annotation"),
        (3, list[Flight | Hotel], "result does not fit its annotation: Expected list, got int", "annotation"),
        (
            Loose(known=1, best=Hotel("A", 1)),  # type: ignore[call-arg]
            Loose,
            "result.best is a Hotel and would come back as a dict",
            "names Hotel",
        ),
        (3, Flight | Hotel, "result does not fit its annotation: Expected one of Flight, Hotel, got int", "annotation"),
    ],
)
def test_what_would_not_come_back_as_it_went_in_is_refused(
    value: object, annotation: object, message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (Flight, Point, Colour, Level, Hop, Hotel):
        monkeypatch.setattr(kind, "__module__", "__main__")
    with pytest.raises(UnstorableValue) as caught:
        seal_faithfully(value, annotation)
    assert str(caught.value).removesuffix(" - at `key` in `$`") == message
    assert hint in caught.value.hint


def test_a_subclass_does_not_come_back_as_its_parent() -> None:
    @dataclass
    class Charter(Hotel):
        pass

    with pytest.raises(UnstorableValue, match=r"Charter and would come back as a .*Hotel"):
        seal_faithfully(Charter("A", 1), Hotel)


def test_a_class_that_changes_its_content_while_it_is_built_is_refused() -> None:
    class Counted(pydantic.BaseModel):
        seen: int

        @pydantic.field_validator("seen")
        @classmethod
        def count(cls, value: int) -> int:
            return value + 1

    with pytest.raises(UnstorableValue, match=r"result\.seen is 2 and would come back as 3"):
        seal_faithfully(Counted(seen=1), Counted)


def test_a_class_that_refuses_its_own_content_is_reported_in_one_line() -> None:
    @dataclass
    class Fragile:
        number: int

        def __post_init__(self) -> None:
            raise KeyError(self.number)

    with pytest.raises(ValueError, match="KeyError: 1"):
        unseal(b'{"number":1}', Fragile)
    with pytest.raises(ValueError, match=r"^to: Input should be a valid string; at: Field required$"):
        unseal(b'{"to":1}', Hop)


HOSTILE = [
    b"",
    b"{",
    b'"\xff"',
    b'"\\ud800"',
    b"1e999",
    b"9" * 5000,
    b'{"a":1} trailing',
    b"[" * 100_000 + b"]" * 100_000,
    b'{"$tuple":[' * 20_000 + b"]}" * 20_000,
    b'{"$tuple":[' * 300 + b"]}" * 300,
    b'{"a":{"$dict":[[1,' * 400 + b"1" + b"]]}}" * 400,
    b'{"$import":"os"}',
    b'{"$class":"os.system"}',
    b'{"$":1}',
    b'{"a":{"$reduce":["os.system",["true"]]}}',
    b'{"$tuple":"abc"}',
    b'{"$tuple":{"a":1}}',
    b'{"$set":1}',
    b'{"$dict":[1]}',
    b'{"$dict":[[1]]}',
    b'{"$dict":[[1,2],[1,3]]}',
    b'{"$dict":[[[1],2]]}',
    b'{"$dict":[[{"a":1},2]]}',
    b'{"$bytes":"not base64!"}',
    b'{"$bytes":"aGk=!"}',
    b'{"$bytes":[1]}',
    b'{"$datetime":"yesterday"}',
    b'{"$date":5}',
    b'{"$time":"25:00"}',
    b'{"$timedelta":[1]}',
    b'{"$timedelta":[1,"a",2]}',
    b'{"$timedelta":[999999999999,0,0]}',
    b'{"$decimal":"NaN"}',
    b'{"$decimal":"1E+999999999"}',
    b'{"$decimal":"1E-999999999"}',
    b'{"$decimal":"abc"}',
    b'{"$uuid":"1"}',
    b'{"$path":null}',
    b'{"$path":["a"]}',
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: str(data[:30]))
def test_hostile_data_is_refused_with_a_value_error(data: bytes) -> None:
    for annotation in (Any, Flight, Flight | Hotel, Node, Hop, list[Path], int):
        with pytest.raises(ValueError, match=r"."):
            unseal(data, annotation)


json_like: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.tuples(
            st.sampled_from(["$tuple", "$set", "$frozenset", "$dict", "$bytes", "$datetime", "$date", "$time"])
            | st.sampled_from(["$timedelta", "$decimal", "$uuid", "$path", "$posixpath", "$windowspath", "$x"]),
            inner | st.lists(st.lists(inner, min_size=2, max_size=2), max_size=3),
        ).map(lambda pair: {pair[0]: pair[1]})
    ),
    max_leaves=15,
)


@given(json_like, st.sampled_from([Any, Flight | Hotel, Hop, Node, set[int], dict[str, Any], int, Decimal, Path]))
def test_any_json_is_read_or_refused_with_a_value_error(value: object, annotation: object) -> None:
    with contextlib.suppress(ValueError):
        unseal(json.dumps(value), annotation)


def test_stored_data_imports_opens_and_runs_nothing() -> None:
    script = (
        "import sys, perdure.codec\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, _: seen.append(event))\n"
        f"for data in {HOSTILE!r}:\n"
        "    try: perdure.codec.unseal(data)\n"
        "    except ValueError: pass\n"
        "print(sorted(set(seen)))\n"
    )
    assert in_a_new_process(script) == "[]\n"


def in_a_new_process(script: str, **environment: str) -> str:
    source = str(pathlib.Path(codec.__file__).parents[2])
    finished = subprocess.run(
        [sys.executable],
        input=script,
        env=os.environ | {"PYTHONPATH": source} | environment,
        capture_output=True,
        check=True,
        text=True,
    )
    return finished.stdout


def test_a_tag_spelt_with_an_escape_stays_plain_data() -> None:
    assert unseal(b'{"\\u0024import":"os"}') == {"$import": "os"}


def test_sets_are_written_alike_whatever_the_hash_seed() -> None:
    script = (
        "from perdure.codec import seal, digest_arguments\n"
        "value = {'s': {'a', 'b', 'c', ('d', 'e')}, 'f': frozenset({frozenset('xyz'), frozenset('uv')})}\n"
        "mixed = {1, 'one', None, 2.5, ('a', 1)}\n"
        "keys = {key: 1 for key in {('a', 1), ('b', 2), ('c', 3)}}\n"
        "print(seal(value), seal(mixed), digest_arguments({'a': mixed, 'b': {'x', 'y'}, 'c': keys}).hex())\n"
    )
    assert len({in_a_new_process(script, PYTHONHASHSEED=seed) for seed in "0123"}) == 1


def test_arguments_come_back_each_by_its_own_annotation() -> None:
    arguments = {"flight": Flight("LH1", 1.0), "at": NOON, "$tuple": [1], "pair": (1, 2)}
    data = seal_arguments(arguments, of="book")
    assert unseal_arguments(data, {"flight": Flight}) == arguments
    assert unseal_arguments(seal_arguments({"$tuple": [1]}), {}) == {"$tuple": [1]}


def test_an_argument_that_does_not_fit_its_annotation_comes_back_as_plain_data() -> None:
    data = seal_arguments({"path": "a/b", "count": "one", "at": (1, 2)})
    plain = {"path": "a/b", "count": "one", "at": (1, 2)}
    assert unseal_arguments(data, {"path": Path, "count": int, "at": datetime}) == plain


def test_damaged_arguments_are_refused() -> None:
    for data in (b"[1]", b"{", b'{"a":{"$x":1}}', b'{"a":' + b"[" * 9999 + b"]" * 9999 + b"}"):
        with pytest.raises(ValueError, match="stored"):
            unseal_arguments(data, {})


def test_an_argument_that_cannot_be_stored_is_named_with_its_call() -> None:
    with pytest.raises(UnstorableValue) as caught:
        seal_arguments({"to": "ada", "options": [{"client": Client()}]}, of="send_email")
    assert str(caught.value) == "argument options[0].client of send_email is an httpx.Client"
    assert caught.value.hint.startswith("pass plain data")


def annotated(flight: Flight, plain, *more: int, at: datetime = NOON, **rest: Hotel) -> list[Flight]:  # type: ignore[no-untyped-def] # noqa: ANN001
    return [flight]


def partly_visible(first: Invisible, second: int) -> Flight:
    return Flight("LH1", float(second))


async def visible_nowhere(first: int) -> Invisible: ...


class Caller:
    def __call__(self, number: int) -> str:
        return str(number)

    def method(self, number: int) -> str:
        return str(number)


def test_annotations_are_resolved_as_arguments_are_bound() -> None:
    returned, parameters = resolve_annotations(annotated)
    assert returned == list[Flight]
    assert parameters == {
        "flight": Flight,
        "plain": Any,
        "more": tuple[int, ...],
        "at": datetime,
        "rest": dict[str, Hotel],
    }


def test_a_name_that_does_not_resolve_costs_only_its_own_annotation() -> None:
    assert resolve_annotations(partly_visible) == (Flight, {"first": Any, "second": int})
    assert resolve_annotations(visible_nowhere) == (Any, {"first": int})


def test_annotations_are_found_below_partials_methods_and_callables() -> None:
    assert resolve_annotations(partial(annotated, plain=1))[0] == list[Flight]
    assert resolve_annotations(Caller()) == (str, {"number": int})
    assert resolve_annotations(Caller().method) == (str, {"number": int})
    assert resolve_annotations(lambda number: number) == (Any, {"number": Any})
    assert resolve_annotations(print)[0] is Any


def test_a_class_of_the_enclosing_function_is_found_if_the_body_uses_it() -> None:
    @dataclass
    class Local:
        number: int

    def make(number: int) -> Local:
        return Local(number)

    assert resolve_annotations(make) == (Local, {"number": int})


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError

    __len__ = __iter__ = __repr__


@given(values)
def test_a_description_is_one_short_line(value: object) -> None:
    text = describe(value)
    assert len(text) <= 80
    assert text.isprintable()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.5, None]}, "{'a': [1, 2.5, None]}"),
        (Hotel("Adlon\n", 2), "Hotel(name='Adlon\\n', nights=2)"),
        (Broken(), "<test_codec.Broken>"),
        (10**5000, "<int>"),
        (b"x" * 10**6, "b'" + "x" * 60 + "'"),
        ("\ud800", "'\\ud800'"),
        (cyclic_list(), "[{'back': [{...}]}]"),
        (half_built(), "<Flight>"),
    ],
    ids=range(8),
)
def test_a_description_shows_what_it_can_and_never_raises(
    value: object, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "__module__", "test_codec")
    assert describe(value) == text
    assert len(describe(["x" * 100] * 100, limit=30)) == 30


def test_values_of_a_running_loop_are_refused_by_name() -> None:
    async def main() -> None:
        with pytest.raises(UnstorableValue, match=r"result is an? .*Future"):
            seal(asyncio.get_running_loop().create_future())

    asyncio.run(main())
