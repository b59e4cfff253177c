"""Which calls of the user's functions are tool calls: what the model asked for, performed once, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.adapters.http.wire import ToolCall
from perdure.adapters.tools.pending import Awaited, Pending
from perdure.adapters.userland.functions import guard
from perdure.adapters.userland.source import compiled
from perdure.engine.session import close_sessions
from perdure.settings import Settings


class Performer:
    """Takes the place of whoever performs tools: performs them, and remembers what it was given."""

    def __init__(self) -> None:
        self.pending = Pending(self._heed)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def _heed(self, any_awaited: bool) -> None:
        guard.any = any_awaited

    def ask(self, name: str, number: str = "1", **arguments: Any) -> None:
        """What a model asks for."""
        self.pending.note(f"=model:{number}@main", [ToolCall(number, name, arguments, "")])

    def perform(
        self, awaited: Awaited, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._take(awaited, args, kwargs)
        return "performed", function(*args, **kwargs)

    async def perform_async(
        self, awaited: Awaited, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._take(awaited, args, kwargs)
        return "performed", await function(*args, **kwargs)

    def _take(self, awaited: Awaited, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert self.pending.take(awaited)
        self.calls.append((awaited.call.id, args, kwargs))


@pytest.fixture
def performer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Performer]:
    monkeypatch.chdir(tmp_path)
    perdure.configure(store=tmp_path / "perdure.db", durability="process")
    made = Performer()
    guard.connect(find=made.pending.of_name, perform=made.perform, perform_async=made.perform_async)
    yield made
    guard.any = False
    guard.connect(find=lambda _name: (), perform=made.perform, perform_async=made.perform_async)
    close_sessions()
    perdure.configure(**dict.fromkeys(Settings.__struct_fields__))


def users(text: str) -> dict[str, Any]:
    """The names of a module of the user's."""
    names: dict[str, Any] = {"__name__": "users"}
    exec(compiled(textwrap.dedent(text), "users.py"), names)  # noqa: S102
    return names


def in_run(work: Callable[[], Any]) -> Any:
    """What the work gives as the agent of a run."""
    given: list[Any] = []

    @perdure.agent
    def agent() -> None:
        given.append(work())

    agent()
    return given[0]


def test_a_call_that_was_asked_for_is_performed_once(performer: Performer) -> None:
    send = users("def send(to, text='hi'): return to, text")["send"]
    performer.ask("send", to="ann")
    assert in_run(lambda: [send("ann"), send("ann")]) == [("performed", ("ann", "hi")), ("ann", "hi")]
    assert performer.calls == [("1", ("ann", "hi"), {})]


def test_a_coroutine_that_was_asked_for_is_performed_once(performer: Performer) -> None:
    send = users("async def send(to, *, text='hi'):\n    return to, text")["send"]
    performer.ask("send", to="ann")

    async def both() -> list[Any]:
        return [await send(to="ann"), await send("ann")]

    assert in_run(lambda: asyncio.run(both())) == [("performed", ("ann", "hi")), ("ann", "hi")]
    assert performer.calls == [("1", ("ann",), {"text": "hi"})]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("def other(to): return to", "other('ann')"),
        ("def send(to): return to", "send('bob')"),
        ("def send(person): return person", "send('bob')"),
        ("def send(to):\n    yield to", "next(send('ann'))"),
        ("send = lambda to: to", "send('ann')"),
    ],
    ids=["another name", "another argument", "another argument by another name", "a generator", "a lambda"],
)
def test_what_was_not_asked_for_is_a_plain_call(performer: Performer, text: str, call: str) -> None:
    names = users(text)
    performer.ask("send", to="ann")
    in_run(lambda: eval(call, names))  # noqa: S307
    assert performer.calls == []


def test_outside_a_run_every_call_is_plain(performer: Performer) -> None:
    send = users("def send(to): return to")["send"]
    performer.ask("send", to="ann")
    assert send("ann") == "ann"
    assert performer.calls == []


def test_inside_the_body_of_a_step_every_call_is_plain(performer: Performer) -> None:
    send = users("def send(to): return to")["send"]
    performer.ask("send", to="ann")

    @perdure.step
    def body() -> str:
        found: str = send("ann")
        return found

    assert in_run(body) == "ann"
    assert performer.calls == []


def test_a_tool_that_is_called_inside_a_tool_is_part_of_it(performer: Performer) -> None:
    names = users("def outer(a): return inner(a)\ndef inner(a): return a\ndef again(n): return n and again(n - 1)")
    performer.ask("again", n=3)
    assert in_run(lambda: names["again"](3)) == ("performed", 0)
    assert len(performer.calls) == 1


def test_of_two_calls_alike_each_is_performed(performer: Performer) -> None:
    send = users("def send(to): return to")["send"]
    performer.ask("send", "1", to="ann")
    performer.ask("send", "2", to="ann")
    assert in_run(lambda: [send("ann"), send("ann"), send("ann")]) == [
        ("performed", "ann"),
        ("performed", "ann"),
        "ann",
    ]
    assert [number for number, *_ in performer.calls] == ["1", "2"]


def test_each_call_is_known_by_its_arguments_in_any_order(performer: Performer) -> None:
    search = users("def search(query, page=1): return query, page")["search"]
    performer.ask("search", "1", query="tea")
    performer.ask("search", "2", query="tea", page=2)
    performer.ask("search", "3", query="milk")
    in_run(lambda: [search("milk"), search("tea", 2), search("tea", page=1)])
    assert [number for number, *_ in performer.calls] == ["3", "2", "1"]


def test_arguments_of_the_dispatcher_are_accepted_where_only_one_call_can_be_meant(performer: Performer) -> None:
    orders = users("def orders(user, status): return user, status")["orders"]
    performer.ask("orders", "1", status="open")
    performer.ask("orders", "2", status="open")
    in_run(lambda: orders("ann", "open"))
    assert performer.calls == []
    performer.pending.take(performer.pending.of_name("orders")[0])
    in_run(lambda: orders("ann", "open"))
    assert [number for number, *_ in performer.calls] == ["2"]


def test_the_object_of_a_method_is_no_argument(performer: Performer) -> None:
    desk = users(
        """
        class Desk(dict):
            def send(self, to): return type(self).__name__, to
            @classmethod
            def call(cls, to): return cls.__name__, to
            @staticmethod
            def mail(to): return to
            def __len__(self): return 3
        """
    )["Desk"]()
    for name in ("send", "call", "mail"):
        performer.ask(name, name, to="ann")
    assert in_run(lambda: [desk.send("ann"), desk.call(to="ann"), desk.mail("ann")]) == [
        ("performed", ("Desk", "ann")),
        ("performed", ("Desk", "ann")),
        ("performed", "ann"),
    ]


def test_a_function_made_inside_another_is_performed_with_its_own_variables(performer: Performer) -> None:
    make = users(
        """
        def make(client):
            count = 0
            def send(to):
                nonlocal count
                count += 1
                return client, to, count
            return send
        """
    )["make"]
    first, second = make("a"), make("b")
    performer.ask("send", "1", to="ann")
    performer.ask("send", "2", to="bob")
    performer.ask("send", "3", to="cem")
    assert in_run(lambda: [second("ann"), first("bob"), second("cem")]) == [
        ("performed", ("b", "ann", 1)),
        ("performed", ("a", "bob", 1)),
        ("performed", ("b", "cem", 2)),
    ]


def test_functions_that_are_gone_are_not_kept(performer: Performer) -> None:
    names = users("class Heavy: pass\ndef make(x):\n    def send(to): return x\n    return send\n")
    heavy = names["Heavy"]()
    sends = [names["make"](heavy)]
    performer.ask("send", to="ann")
    in_run(lambda: sends[0]("ann"))
    sends.clear()
    assert [each for each in gc.get_referrers(heavy) if not isinstance(each, dict)] == []


@pytest.mark.parametrize(
    ("head", "call", "arguments"),
    [
        ("a, /, b, *rest, c=1, **more", "tool(1, 2, 3, c=4, d=5)", {"a": 1, "b": 2, "rest": [3], "c": 4, "d": 5}),
        ("*, a", "tool(a=1)", {"a": 1}),
        ("**more", "tool(a=1, b=2)", {"a": 1, "b": 2}),
        ("", "tool()", {}),
        ("a", "[(lambda: tool(x))() for x in [1]]", {"a": 1}),
    ],
)
def test_every_way_to_pass_arguments_is_repeated_as_it_was(
    performer: Performer, head: str, call: str, arguments: dict[str, Any]
) -> None:
    names = users(f"def tool({head}):\n    def uses(): return locals()\n    return sorted(locals().items(), key=str)\n")
    expected = [value for value in eval(call, names) if True]  # noqa: S307
    performer.ask("tool", **arguments)
    given = in_run(lambda: eval(call, names))  # noqa: S307
    assert len(performer.calls) == 1
    shown = given[1] if isinstance(given, tuple) else given[0][1]
    plain = expected if isinstance(given, tuple) else expected[0]
    assert [item for item in shown if item[0] != "uses"] == [item for item in plain if item[0] != "uses"]


def test_threads_of_the_script_are_guarded(performer: Performer) -> None:
    send = users("def send(to): return to")["send"]
    performer.ask("send", "1", to="ann")
    performer.ask("send", "2", to="bob")

    def work() -> None:
        threads = [threading.Thread(target=send, args=(to,)) for to in ("ann", "bob")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    in_run(work)
    assert sorted(number for number, *_ in performer.calls) == ["1", "2"]


def test_what_a_tool_raises_reaches_its_caller(performer: Performer) -> None:
    send = users("def send(to): raise ValueError(to)")["send"]
    performer.ask("send", to="ann")

    def work() -> None:
        with pytest.raises(ValueError, match="ann"):
            send("ann")

    in_run(work)
    assert len(performer.calls) == 1
