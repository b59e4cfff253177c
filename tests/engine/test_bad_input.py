"""What cannot work is refused with its name, its value and what to do instead."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.engine.session import close_sessions
from perdure.errors import InvalidSettings, PerdureError, SchemaTooNew, StoreUnavailable, UnstorableValue, UsageError
from tests.engine.journals import runs
from tests.engine.world import world


@perdure.step
def returns(value: Any) -> Any:
    return VALUES[value]()


@perdure.step
def takes(value: Any) -> None:
    world.note("performed")


@perdure.effect
def sends(value: Any) -> None:
    world.note("performed")


@perdure.agent
def returning(what: str) -> Any:
    return returns(what)


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def _socket() -> socket.socket:
    opened = socket.socket()
    opened.close()
    return opened


VALUES: dict[str, Callable[[], Any]] = {
    "a socket": _socket,
    "a lambda": lambda: {"callback": lambda: None},
    "200 MB": lambda: "x" * (200 * 1024 * 1024),
    "NaN": lambda: [1.0, float("nan")],
    "an infinity": lambda: {"price": float("inf")},
    "a lone surrogate": lambda: {"name": "\ud800"},
    "itself": _cycle,
    "an instance without annotation": lambda: Path,
}
SAID: dict[str, str] = {
    "a socket": r"result is a socket.socket",
    "a lambda": r"result.callback is a lambda",
    "200 MB": r"result is 200.0 MB, the limit is 64 MB",
    "NaN": r"result\[1\] is NaN",
    "an infinity": r"result.price.*inf",
    "a lone surrogate": r"result.name",
    "itself": r"result contains itself|contains itself",
    "an instance without annotation": r"result is",
}


def is_helpful(error: PerdureError) -> bool:
    return bool(error.message and error.hint and len(error.message) < 2000)


@pytest.mark.parametrize("what", VALUES)
def test_a_result_that_cannot_be_stored_names_the_step_and_the_part(what: str) -> None:
    with pytest.raises(UnstorableValue) as caught:
        perdure.run(returning, what, run_id="r")
    assert re.search(rf"Step 1 \(returns\) cannot be saved: {SAID[what]}", caught.value.message), caught.value.message
    assert is_helpful(caught.value)
    assert caught.value.safe


@pytest.mark.parametrize("call", [takes, sends], ids=["step", "effect"])
@pytest.mark.parametrize(
    "argument",
    [lambda: None, float("nan"), "\udc00", object(), {"deep": [b"ok", {1, 2}, open]}],
    ids=["lambda", "nan", "surrogate", "object", "deep"],
)
def test_an_argument_that_cannot_be_stored_is_refused_before_the_body_runs(
    call: Callable[[Any], None], argument: Any
) -> None:
    @perdure.agent
    def agent() -> None:
        call(argument)

    with pytest.raises(UnstorableValue, match=rf"argument value.* of {call.__name__}") as caught:
        perdure.run(agent)
    assert is_helpful(caught.value)
    assert world.lines == []


@pytest.mark.parametrize("argument", [lambda: None, float("nan"), "\udc00"], ids=["lambda", "nan", "surrogate"])
def test_an_argument_of_an_agent_that_cannot_be_stored_starts_nothing(argument: Any) -> None:
    @perdure.agent
    def agent(value: Any) -> None:
        world.note("performed")

    with pytest.raises(UnstorableValue, match="argument value"):
        perdure.run(agent, argument)
    assert runs() == []


def test_a_call_with_the_wrong_number_of_arguments_is_the_type_error_python_raises() -> None:
    @perdure.agent
    def agent() -> None:
        takes()  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="value"):
        perdure.run(agent)


def test_two_calls_with_one_explicit_key_are_refused() -> None:
    @perdure.step(key="the same")
    def keyed(label: str) -> str:
        world.note(label)
        return label

    @perdure.agent
    def agent() -> str:
        return keyed("a") + keyed("b")

    with pytest.raises(
        UsageError, match=r"keyed\(label='b'\): the key 'the same' was used by an earlier call"
    ) as caught:
        perdure.run(agent)
    assert "make key= differ" in caught.value.hint
    assert world.lines == ["a"]


@pytest.mark.parametrize("key", ["\ud800", "x" * 5000])
def test_an_explicit_key_that_cannot_be_stored_is_refused(key: str) -> None:
    @perdure.step(key=lambda: key)
    def keyed() -> str:
        world.note("performed")
        return "value"

    @perdure.agent
    def agent() -> str:
        return keyed()

    with pytest.raises(UsageError, match="key") as caught:
        perdure.run(agent)
    assert is_helpful(caught.value)
    assert world.lines == []


def test_a_name_that_cannot_be_stored_is_refused_when_it_is_decorated() -> None:
    for decorate in (perdure.step, perdure.effect, perdure.agent):
        with pytest.raises(UsageError, match="name"):
            decorate(name="\ud800")(lambda: None)


def test_a_store_written_by_a_newer_perdure_is_refused_and_not_touched(store: Path) -> None:
    perdure.run(returning_nothing)
    close_sessions()
    connection = apsw.Connection(str(store))
    connection.pragma("user_version", 999)
    connection.close()
    before = store.read_bytes()
    with pytest.raises(SchemaTooNew, match=r"schema 999") as caught:
        perdure.run(returning_nothing)
    assert "pip install --upgrade perdure" in caught.value.hint
    assert store.read_bytes() == before


@perdure.agent
def returning_nothing() -> None:
    return None


def test_a_store_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    perdure.configure(store=tmp_path)
    with pytest.raises(StoreUnavailable, match="is a directory") as caught:
        perdure.run(returning_nothing)
    assert "name a file in it" in caught.value.hint


def test_a_store_that_is_no_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, and no database\n" * 100)
    before = path.read_bytes()
    perdure.configure(store=path)
    with pytest.raises(PerdureError) as caught:
        perdure.run(returning_nothing)
    assert is_helpful(caught.value)
    assert path.read_bytes() == before


def test_an_unknown_setting_is_refused_with_the_list_of_those_there_are() -> None:
    with pytest.raises(InvalidSettings, match="sotre") as caught:
        perdure.configure(sotre="x")
    assert "store" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "word"),
    [({"timeout": "30"}, "timeout"), ({"retry": 3}, "retry"), ({"key": 7}, "key"), ({"name": ""}, "name")],
)
@pytest.mark.parametrize("decorate", [perdure.step, perdure.effect], ids=["step", "effect"])
def test_an_option_of_the_wrong_kind_is_refused_when_it_is_decorated(
    decorate: Callable[..., Any], options: dict[str, Any], word: str
) -> None:
    with pytest.raises(UsageError, match=word) as caught:
        decorate(**options)(lambda: None)
    assert is_helpful(caught.value)


def test_a_decorator_on_something_that_is_no_function_is_refused() -> None:
    for decorate in (perdure.step, perdure.effect, perdure.agent):
        with pytest.raises(UsageError, match="needs a function"):
            decorate(7)  # type: ignore[call-overload]


def test_durability_must_be_one_of_two_words() -> None:
    with pytest.raises(UsageError, match="durability='fast'") as caught:
        perdure.agent(durability="fast")(lambda: None)  # type: ignore[call-overload]
    assert "power" in caught.value.hint
