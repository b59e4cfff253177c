"""Which of the tool calls that models asked for a framework is about to perform: by its id, else by name and arguments.

Nothing is linked where nobody records, inside the body of a tool, whose own record stands for all that it does, or
where more than one call could be meant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.adapters.script.conduct import conducted
from perdure.adapters.tools.policy import Policy
from perdure.engine.scope import current_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.adapters.tools.pending import Awaited

_JOINTS: Final = re.compile(r"[_\-./:]+")
"""What stands between the name of a server and that of its tool, where a script joins the two."""


def linked(call_id: str | None, name: str, arguments: Any) -> Awaited | None:
    """The call that is about to be performed; None where it is performed as it is."""
    conduct = conducted()
    if conduct is None or _is_inside():
        return None
    given = as_arguments(arguments)
    same_id = conduct.pending.with_id(call_id) if call_id else []
    if same_id:
        return _nearest(_fitting(same_id, name, given) or same_id)
    return _nearest(_fitting(conduct.pending.of_name(name), name, given))


def linked_by_name(name: str, arguments: Any) -> Awaited | None:
    """The same for a tool whose call has no id here, and whose name may stand behind that of its server."""
    conduct = conducted()
    if conduct is None or _is_inside():
        return None
    given = as_arguments(arguments)
    exact = _fitting(conduct.pending.of_name(name), name, given)
    if exact:
        return _nearest(exact)
    others = [each for each in conduct.pending.everything() if _ends_with(each.call.name, name)]
    fitting = [each for each in others if each.call.arguments == given]
    names = {each.call.name for each in fitting}
    return _nearest(fitting) if len(names) == 1 else None


def unfold(awaited: Awaited | None) -> None:
    """A call is the framework's own, or was refused before it began: there is nothing of it to be recorded."""
    conduct = conducted()
    if conduct is not None and awaited is not None:
        conduct.pending.take(awaited)


def is_declared(name: str) -> bool:
    """Whether the project says what this tool is."""
    conduct = conducted()
    return conduct is not None and conduct.policies.of(name, {"readOnlyHint": True}) is not Policy.STEP


def is_outside() -> bool:
    """Whether a call that is made here is recorded by nobody: a script is executed, and this is no tool of its."""
    return conducted() is not None and not _is_inside()


def as_arguments(arguments: Any) -> dict[str, Any] | None:
    """The arguments of a call as an object, from what a framework has of them."""
    if isinstance(arguments, (str, bytes)):
        try:
            arguments = msgspec.json.decode(arguments) if arguments.strip() else {}
        except msgspec.DecodeError:
            return None
    if arguments is None:
        return {}
    return arguments if isinstance(arguments, dict) else None


def _is_inside() -> bool:
    frame = current_frame()
    return frame is not None and bool(frame.body)


def _fitting(found: Sequence[Awaited], name: str, arguments: dict[str, Any] | None) -> list[Awaited]:
    named = [each for each in found if each.call.name == name]
    return [each for each in named if arguments is None or each.call.arguments == arguments] or (
        named if len(named) == 1 and arguments is None else []
    )


def _nearest(found: Sequence[Awaited]) -> Awaited | None:
    """Of those that fit, the one that the strand which is here was started for; the oldest of those."""
    if not found:
        return None
    frame = current_frame()
    here = [] if frame is None else frame.scope.path.split("/")
    return max(found, key=lambda each: _shared(here, each.place.rpartition("@")[2].split("/")))


def _shared(here: list[str], there: list[str]) -> int:
    count = 0
    for own, other in zip(here, there, strict=False):
        if own != other:
            break
        count += 1
    return count


def _ends_with(joined: str, name: str) -> bool:
    return joined.endswith(name) and bool(_JOINTS.search(joined[: -len(name)][-1:]))
