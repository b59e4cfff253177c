"""Moments as a tree: what one task, thread, inline agent or map did stands together, below its name. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure.cli.timeline import Moment
from perdure.records import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MOST_LEVELS: Final = 12
"""Deeper ones are told at this level, or a recursion would push the calls off the screen."""

_MARKS: Final = frozenset({Kind.DELIVERY, Kind.ENDED, Kind.REPAIRED})
_CONFIRMING: Final = frozenset({Kind.RECEIPT, Kind.ATTEMPT})
_MAP_KEY: Final = re.compile(r"\.\d+$")


class Branch(Struct, frozen=True):
    """The name above what a scope did."""

    label: str


class Leaf(Struct, frozen=True):
    """A line of the tree: a moment or the name of a branch, and how deep it stands."""

    depth: int
    what: Moment | Branch


class _Node:
    """A scope and what happened in it, in the order in which each part began."""

    def __init__(self) -> None:
        self.parts: list[Moment | tuple[str, _Node]] = []
        self._inner: dict[str, _Node] = {}

    def inner(self, scope: str) -> _Node:
        if scope not in self._inner:
            self._inner[scope] = _Node()
            self.parts.append((scope, self._inner[scope]))
        return self._inner[scope]


def tree(moments: Iterable[Moment], names: Mapping[str, str]) -> Iterator[Leaf]:
    """The lines of a timeline; `names` are the names of steps by key.

    What happened between two deliveries or stops is one tree, so that a crash stands where it struck. An intent that
    was confirmed in time is not told: its receipt tells it.
    """
    section: list[Moment] = []
    for moment in moments:
        if moment.record not in _MARKS:
            section.append(moment)
            continue
        yield from _grown(section, names)
        yield Leaf(0, moment)
        section = []
    yield from _grown(section, names)


def label_of(scope: str, names: Mapping[str, str]) -> str:
    """A scope as a person would call it: `work.<locals>.branch#1` is branch #2."""
    if _MAP_KEY.search(scope):
        return names.get(scope, "map")
    name, _, occurrence = scope.rpartition("#")
    short = name.rpartition("<locals>.")[2] or scope
    return short if occurrence in ("", "0") else f"{short} #{int(occurrence) + 1}"


def _grown(section: list[Moment], names: Mapping[str, str]) -> Iterator[Leaf]:
    confirmed = {moment.key: moment.seq for moment in section if moment.record in _CONFIRMING}
    root = _Node()
    for moment in section:
        if moment.record == Kind.INTENT and confirmed.get(moment.key, -1) > moment.seq:
            continue
        node = root
        for scope in moment.scope[:MOST_LEVELS]:
            node = node.inner(scope)
        node.parts.append(moment)
    yield from _leaves(root, 0, names)


def _leaves(node: _Node, depth: int, names: Mapping[str, str]) -> Iterator[Leaf]:
    for part in node.parts:
        if isinstance(part, Moment):
            yield Leaf(depth, part)
        else:
            scope, inner = part
            yield Leaf(depth, Branch(label_of(scope, names)))
            yield from _leaves(inner, depth + 1, names)
