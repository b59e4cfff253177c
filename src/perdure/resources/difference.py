"""Whether a resource is still as it was, and the difference in words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from perdure.resources.folder import listing_changes

if TYPE_CHECKING:
    from perdure.bodies import Listing, Tracked
    from perdure.resources.kinds import Resource
    from perdure.resources.look import Seen

_NAMED_CHANGES: Final = 5


class Difference(Struct, frozen=True):
    """How a resource differs from what was recorded."""

    what: Literal["missing", "changed", "unreachable"]
    words: str


def difference(resource: Resource, was: Tracked, seen: Seen, *, before: Listing | None = None) -> Difference | None:
    """What is different now; None where nothing is. What could not be looked at is never taken to be unchanged."""
    now = seen.fingerprint
    name = resource.words
    if now.state == "unreachable":
        if was.state == "unreachable":
            return None
        return Difference("unreachable", f"{name} could not be checked: {now.words}; {_was(was)}")
    if now.state == "absent":
        if was.state == "absent":
            return None
        gone = "is no longer set" if resource.kind == "env" else "no longer exists"
        looked = f" ({now.words})" if now.words else ""
        return Difference("missing", f"{name} {gone}{looked}; {_was(was)}")
    if was.state == "absent":
        return Difference("changed", f"{name} exists now ({now.words}); it did not")
    if now.digest == was.digest:
        return None
    if before is not None and seen.listing is not None and resource.kind in {"directory", "workdir"}:
        return Difference("changed", f"{name} has changed: {_changes(before, seen.listing)}; {_was(was)}")
    return Difference("changed", f"{name} is {now.words}; {_was(was)}")


def _was(was: Tracked) -> str:
    return "it did not exist" if was.state == "absent" else f"it was {was.words}"


def _changes(before: Listing, after: Listing) -> str:
    changes = listing_changes(before, after)
    more = f" and {len(changes) - _NAMED_CHANGES} more" if len(changes) > _NAMED_CHANGES else ""
    return ", ".join(changes[:_NAMED_CHANGES]) + more
