"""What tools change in memory is put back once, by however many names one object is reached."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from perdure.adapters.tools.context import Changes, Memory
from perdure.adapters.tools.results import changes_in, with_changes

FILE: Final = "errand.py"


@dataclass
class Deps:
    """What a framework hands to tools."""

    pages: list[str] = field(default_factory=list)
    n: int = 0


class Reports:
    """Takes what is said of memory that is not put back."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def report(self, _about: str, text: str) -> None:
        self.said.append(text)


class Process:
    """A script that was loaded anew, and its tools."""

    def __init__(self, source: str) -> None:
        self.names: dict[str, Any] = {"__name__": "errand", "Deps": Deps}
        exec(compile(source, FILE, "exec"), self.names)  # noqa: S102 - the scripts stand below
        self.reports = Reports()
        self.memory = Memory(lambda file: file in (FILE, __file__), self.reports)  # type: ignore[arg-type]

    def around(self, name: str) -> Any:
        tool: Callable[..., Any] = self.names[name]
        handed = {"deps": self.names["deps"]} if "deps" in self.names else {}
        return self.memory.around(name, tool, (), handed)

    def perform(self, name: str, argument: str) -> Changes | None:
        around = self.around(name)
        around.begin()
        self.names[name](argument)
        return changes_in(with_changes("done", around.end()))

    def put_back(self, name: str, made: Changes | None) -> None:
        if made is not None:
            self.around(name).put_back(made)

    def tell(self, what: str) -> str:
        return repr(eval(what, self.names))  # noqa: S307


HANDED_AND_GLOBAL: Final = """
deps = Deps()
def one(what): deps.pages.append(what); deps.n += 1
def two(what): deps.pages.append(what); deps.n += 1
"""

LIST_OF_A_DICT: Final = """
state = {"pages": [], "n": 0}
pages = state["pages"]
def one(what): pages.append(what); state["n"] += 1
def two(what): state["pages"].append(what); state["n"] += 1
"""

NESTED: Final = """
state = {"inner": {"pages": [], "n": 0}}
pages = state["inner"]["pages"]
def one(what): pages.append(what); state["inner"]["n"] += 1
def two(what): state["inner"]["pages"].append(what)
"""

EACH_BY_ITS_OWN_NAME: Final = """
state = {"inner": {"pages": []}}
pages = state["inner"]["pages"]
def one(what): pages.append(what)
def two(what): state["inner"]["pages"].append(what)
"""

ITEM_OF_A_LIST: Final = """
tasks = [{"name": "a", "done": []}, {"name": "b", "done": []}]
current = tasks[0]
def one(what): current["done"].append(what); tasks[1]["done"].append(what)
def two(what): tasks.insert(0, {"name": what, "done": []})
"""

SET_TO_ANOTHER: Final = """
state = {"pages": []}
pages = state["pages"]
def one(what):
    global pages
    pages = [what]
def two(what): pages.append(what); state["last"] = what
"""

BECOMES_THE_SAME: Final = """
state = {"pages": [], "spare": []}
other = {"pages": []}
def one(what): state["pages"] = other["pages"] = [what]
def two(what): state["pages"].append(what); state["spare"] = other
"""

CLOSED_OVER: Final = """
def made():
    n, more = 0, []
    def one(what):
        nonlocal n
        n += 1
    def two(what):
        nonlocal n
        n += 1
        more.append(what)
    return one, two, lambda: (n, more)
one, two, told = made()
"""

WHOLE_AND_IN_PARTS: Final = """
state = {"pages": [], "n": 0}
def one(what):
    global state
    state["pages"].append(what)
    state |= {"n": state["n"] + 1}
def two(what):
    global state
    state = {**state, "last": what}
"""

KEYS_OF_OTHER_KINDS: Final = """
counts = {}
def one(what): counts[len(counts)] = what
def two(what): counts.clear(); counts[what] = 1
"""

SCRIPTS: Final = {
    "handed and global": (HANDED_AND_GLOBAL, "deps"),
    "a list of a dict": (LIST_OF_A_DICT, "state, pages, pages is state['pages']"),
    "nested": (NESTED, "state, pages, pages is state['inner']['pages']"),
    "each by its own name": (EACH_BY_ITS_OWN_NAME, "state, pages, pages is state['inner']['pages']"),
    "an item of a list": (ITEM_OF_A_LIST, "tasks, current, [each is current for each in tasks]"),
    "set to another": (SET_TO_ANOTHER, "state, pages"),
    "becomes the same": (BECOMES_THE_SAME, "state, other, state['pages'] is other['pages'], state['spare'] is other"),
    "closed over": (CLOSED_OVER, "told()"),
    "whole and in parts": (WHOLE_AND_IN_PARTS, "state"),
    "keys of other kinds": (KEYS_OF_OTHER_KINDS, "counts"),
}
CALLS: Final = (("one", "a"), ("two", "b"), ("one", "c"), ("two", "d"), ("two", "e"), ("one", "f"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_resume_after_any_tool_finds_everything_as_it_was(name: str) -> None:
    source, what = SCRIPTS[name]
    whole = Process(source)
    journal = [whole.perform(*call) for call in CALLS]
    for first, second in itertools.combinations_with_replacement(range(len(CALLS) + 1), 2):
        before = Process(source)
        for (tool, _), made in zip(CALLS[:first], journal, strict=False):
            before.put_back(tool, made)
        again = journal[:first] + [before.perform(*call) for call in CALLS[first:second]]
        after = Process(source)
        for (tool, _), made in zip(CALLS, again, strict=False):
            after.put_back(tool, made)
        for call in CALLS[second:]:
            after.perform(*call)
        assert after.tell(what) == whole.tell(what), (first, second)
        assert (before.reports.said, after.reports.said) == ([], [])


@pytest.mark.parametrize("name", ["handed and global", "a list of a dict", "nested", "each by its own name"])
@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_tools_that_were_performed_at_once_are_put_back_once_in_any_order(name: str, order: tuple[int, ...]) -> None:
    source, what = SCRIPTS[name]
    whole = Process(source)
    calls = CALLS[:3]
    arounds = [whole.around(tool) for tool, _ in calls]
    for around in arounds:
        around.begin()
    journal = []
    for around, (tool, argument) in zip(arounds, calls, strict=True):
        whole.names[tool](argument)
        journal.append(around.end())
    after = Process(source)
    for number in order:
        after.put_back(calls[number][0], journal[number])
    assert after.tell(what) == whole.tell(what)


@pytest.mark.parametrize("name", ["handed and global", "a list of a dict", "nested"])
def test_what_a_tool_that_is_performed_anew_has_changed_meanwhile_is_kept_once(name: str) -> None:
    source, _ = SCRIPTS[name]
    recorded = Process(source).perform("one", "a")
    after = Process(source)
    after.perform("two", "b")
    after.put_back("one", recorded)
    pages = after.names["deps"].pages if "deps" in after.names else after.names["pages"]
    assert sorted(pages) == ["a", "b"]


def test_one_object_is_recorded_by_one_name() -> None:
    made = Process(HANDED_AND_GLOBAL).perform("one", "a")
    assert made is not None
    assert made.put == {"deps.pages": '["a"]', "deps.n": "1"}


def test_a_change_that_was_recorded_by_both_names_is_put_back_once() -> None:
    after = Process(HANDED_AND_GLOBAL)
    for order, (now, then) in enumerate([('["a"]', "[]"), ('["a","b"]', '["a"]')], 1):
        put = {"deps.pages": now, "deps.n": str(order), "errand.deps.pages": now, "errand.deps.n": str(order)}
        base = {
            "deps.pages": then,
            "deps.n": str(order - 1),
            "errand.deps.pages": then,
            "errand.deps.n": str(order - 1),
        }
        after.put_back("one", Changes(order, put, [], base))
    assert after.tell("deps") == "Deps(pages=['a', 'b'], n=2)"
