from __future__ import annotations

import enum
import hashlib
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

from perdure.codec import PrefixCache, digest, digest_arguments
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


messages = st.lists(
    st.fixed_dictionaries({"content": st.text(max_size=30), "score": st.floats(allow_nan=False, allow_infinity=False)}),
    max_size=12,
)


@given(st.lists(messages, max_size=6), st.integers(0, 12), st.binary(max_size=40))
def test_the_cache_never_changes_a_digest(turns: list[list[Any]], kept: int, blob: bytes) -> None:
    cache = PrefixCache(limit_bytes=2000)
    conversation: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "LARGE_BYTES", 8)
        patch.setattr(digest, "REFRESH_BYTES", 50)
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
    cache = PrefixCache()
    conversation = [{"role": "user", "content": "x" * 2000} for _ in range(1000)]
    digest_arguments({"messages": conversation}, of="ask", cache=cache)
    assert hashed_bytes > 2_000_000
    hashed_bytes = 0
    for _ in range(10):
        conversation.append({"role": "user", "content": "y" * 2000})
        digest_arguments({"messages": conversation}, of="ask", cache=cache)
    assert hashed_bytes < 10 * digest.REFRESH_BYTES


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
