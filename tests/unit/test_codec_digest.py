from __future__ import annotations

import enum
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import PrefixCache, digest, digest_arguments, growth
from perdure.errors import UnstorableValue


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Flight:
    number: str
    price: float


@dataclass
class FlightReordered:
    price: float
    number: str


@attrs.define
class Luggage:
    kilos: int


class Hop(pydantic.BaseModel):
    to: str
    via: Path


class Point(NamedTuple):
    x: int
    y: int


class Ticket(msgspec.Struct):
    seat: str


GOLDEN = {
    "text": "flights to Rome",
    "number": 3,
    "huge": 2**100,
    "price": 12.5,
    "flags": [True, None],
    "when": datetime(2024, 5, 1, 12, tzinfo=UTC),
    "decimal": Decimal("1.50"),
    "path": Path("a/b"),
    "raw": b"\x00\xff",
    "tags": {"b", "a", "c"},
    "mixed": {1, "one", None},
    "keys": {(1, 2): "x", None: "y"},
    "colour": Colour.RED,
    "flight": Flight("LH1", 12.5),
    "luggage": Luggage(20),
    "hop": Hop(to="Rome", via=Path("x")),
    "point": Point(1, 2),
    "ticket": Ticket("1A"),
    "long": [{"role": "user", "content": "x" * 2000}] * 20,
}


def test_digests_stay_as_they_are_across_versions_of_python_and_of_perdure() -> None:
    assert digest_arguments(GOLDEN, of="search").hex() == "737bf2d0ed7ea87ab897433d558a90f5"
    assert digest_arguments(("a", 1)).hex() == "b2d72939f983d567d1fa6310532ab28f"
    assert digest_arguments({"query": "flights to Rome", "limit": 3}).hex() == "6a8512f4db2018754af9aaba0a8bf569"
    assert digest_arguments({}).hex() == "e3b0c44298fc1c149afbf4c8996fb924"


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_every_argument_counts(name: str) -> None:
    assert digest_arguments(GOLDEN | {name: "other"}) != digest_arguments(GOLDEN)
    assert digest_arguments({key: GOLDEN[key] for key in GOLDEN if key != name}) != digest_arguments(GOLDEN)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"b": 1}),
        ({"a": "b", "c": 1}, {"a": "bc", "": 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [[1], 2]}, {"a": [[1, 2]]}),
        ({"a": ["x" * 20_000]}, {"a": ["x" * 20_000, "x"]}),
        ({"a": ["x" * 20_000]}, {"a": "x" * 20_000}),
        ({"a": ["x" * 20_000, "yz"]}, {"a": ["x" * 20_000, "y", "z"]}),
        ({"a": 2**70}, {"a": 2**71}),
        ({"a": {1: 2}}, {"a": {1: 3}}),
        ({"a": None}, {}),
    ],
)
def test_different_arguments_have_different_digests(one: dict[str, object], other: dict[str, object]) -> None:
    assert digest_arguments(one) != digest_arguments(other)


@given(st.dictionaries(st.text(max_size=4), st.integers() | st.text() | st.binary() | st.none(), max_size=18))
def test_a_dict_and_another_mapping_of_the_same_arguments_have_one_digest(arguments: dict[str, object]) -> None:
    assert digest_arguments(arguments) == digest_arguments(MappingProxyType(arguments))


def test_order_does_not_count_where_python_ignores_it() -> None:
    assert digest_arguments({"a": 1, "b": 2}) == digest_arguments({"b": 2, "a": 1})
    assert digest_arguments({"a": {"x": 1, "y": 2}}) == digest_arguments({"a": {"y": 2, "x": 1}})
    assert digest_arguments({"a": {1: 1, 2: 2}}) == digest_arguments({"a": {2: 2, 1: 1}})
    assert digest_arguments({"a": Flight("LH1", 1.0)}) == digest_arguments({"a": FlightReordered(1.0, "LH1")})


leaves = st.text(max_size=30) | st.none() | st.booleans() | st.sampled_from([0, 1, 2, 0.0, -0.0, 1.0, 2.0, 2**70])
messages = st.lists(
    leaves
    | st.dictionaries(st.text(max_size=3) | st.sampled_from([1, True]), leaves | st.lists(leaves), max_size=3)
    | st.builds(Flight, st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    max_size=12,
)


@given(st.lists(messages, max_size=6), st.integers(0, 12), st.binary(max_size=40), st.sampled_from([0, 256]))
def test_the_cache_never_changes_a_digest(turns: list[list[Any]], kept: int, blob: bytes, item_bytes: int) -> None:
    cache = PrefixCache(limit_bytes=2000)
    conversation: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "LARGE_BYTES", 8)
        patch.setattr(digest, "REFRESH_BYTES", 50)
        patch.setattr(digest, "_LONG_ITEM_BYTES", item_bytes)
        for turn in turns:
            conversation = conversation[:kept] + turn
            arguments = {
                "messages": conversation,
                "text": repr(conversation),
                "blob": blob,
                "by": {"all": conversation},
            }
            for _ in range(2):
                assert digest_arguments(arguments, of="ask", cache=cache) == digest_arguments(arguments, of="ask")


def test_a_conversation_that_grows_by_small_steps_keeps_its_digest() -> None:
    cache = PrefixCache()
    conversation = ["x" * 20_000]
    for number in range(5):
        conversation.append(f"message {number}")
        for _ in range(2):
            assert digest_arguments((conversation,), cache=cache) == digest_arguments((conversation,))


REPLACED = [
    ("a", "b"),
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    (None, False),
    ({"a": "x"}, {"b": "x"}),
    ({"a": ["x"]}, {"a": [["x"]]}),
    ({"a": 1}, {"a": True}),
    ({"a": [2]}, {"a": [2.0]}),
    ({"1": "x"}, {1: "x"}),
    ({1: "x"}, {True: "x"}),
    (Decimal("1.0"), Decimal("1.00")),
    (Flight("LH1", 1), Flight("LH1", 1.0)),
    (Flight("LH1", 0.0), Flight("LH1", -0.0)),
]


@pytest.mark.parametrize(("before", "after"), REPLACED)
def test_an_item_that_another_took_the_place_of_changes_the_digest(before: object, after: object) -> None:
    cache = PrefixCache()
    conversation = [before, "x" * 20_000]
    seen = digest_arguments((conversation,), cache=cache)
    conversation[0] = after
    assert digest_arguments((conversation,), cache=cache) == digest_arguments((conversation,)) != seen


def replaced_text(message: Any) -> None:
    message["content"] = "y"


def added_entry(message: Any) -> None:
    message["name"] = "x"


def deep_change(message: Any) -> None:
    message["calls"][0]["name"] = "y"


def other_number(message: Any) -> None:
    message["calls"][0]["tokens"] = True


def changed_field(message: Any) -> None:
    message["flight"].price = 2.0


@pytest.mark.parametrize("change", [replaced_text, added_entry, deep_change, other_number, changed_field])
def test_an_item_that_was_changed_where_it_stands_changes_the_digest(change: Any) -> None:
    cache = PrefixCache()
    plain = {"content": "x" * 20_000, "calls": [{"name": "x"}]}
    message = plain if change in {replaced_text, added_entry, deep_change} else plain | {"flight": Flight("LH1", 1.0)}
    message["calls"][0] |= {"tokens": 1} if change is other_number else {}  # type: ignore[operator, index]
    seen = digest_arguments(([message],), cache=cache)
    assert digest_arguments(([message],), cache=cache) == seen
    change(message)
    assert digest_arguments(([message],), cache=cache) == digest_arguments(([message],)) != seen


class Sulking:
    """Cannot be compared, as an array cannot."""

    def __eq__(self, other: object) -> bool:
        raise ValueError(other)

    def __hash__(self) -> int:
        return 0


def test_an_item_that_refuses_to_be_compared_is_refused_as_an_argument_and_nothing_else() -> None:
    cache = PrefixCache()
    conversation: list[object] = ["x" * 20_000, "y"]
    digest_arguments((conversation,), cache=cache)
    with pytest.raises(UnstorableValue, match=r"argument 0\[1\] of the call is a \S+Sulking"):
        digest_arguments((["x" * 20_000, Sulking()],), cache=cache)


@pytest.mark.parametrize("length", [15, 16, 65_535, 65_536])
def test_a_list_that_grew_past_the_size_of_its_header_keeps_its_digest(length: int) -> None:
    cache = PrefixCache()
    conversation = ["x" * 300] * (length - 1)
    digest_arguments((["x" * 20_000, *conversation],), cache=cache)
    grown = ["x" * 20_000, *conversation, "y"]
    for value in (grown[:-1], grown):
        assert digest_arguments((value,), cache=cache) == digest_arguments((value,))


def test_of_a_growing_conversation_only_what_is_new_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded_bytes = 0
    real = vars(digest)["_encode"]

    def counting(value: object) -> bytes:
        nonlocal encoded_bytes
        packed: bytes = real(value)
        encoded_bytes += len(packed)
        return packed

    monkeypatch.setattr(digest, "_encode", counting)
    cache = PrefixCache()
    conversation: list[object] = [{"role": "user", "content": "x" * 2000, "refusal": None} for _ in range(1000)]
    conversation[3] = {"role": "tool", "input": {"limit": 10}}
    digest_arguments({"messages": conversation}, of="ask", cache=cache)
    encoded_bytes = 0
    for _ in range(10):
        conversation.append({"role": "user", "content": [{"type": "text", "text": "y" * 2000}]})
        digest_arguments({"messages": conversation}, of="ask", cache=cache)
    assert encoded_bytes < 10 * 3000


def test_threads_that_pass_different_conversations_do_not_disturb_each_other() -> None:
    cache = PrefixCache()

    def converse(letter: str) -> None:
        conversation = [letter * 20_000]
        for _ in range(200):
            conversation.append(letter * 300)
            assert digest_arguments((conversation,), cache=cache) == digest_arguments((conversation,))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(converse, "abcd"))


def test_a_growing_conversation_is_hashed_from_where_the_last_call_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed_bytes = 0

    real = hashlib.sha256

    class CountingHash:
        def __init__(self, data: bytes = b"", *, inner: Any = None) -> None:
            self.inner = inner or real()
            self.update(memoryview(data))

        def update(self, data: memoryview) -> None:
            nonlocal hashed_bytes
            hashed_bytes += len(data)
            self.inner.update(data)

        def digest(self) -> bytes:
            return bytes(self.inner.digest())

        def copy(self) -> CountingHash:
            return CountingHash(inner=self.inner.copy())

    monkeypatch.setattr(digest, "sha256", CountingHash)
    monkeypatch.setattr(growth, "sha256", CountingHash)
    cache = PrefixCache()
    conversation = [{"role": "user", "content": "x" * 2000} for _ in range(1000)]
    digest_arguments({"messages": conversation}, of="ask", cache=cache)
    assert hashed_bytes > 2_000_000
    hashed_bytes = 0
    for _ in range(10):
        conversation.append({"role": "user", "content": "y" * 2000})
        digest_arguments({"messages": conversation}, of="ask", cache=cache)
    assert hashed_bytes < 10 * 3000


def test_the_cache_keeps_within_its_bound() -> None:
    cache = PrefixCache(limit_bytes=100_000)
    for number in range(20):
        digest_arguments({"text": "x" * 30_000}, of=f"step {number}", cache=cache)
        assert cache.held_bytes <= 100_000
    assert cache.held_bytes == 90_000
    digest_arguments({"text": "x" * 200_000}, of="step 19", cache=cache)
    assert cache.held_bytes == 60_000


def test_steps_and_arguments_do_not_share_a_prefix() -> None:
    cache = PrefixCache()
    one, other = ["x" * 20_000], ["y" * 20_000]
    for of, name, value in [("a", "m", one), ("b", "m", other), ("a", "n", other), ("a", "m", one)]:
        assert digest_arguments({name: value}, of=of, cache=cache) == digest_arguments({name: value})


class Client:
    """Stands for a client of some library."""


Client.__module__ = "httpx"

LONG = ["x" * 20_000]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Client(), "argument it of search is an httpx.Client"),
        ([{"deep": Client()}], "argument it[0].deep of search is an httpx.Client"),
        (lambda: 1, "argument it of search is a lambda"),
        (float("nan"), "argument it of search is NaN"),
        ([1, {"price": float("-inf")}], "argument it[1].price of search is -infinity"),
        (Flight("LH1", float("nan")), "argument it.price of search is NaN"),
        ([*LONG, {"price": float("nan")}], "argument it[1].price of search is NaN"),
        ({"a": "\ud800"}, "argument it.a of search holds a lone surrogate (\\ud800)"),
        ({1: "\ud800"}, "argument it[1] of search holds a lone surrogate (\\ud800)"),
        (1j, "argument it of search is a complex"),
        (type("Number", (float,), {"__module__": "numpy"})(1), "argument it of search is a numpy.Number"),
    ],
)
def test_an_argument_that_has_no_value_is_refused_by_name(value: object, message: str) -> None:
    for cache in (None, PrefixCache()):
        with pytest.raises(UnstorableValue) as caught:
            digest_arguments({"a": 1, "it": value}, of="search", cache=cache)
        assert str(caught.value) == message
        assert caught.value.hint


def test_nan_that_follows_a_remembered_prefix_is_refused() -> None:
    cache = PrefixCache()
    conversation: list[object] = [*LONG, 1.5]
    digest_arguments({"m": conversation}, cache=cache)
    with pytest.raises(UnstorableValue, match=r"argument m\[2\] of the call is NaN"):
        digest_arguments({"m": [*conversation, float("nan")]}, cache=cache)


def test_bytes_that_look_like_nan_are_no_nan() -> None:
    looks_like_nan = b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"
    assert digest_arguments({"raw": looks_like_nan}) != digest_arguments({"raw": looks_like_nan * 9000})


def test_a_cyclic_argument_is_refused() -> None:
    cyclic: list[object] = []
    cyclic.append(cyclic)
    with pytest.raises(UnstorableValue, match=r"^argument 0 of the call contains itself$"):
        digest_arguments((cyclic,))
