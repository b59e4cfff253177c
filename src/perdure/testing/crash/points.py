"""What the moments of a run are called at which a process can be killed: a name, a window, and which one of several.

A name is that of a step or an effect, of a verb of the store, of something done to the outside, or of a file. The text
of a point means the same moment in every run of a deterministic agent: `send_email@main.3:after_effect`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure.errors import UsageError
from perdure.records import Kind
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perdure.records import Run

EFFECT_WINDOWS: Final = ("before_intent", "after_intent", "inside_effect", "after_effect", "after_receipt")
"""Of an effect: `inside_effect`, its body has begun; `after_effect`, it has returned, and nothing is recorded yet."""

CHECK_WINDOWS: Final = ("inside_check", "after_check")
"""Of the check of an effect, which only a process that resumes asks: it has begun; it has answered."""

STEP_WINDOWS: Final = ("before_step", "inside_step", "after_step", "recorded")
"""Of a step: `after_step`, its body has returned, and nothing is recorded of that."""

WRITE_WINDOWS: Final = ("before", "inside", "after")
"""Of everything the store writes, and of files: `inside`, not committed yet; `after`, acknowledged."""

REQUEST_WINDOWS: Final = ("before_request", "during_request", "after_request")
"""Of what is done to the outside: received and never performed; received, and performed later, where the outside takes
its time (`--outside-delay`); performed and not answered."""

WINDOWS: Final = (*EFFECT_WINDOWS, *CHECK_WINDOWS, *STEP_WINDOWS, *WRITE_WINDOWS, *REQUEST_WINDOWS)

IN_EFFECT: Final = frozenset({"after_intent", "inside_effect", "after_effect", *CHECK_WINDOWS, *REQUEST_WINDOWS})
"""Windows in which an effect has an intent and no receipt."""

_NAMED: Final[dict[tuple[str, str], str]] = {
    (Kind.STEP, "after"): "recorded",
    (Kind.INTENT, "before"): "before_intent",
    (Kind.INTENT, "after"): "after_intent",
    (Kind.RECEIPT, "after"): "after_receipt",
}
_SAME_AS_BODY: Final = frozenset({(Kind.STEP, "before"), (Kind.RECEIPT, "before")})
"""Nothing happens between the end of a body and these: they would be the same moment twice."""

BOOKKEEPING: Final = frozenset(
    {
        "open_store",
        "join",
        "claim_run",
        "post",
        *(f"record_{kind}" for kind in (Kind.DELIVERY, Kind.NOTE, Kind.OBSERVED)),
    }
)
"""Writes that say who holds a run and what it heard of others: where runs are under way at once, they come in any
order, and none of that is the agent's doing."""

_ACKNOWLEDGED: Final = frozenset({"recorded", "after_receipt", "after"})
"""Windows that come after a commit: a process that ends in between does not pass them, and no other does."""

_BEGINS: Final = frozenset({"before_step", "before_intent"})
_ENDS: Final = frozenset({"recorded", "after_receipt"})
_ENDED: Final = f"record_{Kind.ENDED}"
_ATTEMPTED: Final = f"record_{Kind.ATTEMPT}"
_SHOWN: Final = 6


class Point(Struct, frozen=True):
    """A moment: whose it is, which window, of which call, and which of those that are called alike in one process."""

    name: str
    window: str
    key: str = ""
    occurrence: int = 1

    @property
    def text(self) -> str:
        """The point as `--at` takes it."""
        place = f"@{self.key}" if self.key else ""
        number = f"#{self.occurrence}" if self.occurrence > 1 else ""
        return f"{self.name}{place}{number}:{self.window}"

    @property
    def short(self) -> str:
        """The first point of this name and window, as `--at` takes it."""
        return f"{self.name}:{self.window}"

    @property
    def is_bookkeeping(self) -> bool:
        """Whether it is nothing that the agent calls."""
        return self.name in BOOKKEEPING and self.window in WRITE_WINDOWS

    @property
    def is_in_effect(self) -> bool:
        """Whether an effect is between its intent and its receipt here."""
        return self.window in IN_EFFECT or (self.name, self.window) == (f"record_{Kind.RECEIPT}", "inside")


def record_point(kind: str, name: str, key: str, window: str) -> tuple[str, str, str] | None:
    """The name, window and key of a moment around the writing of a record; None where a body's window says it."""
    if (kind, window) in _SAME_AS_BODY:
        return None
    named = _NAMED.get((kind, window))
    return (name, named, key) if named else (f"record_{kind}", window, key)


def run_label(run: Run, main: tuple[str, str]) -> str:
    """How a run is told from the others of one process: nothing for the main one, else its agent and its arguments."""
    agent, call = main_run(run)
    return "" if (agent, call) == main else f"{agent.rpartition('.')[2]}.{call}/"


def main_run(run: Run) -> tuple[str, str]:
    """What tells the main run of a process from others: agent, arguments, and the generation where it was restarted."""
    _, mark, generation = run.run_id.rpartition("~")
    digest = run.arguments.hex()[:6]
    return run.agent, f"{digest}~{generation}" if mark and generation.isdecimal() else digest


def is_by_chance(point: Point, labels: Iterable[str]) -> bool:
    """Whether runs that are under way at once may come by here or not, with nobody to blame; `labels` are theirs.

    The end of a process cuts off every run but its main one wherever that stands: how often each is delivered and ends,
    which of its attempts are recorded, and whether it still hears that a write was committed, depends on the moment.
    """
    others = [label for label in labels if label]
    if point.is_bookkeeping and point.occurrence > 1:
        return True
    if point.name == _ENDED and others and point.occurrence > 1:
        return True
    is_cut = point.occurrence > 1 or point.name == _ATTEMPTED or point.window in _ACKNOWLEDGED
    return is_cut and any(point.key.startswith(label) for label in others)


def are_at_once(points: Iterable[Point]) -> bool:
    """Whether calls were under way at once: in a thread of their own, or begun before an earlier one was done."""
    under_way: set[str] = set()
    for point in points:
        if point.window in _BEGINS:
            if "#" in point.key or any(not _is_within(point.key, key) for key in under_way):
                return True
            under_way.add(point.key)
        elif point.window in _ENDS:
            under_way.discard(point.key)
    return False


def _is_within(key: str, other: str) -> bool:
    """Whether a call is the other, or made by it."""
    return key == other or key.startswith((f"{other}.", f"{other}/", f"{other}["))


def find_point(points: Sequence[Point], wanted: str) -> Point:
    """The point that is meant: its whole text, or `NAME:WINDOW` for the first of that name; else what comes near."""
    for point in points:
        if point.text == wanted:
            return point
    name, _, window = wanted.rpartition(":")
    for point in points:
        if (point.name, point.window) == (name, window):
            return point
    raise _unknown(points, wanted, name, window)


def texts(points: Iterable[Point]) -> tuple[str, ...]:
    """The points as texts."""
    return tuple(point.text for point in points)


def _unknown(points: Sequence[Point], wanted: str, name: str, window: str) -> UsageError:
    of_name = [point.text for point in points if point.name == (name or window)]
    short = list(dict.fromkeys(point.short for point in points))
    near = difflib.get_close_matches(wanted, short, n=1, cutoff=0.4)
    meant = f"did you mean {legible(near[0])}? " if near else ""
    candidates = of_name or short
    known = ", ".join(legible(text) for text in candidates[:_SHOWN])
    more = ", …" if len(candidates) > _SHOWN else ""
    return UsageError(
        f"--at {legible(wanted, 100)}: the run has no such point.",
        safe="nothing was killed.",
        hint=f"{meant}--dry-run lists them: {known}{more}",
    )
