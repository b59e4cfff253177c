"""However a call is written, it binds to the same arguments, which are those that Python itself would bind."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import describe
from perdure.engine.signature import Signature, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable

SHARED: list[int] = [1]


def none() -> None: ...
def one(defaults: int) -> None: ...
def some(first: int, second: str = "two", third: object = SHARED) -> None: ...
def by_place(first: int, /, second: str = "'two'") -> None: ...
def by_name(first: int, *, second: str, third: float = float("nan")) -> None: ...
def all_kinds(first: int, /, second: int = 2, *, third: int, fourth: Any = None) -> None: ...
def any_number(*items: int, **named: int) -> None: ...
def umlaut(größe: int = 3) -> None: ...  # noqa: PLC2401 - as a function of a user may have it


class Shop:
    def order(self, __what: str, count: int = 1) -> None: ...  # noqa: PYI063 - a name that Python changes


FUNCTIONS = (none, one, some, by_place, by_name, all_kinds, any_number, umlaut, Shop().order, Shop.order, len)
CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((), {"first": 1}),
    ((1,), {"second": 2}),
    ((1,), {"first": 1}),
    ((1,), {"third": 3}),
    ((1,), {"third": 3, "second": 2}),
    ((), {"defaults": 1}),
    ((), {"größe": 4}),
    ((), {"no name": 4}),
)


def outcome(bind: Callable[[], dict[str, Any]]) -> str:
    """The arguments by name, or why there are none."""
    try:
        return repr(bind())
    except TypeError as misfit:
        return str(misfit)


def inspected(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as misfit:
        raise TypeError(f"{function.__qualname__}(): {misfit}") from None
    bound.apply_defaults()
    return bound.arguments


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_arguments_are_those_that_python_would_bind(function: Callable[..., Any]) -> None:
    signature = Signature(function, word="step")
    for args, kwargs in CALLS:
        expected = outcome(lambda: inspected(function, args, kwargs))  # noqa: B023 - called at once
        assert outcome(lambda: signature.bind(args, kwargs)) == expected  # noqa: B023


def test_default_is_the_very_object_that_the_function_has() -> None:
    assert Signature(some, word="step").bind((1,), {})["third"] is SHARED


@pytest.mark.parametrize("names", [["__debug__"], ["ª", "a"], ["ﬁ", "fi"]], ids=["__debug__", "a", "fi"])
def test_names_that_no_def_could_have_are_bound_all_the_same(names: list[str]) -> None:
    def tool(**arguments: int) -> None: ...

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    tool.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    given = {name: place for place, name in enumerate(names)}
    assert Signature(tool, word="effect").bind((), given) == given


@given(st.lists(st.text(max_size=50) | st.integers() | st.dictionaries(st.text(max_size=9), st.text(max_size=50))))
def test_a_list_of_which_only_the_beginning_is_looked_at_is_shown_as_if_it_were_all(value: list[object]) -> None:
    assert shown_value(value) == describe(value, 40)
