"""Where the items of a list stand in the text of a JSON object, so that those known already need not be read again."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from typing import Final

from msgspec import Raw, Struct

from perdure.adapters.http.growing import Growing

_SPACES: Final = b" \t\r\n"


class Layout(Struct, frozen=True):
    """A list as it stands in a body; places are counted from behind its bracket."""

    spoken: tuple[bytes, ...]
    """The items up to the end of the last one, in pieces, each at least twice as long as the next: to copy all of them
    for every request would take longer than to compare them."""
    ends: Growing[int]
    """Where each item ends."""


def laid_out(body: bytes, start: int, items: list[Raw]) -> Layout:
    """The layout of a list of these items that begins here."""
    ends = _ends(body, start, start, items)
    return Layout((body[start : start + ends[-1]],), Growing(ends))


def grown(before: Layout, shared: int, body: bytes, start: int, new: list[Raw]) -> Layout:
    """The layout of a list that begins here, with so many items of an earlier one, and goes on with new ones."""
    begin = before.ends[shared - 1]
    ends = _ends(body, start, after(body, start + begin), new)
    pieces = list(before.spoken) if shared == len(before.ends) else _cut(before.spoken, begin)
    if ends:
        last = body[start + begin : start + ends[-1]]
        while pieces and len(pieces[-1]) < 2 * len(last):
            last = pieces.pop() + last
        pieces.append(last)
    return Layout(tuple(pieces), before.ends.grown(shared, ends))


def _cut(pieces: tuple[bytes, ...], end: int) -> list[bytes]:
    """The pieces up to this place."""
    kept: list[bytes] = []
    for piece in pieces:
        kept.append(piece[:end])
        end -= len(piece)
        if end <= 0:
            break
    return kept


def list_begins(body: bytes, name: str) -> int | None:
    """Where the items of this field seem to begin: whether it is the field itself, and no other, is seen later."""
    found = _opening(name).search(body)
    return found.end() if found else None


@functools.cache
def _opening(name: str) -> re.Pattern[bytes]:
    return re.compile(rb'"%b"\s*:\s*\[' % name.encode())


def shared_items(body: bytes, start: int, layout: Layout) -> int:
    """How many items of an earlier list stand here, byte for byte."""
    at, count = start, len(layout.ends)
    for piece in layout.spoken:
        if not body.startswith(piece, at):
            count = bisect_right(layout.ends, at + _same(body, at, piece) - start)
            break
        at += len(piece)
    return count if count and _is_over(body, start + layout.ends[count - 1]) else 0


def _same(body: bytes, at: int, piece: bytes) -> int:
    """How many bytes of a piece stand here; it is looked at in place, being long."""
    low, high, text = 0, len(piece), memoryview(piece)
    while low < high:
        middle = (low + high + 1) // 2
        is_same = body.startswith(text[low:middle], at + low)
        low, high = (middle, high) if is_same else (low, middle - 1)
    return low


def _is_over(body: bytes, end: int) -> bool:
    """Whether a value that ends here really ends here, and the list goes on well: a number could have more digits."""
    at = _behind_spaces(body, end)
    if body[at : at + 1] == b",":
        following = _behind_spaces(body, at + 1)
        return body[following : following + 1] != b"]"
    return body[at : at + 1] == b"]"


def after(body: bytes, end: int) -> int:
    """Where the next item may begin, or the bracket that closes."""
    at = _behind_spaces(body, end)
    return at + 1 if body[at : at + 1] == b"," else at


def _behind_spaces(body: bytes, at: int) -> int:
    while body[at : at + 1] and body[at] in _SPACES:
        at += 1
    return at


def start_of(body: bytes, fields: dict[str, Raw], name: str) -> int | None:
    """Where the items of this field begin, where the body is plainly its fields, one behind the other."""
    at, found = _behind_spaces(body, 0) + 1, None
    for each, raw in fields.items():
        key = b'"%s"' % each.encode()
        at = _behind_spaces(body, at)
        if not body.startswith(key, at):
            return None
        at = _behind_spaces(body, _behind_spaces(body, at + len(key)) + 1)
        if each == name:
            found = at + 1
        at = _behind_spaces(body, at + len(memoryview(raw))) + 1
    return found if not body[at:].strip() and body[at - 1 : at] == b"}" else None


def _ends(body: bytes, start: int, at: int, items: list[Raw]) -> list[int]:
    """Where each of these items of the list that begins here ends; the first of them may begin there."""
    ends = []
    for item in items:
        end = _behind_spaces(body, at) + len(memoryview(item))
        ends.append(end - start)
        at = _behind_spaces(body, end) + 1
    return ends
