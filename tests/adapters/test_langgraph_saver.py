"""What a saver promises beyond LangGraph's own suite: order, room, distrust, and company."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from pydantic import BaseModel

from perdure.errors import CheckpointCorrupt, ResumeError, StoreUnavailable, UnstorableValue, UsageError
from perdure.store import open_store
from perdure.store.protocol import Finding
from tests.adapters.conversations import checkpoint, config, grow, message, put, values
from tests.adapters.lazily import Lazily

if TYPE_CHECKING:
    from langchain_core import messages as langchain
    from langgraph.checkpoint.serde import jsonplus

    from perdure.adapters import langgraph as adapter
else:
    adapter = Lazily("perdure.adapters.langgraph")
    jsonplus = Lazily("langgraph.checkpoint.serde.jsonplus")
    langchain = Lazily("langchain_core.messages")


class Flight(BaseModel):
    number: str
    seats: list[str]


@dataclass(frozen=True)
class Booking:
    flight: Flight
    cents: int


def test_values_come_back_as_the_serializer_alone_would_give_them(saver: adapter.PerdureSaver) -> None:
    stored: dict[str, Any] = {
        "messages": [
            langchain.HumanMessage("hi", id="1"),
            langchain.AIMessage("", id="2", tool_calls=[{"name": "f", "args": {}, "id": "c"}]),
        ],
        "bookings": {"first": Booking(Flight(number="PX1", seats=["1A"] * 2000), 100)},
        "nested": {"deep": {"list": [{"n": number, "flag": True, "one": 1.0} for number in range(500)]}},
        "long": "x" * 100_000,
        "nothing": None,
        "bytes": b"\x00\xff" * 10,
        "empty": [[], {}, "", {"": []}],
        "odd keys": {1: "one", "2": "two"},
        "pair": (1, [2]),
        "same": [["a" * 100]] * 300,
    }
    named = put(saver, config("t"), 0, **stored)
    read = values(saver, named)
    whole = {name: saver.serde.loads_typed(saver.serde.dumps_typed(value)) for name, value in stored.items()}
    assert read == whole
    assert [type(value) for value in read.values()] == [type(value) for value in whole.values()]
    assert type(read["nested"]["deep"]["list"][0]["flag"]) is bool
    assert type(read["nested"]["deep"]["list"][0]["one"]) is float


def test_names_of_any_text_are_kept_apart(saver: adapter.PerdureSaver) -> None:
    names = ["a", "a\0", "a\0b", "a\1", "a\1\2", "", "ä|:\uffff", "a" * 500]
    for number, name in enumerate(names):
        put(saver, config(name or "none"), 0, n=number)
        put(saver, config("one thread", namespace=name), 0, n=number)
    for number, name in enumerate(names):
        assert values(saver, config(name or "none"))["n"] == number
        assert values(saver, config("one thread", namespace=name))["n"] == number
    saver.delete_thread("a")
    assert saver.get_tuple(config("a")) is None
    assert values(saver, config("a\0"))["n"] == 1


def test_writes_are_not_seen_before_their_checkpoint(saver: adapter.PerdureSaver) -> None:
    coming = checkpoint(0, n=1)
    named = config("t", checkpoint_id=coming["id"])
    saver.put_writes(named, [("n", 2)], "task")
    assert saver.get_tuple(named) is None
    assert saver.get_tuple(config("t")) is None
    assert list(saver.list(config("t"))) == []
    assert list(saver.list(None)) == []
    saver.put(config("t"), coming, {"source": "loop", "step": 0, "parents": {}}, {})
    found = saver.get_tuple(config("t"))
    assert found is not None
    assert found.pending_writes == [("task", "n", 2)]


def test_writes_come_in_the_order_in_which_langgraph_applies_them(saver: adapter.PerdureSaver) -> None:
    named = put(saver, config("t"), 0, n=0)
    saver.put_writes(named, [("n", 10 + number) for number in range(12)], "a task", task_path="~2")
    saver.put_writes(named, [("n", 1)], "z task", task_path="~1")
    found = saver.get_tuple(named)
    assert found is not None
    assert [value for _, _, value in found.pending_writes or []] == [1, *range(10, 22)]


def test_an_older_checkpoint_put_late_does_not_become_the_newest(saver: adapter.PerdureSaver) -> None:
    older, newer = checkpoint(0, n="older"), checkpoint(1, n="newer")
    for made in (newer, older):
        saver.put(config("t"), made, {"source": "loop", "step": 0, "parents": {}}, {})
    assert values(saver, config("t")) == {"n": "newer"}


@pytest.mark.parametrize("change", ["content", "number", "nested", "type of a number"])
def test_a_message_changed_in_place_is_kept_as_it_is_now(saver: adapter.PerdureSaver, change: str) -> None:
    changed = langchain.AIMessage(
        "x" * 200, id="1", response_metadata={"one": 1, "parts": ["a"]}, additional_kwargs={"k": ["v"]}
    )
    plain = langchain.HumanMessage("y" * 200, id="2", additional_kwargs={"k": ["v"]})
    first = put(saver, config("t"), 0, messages=[changed, plain])
    before = values(saver, first)["messages"]
    if change == "content":
        changed.content, plain.content = "other", "also other"
    elif change == "number":
        changed.response_metadata["one"] = 2
    elif change == "nested":
        changed.additional_kwargs["k"].append("more")
        plain.additional_kwargs["k"].append("more")
    else:
        changed.response_metadata["one"] = True
    second = put(saver, first, 1, messages=[changed, plain])
    read = values(saver, second)["messages"]
    assert read == [changed, plain]
    assert type(read[0].response_metadata["one"]) is type(changed.response_metadata["one"])
    assert values(saver, first)["messages"] == before


def test_what_is_read_and_changed_is_kept_as_it_is_now(saver: adapter.PerdureSaver) -> None:
    grow(saver, "t", steps=3)
    read = values(saver, config("t"))["messages"]
    read[1].content = "changed after reading"
    put(saver, config("t"), 5, messages=read)
    assert values(saver, config("t"))["messages"][1].content == "changed after reading"


def test_a_growing_conversation_takes_the_room_of_its_messages(in_file: adapter.PerdureSaver, path: Path) -> None:
    grow(in_file, "t", steps=150, characters=2000)
    assert _number(path, "SELECT sum(length(key) + length(value)) FROM cabinet") < 150 * (
        2000 + 4000
    )  # whole, they would take 22 MB


@pytest.mark.parametrize("kind", ["list", "dict", "nested"])
def test_a_change_in_the_middle_or_in_front_costs_a_few_pieces(
    in_file: adapter.PerdureSaver, path: Path, kind: str
) -> None:
    items = {str(number): f"{number} {'x' * 300}" for number in range(1000)}
    shaped: Callable[[dict[str, str]], Any] = {
        "list": lambda kept: [*kept.values()],
        "dict": lambda kept: kept,
        "nested": lambda kept: {"files": {"there": [*kept.values()]}},
    }[kind]
    named = put(in_file, config("t"), 0, state=shaped(items))
    before = _pieces(path)
    assert before > 1000
    del items["0"], items["500"]
    items["700"] = "changed" * 50
    named = put(in_file, named, 1, state=shaped(items))
    assert values(in_file, named)["state"] == shaped(items)
    assert _pieces(path) - before < 30


def test_a_checkpoint_is_read_by_another_saver(location: str) -> None:
    if location == "memory:":
        pytest.skip("it is gone with its process")
    with adapter.PerdureSaver(location) as one, adapter.PerdureSaver(location) as other:
        grow(one, "t", steps=5)
        read = values(other, config("t"))["messages"]
        put(other, config("t"), 9, messages=[*read, message(9)])
        assert values(one, config("t"))["messages"] == [*map(message, (0, 1, 2, 3, 4, 9))]


def test_pieces_that_another_saver_removed_are_written_again(location: str) -> None:
    if location == "memory:":
        pytest.skip("it is gone with its process")
    with adapter.PerdureSaver(location) as one, adapter.PerdureSaver(location) as other:
        messages = [*map(message, range(40))]
        first = put(one, config("t"), 0, messages=messages)
        second = put(one, first, 1, messages=[])
        other.prune(["t"])
        third = put(one, second, 2, messages=messages)
        assert values(other, third)["messages"] == messages
        other.delete_thread("t")
        fourth = put(one, config("t"), 3, messages=messages)
        one.put_writes(fourth, [("messages", messages)], "task")
        assert values(other, fourth)["messages"] == messages


def test_pruning_removes_what_nobody_names_any_more(in_file: adapter.PerdureSaver, path: Path) -> None:
    grow(in_file, "t", steps=30)
    grow(in_file, "other", steps=3)
    put(in_file, config("t"), 40, messages=[message(1)])
    in_file.prune(["t"])
    assert values(in_file, config("t"))["messages"] == [message(1)]
    grow(in_file, "like it", steps=1)
    assert len(list(in_file.list(config("t")))) == 1
    assert _pieces(path, thread="t") == 1
    assert len(list(in_file.list(config("other")))) == 3
    in_file.prune(["t", "other"], strategy="delete")
    assert _pieces(path, thread="t") == 0
    with pytest.raises(UsageError, match="no strategy"):
        in_file.prune(["t"], strategy="all")


def test_a_copied_thread_stands_alone(saver: adapter.PerdureSaver) -> None:
    configs = grow(saver, "t", steps=20)
    saver.put_writes(configs[-1], [("messages", [message(20)])], "task")
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    found = [*saver.list(config("copy"))]
    assert [len(one.checkpoint["channel_values"]["messages"]) for one in found] == [*range(20, 0, -1)]
    assert found[0].pending_writes == [("task", "messages", [message(20)])]


def test_listing_stops_where_it_is_told(saver: adapter.PerdureSaver) -> None:
    configs = grow(saver, "t", steps=70)
    assert [one.metadata["step"] for one in saver.list(config("t"), before=configs[60], limit=3)] == [59, 58, 57]
    assert [one.metadata["step"] for one in saver.list(config("t"), filter={"step": 7})] == [7]
    assert [one.metadata["step"] for one in saver.list(configs[5])] == [5]
    assert len(list(saver.list({"configurable": {"thread_id": "t"}}))) == 70


@pytest.mark.parametrize("strategy", ["piece", "checkpoint", "write", "head", "edition"])
def test_a_flipped_bit_is_an_error_and_never_none(in_file: adapter.PerdureSaver, path: Path, strategy: str) -> None:
    named = grow(in_file, "t", steps=3)[-1]
    in_file.put_writes(named, [("messages", [message(9)])], "task")
    in_file.close()
    prefix = {"piece": "lp", "checkpoint": "lc", "write": "lw", "head": "lh", "edition": "lt"}[strategy]
    _damage(
        path, "UPDATE cabinet SET value = cast('!' || substr(value, 2) AS BLOB) WHERE substr(key, 1, 2) = ?", prefix
    )
    with adapter.PerdureSaver(path) as reopened, pytest.raises(CheckpointCorrupt) as refusal:
        reopened.get_tuple(config("t"))
    assert refusal.value.safe
    assert "perdure verify" in refusal.value.hint
    with contextlib.closing(open_store(str(path), create=False)) as store:
        found = [finding.where for finding in store.check() if isinstance(finding, Finding)]
    assert found
    assert all(where.startswith(f"cabinet {prefix} t") for where in found)


@pytest.mark.parametrize("prefix", ["lp", "lc", "lh"])
def test_a_row_that_is_gone_is_an_error_and_never_none(in_file: adapter.PerdureSaver, path: Path, prefix: str) -> None:
    configs = grow(in_file, "t", steps=3)
    in_file.close()
    newest = configs[-1]["configurable"]["checkpoint_id"].encode()
    gone = "DELETE FROM cabinet WHERE substr(key, 1, 2) = ?1 AND (?1 <> CAST('lc' AS BLOB) OR instr(key, ?2))"
    _damage(path, gone, prefix, newest)
    with adapter.PerdureSaver(path) as reopened, pytest.raises(CheckpointCorrupt) as refusal:
        reopened.get_tuple(config("t"))
    assert refusal.value.safe
    assert refusal.value.hint


def test_damage_names_the_channel_and_the_checkpoint(in_file: adapter.PerdureSaver, path: Path) -> None:
    named = grow(in_file, "t", steps=1)[-1]
    in_file.close()
    _damage(path, "DELETE FROM cabinet WHERE substr(key, 1, 2) = ?", "lp")
    with adapter.PerdureSaver(path) as reopened, pytest.raises(CheckpointCorrupt) as refusal:
        reopened.get_tuple(config("t"))
    assert "Channel 'messages'" in refusal.value.message
    assert named["configurable"]["checkpoint_id"] in refusal.value.message


def test_a_value_that_cannot_be_rebuilt_is_an_error_and_never_none(path: Path) -> None:
    class Forgetful(jsonplus.JsonPlusSerializer):
        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return None if b"Flight" in data[1] else super().loads_typed(data)

    with adapter.PerdureSaver(path, serde=Forgetful()) as saver:
        put(saver, config("t"), 0, flight=Flight(number="PX1", seats=["1A"]))
        with pytest.raises(ResumeError, match="answers with None"):
            saver.get_tuple(config("t"))


def test_a_serializer_that_fails_is_an_error_that_says_what_is_safe(path: Path) -> None:
    class Failing(jsonplus.JsonPlusSerializer):
        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            if b"Flight" in data[1]:
                raise ModuleNotFoundError("flights")
            return super().loads_typed(data)

    with adapter.PerdureSaver(path, serde=Failing()) as saver:
        put(saver, config("t"), 0, flight=Flight(number="PX1", seats=["1A"]))
        with pytest.raises(ResumeError, match="Channel 'flight'") as refusal:
            saver.get_tuple(config("t"))
    assert "kept as it was written" in refusal.value.safe


def test_a_value_that_cannot_be_stored_is_named_and_nothing_of_it_is_kept(saver: adapter.PerdureSaver) -> None:
    first = put(saver, config("t"), 0, messages=[message(0)])
    with pytest.raises(UnstorableValue, match="Channel 'lock'") as refusal:
        put(saver, first, 1, messages=[message(0), message(1)], lock=threading.Lock())
    assert refusal.value.hint
    assert values(saver, config("t")) == {"messages": [message(0)]}


def test_threads_of_one_process_write_at_once(saver: adapter.PerdureSaver) -> None:
    failures: list[BaseException] = []

    def converse(number: int) -> None:
        try:
            configs = grow(saver, f"thread {number % 2}", steps=8)
            saver.put_writes(configs[-1], [("topic", number)], f"task {number}")
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=converse, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for name in ("thread 0", "thread 1"):
        found = [*saver.list(config(name))]
        assert len(found) == 24
        assert all(
            one.checkpoint["channel_values"]["messages"] == [*map(message, range(one.metadata["step"] + 1))]
            for one in found
        )
        newest = saver.get_tuple(config(name))
        assert newest is not None
        assert newest.checkpoint["id"] == max(one.checkpoint["id"] for one in found)


def test_tasks_of_one_loop_write_at_once(saver: adapter.PerdureSaver) -> None:
    async def converse(number: int) -> None:
        made = checkpoint(number, messages=[message(number)])
        named = await saver.aput(config(f"t{number}"), made, {"source": "loop", "step": 0, "parents": {}}, {})
        await saver.aput_writes(named, [("messages", [message(number + 1)])], "task")

    async def converse_all() -> list[int]:
        await asyncio.gather(*map(converse, range(10)))
        return [len(one.pending_writes or []) async for one in saver.alist(None)]

    assert asyncio.run(converse_all()) == [1] * 10


def test_a_thread_from_another_saver_goes_on_with_its_versions(saver: adapter.PerdureSaver) -> None:
    version = f"{7:032}.0.123"
    assert saver.get_next_version(version, None) > version
    assert saver.get_next_version(None, None) == 1
    assert saver.get_next_version(3, None) == 4


def test_without_a_location_the_store_of_the_settings_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_STORE", str(tmp_path / "named.db"))
    with adapter.PerdureSaver() as saver:
        put(saver, config("t"), 0, n=1)
    with adapter.PerdureSaver(tmp_path / "named.db") as saver:
        assert values(saver, config("t")) == {"n": 1}
    with pytest.raises(StoreUnavailable, match="closed"):
        saver.get_tuple(config("t"))


@pytest.mark.parametrize(("durability", "level"), [("", 2), ("power", 2), ("process", 1)])
def test_what_is_acknowledged_is_synced_unless_the_settings_say_otherwise(
    durability: str, level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_DURABILITY", durability)
    with adapter.PerdureSaver(tmp_path / "saver.db") as saver:
        named = put(saver, config("t"), 0, n=1)
        saver.put_writes(named, [("n", 2)], "task")
        cabinet: Any = saver._archive._cabinet  # noqa: SLF001 - only its own connection can tell
        assert cabinet._connection.pragma("synchronous") == level  # noqa: SLF001


def test_a_config_without_a_thread_is_refused(saver: adapter.PerdureSaver) -> None:
    with pytest.raises(UsageError, match="thread_id"):
        saver.get_tuple({"configurable": {}})
    with pytest.raises(UsageError, match="checkpoint_id"):
        saver.put_writes(config("t"), [("n", 1)], "task")


def _pieces(path: Path, *, thread: str = "") -> int:
    prefix = b"lp" + (thread.encode() + b"\0" if thread else b"")
    return _number(path, "SELECT count(*) FROM cabinet WHERE substr(key, 1, ?) = ?", len(prefix), prefix)


def _number(path: Path, query: str, *bindings: int | bytes) -> int:
    ((number,),) = apsw.Connection(str(path)).execute(query, bindings).fetchall()
    assert isinstance(number, int)
    return number


def _damage(path: Path, statement: str, prefix: str, *bindings: bytes) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, (prefix.encode(), *bindings))
    assert connection.changes() > 0
    connection.close()
