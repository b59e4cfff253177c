"""Where the items of a list stand in the text of a JSON object, so that those known already need not be read again."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Raw, Struct

_MOST_PIECES: Final = 32
_SPACES: Final = b" \t\r\n"


class Layout(Struct, frozen=True):
    """A list as it stands in a body; places are counted from behind its bracket."""

    spoken: tuple[bytes, ...] = ()
    """The items up to the end of the last one, in pieces: copying all of them for every request takes longer."""
    ends: list[int] = []
    """Where each item ends."""


def grown(before: Layout, shared: int, items: bytes, ends: list[int]) -> Layout:
    """The layout of a list that begins with so many items of an earlier one; of the others, their text and ends."""
    begin = before.ends[shared - 1] if shared else 0
    made = before.ends[:shared]
    made += ends
    pieces = before.spoken
    if shared < len(before.ends) or len(pieces) >= _MOST_PIECES:
        pieces = (b"".join(pieces)[:begin],)
    return Layout((*pieces, items[: made[-1] - begin]), made)


def list_begins(body: bytes, name: str) -> int | None:
    """Where the items of this field seem to begin: whether it is the field itself, and no other, is seen later."""
    found = re.search(rb'"%s"\s*:\s*\[' % name.encode(), body)
    return found.end() if found else None


def shared_items(body: bytes, start: int, layout: Layout) -> int:
    """How many items of an earlier list stand here, byte for byte."""
    if _stands(body, start, layout.spoken):
        low = len(layout.ends)
    else:
        low, high, spoken = 0, len(layout.ends), b"".join(layout.spoken)
        while low < high:
            middle = (low + high + 1) // 2
            begin, end = layout.ends[low - 1] if low else 0, layout.ends[middle - 1]
            is_same = body[start + begin : start + end] == spoken[begin:end]
            low, high = (middle, high) if is_same else (low, middle - 1)
    return low if low and _is_over(body, start + layout.ends[low - 1]) else 0


def _stands(body: bytes, at: int, pieces: tuple[bytes, ...]) -> bool:
    for piece in pieces:
        if not body.startswith(piece, at):
            return False
        at += len(piece)
    return True


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


def ends_of(body: bytes, at: int, items: list[Raw]) -> list[int]:
    """Where each of these items ends, the first of which may begin here."""
    ends = []
    for item in items:
        end = _behind_spaces(body, at) + len(memoryview(item))
        ends.append(end)
        at = _behind_spaces(body, end) + 1
    return ends
