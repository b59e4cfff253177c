"""Asking a person before an effect is performed. The approval is bound to the arguments: for others it is void."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from perdure import codec
from perdure.bodies import Opened, Question, read_body
from perdure.engine.ask import ForPerson
from perdure.engine.call import Prepared, approval_key
from perdure.engine.wait import WaitSpec, finished
from perdure.errors import ApprovalDenied

if TYPE_CHECKING:
    from collections.abc import Generator

    from perdure.engine.drive import Operation
    from perdure.engine.effect import EffectSpec

APPROVE: Final = "approve"
DENY: Final = "deny"


def approval(prepared: Prepared[EffectSpec]) -> Generator[Operation, Any, ApprovalDenied | None]:
    """None where the effect may be performed; otherwise the failure that its agent sees."""
    spec, key = prepared.spec, approval_key(prepared.call.key)
    if not spec.needs_approval(prepared.args, prepared.kwargs):
        return None
    shown = f"approve {prepared.shown()}"
    _refuse_other_arguments(prepared, key, shown)
    question = Question(
        text=f"Perform {prepared.shown()}?",
        show=Raw(codec.seal_arguments(prepared.arguments, of=spec.name)),
        options=(APPROVE, DENY),
        approves=prepared.call.arguments.hex(),
    )
    asking = WaitSpec(_approve, name=f"approve {spec.name}")
    asked = Prepared(asking, prepared.frame, (spec.name, prepared.call.arguments), {}, key=key)
    given = yield from finished(asked, ForApproval(question, shown), lambda _, value: value)
    if given["choice"] == APPROVE:
        return None
    why = f": {given['note']}" if given.get("note") else "."
    return ApprovalDenied(f"{prepared.shown()} was not approved by {given['by']}{why}")


class ForApproval(ForPerson):
    """A wait for a person's word on one call, shown as that call."""

    def __init__(self, question: Question, shown: str) -> None:
        super().__init__(question, None, None)
        self._shown = shown

    def open(self, prepared: Prepared[WaitSpec]) -> Opened:
        """What is asked, in the words of the effect itself."""
        return msgspec.structs.replace(super().open(prepared), shown=self._shown)


def _refuse_other_arguments(prepared: Prepared[EffectSpec], key: str, shown: str) -> None:
    """An approval that was asked for, or given, for other arguments is void: park, and show both calls."""
    entry = prepared.active.journal.entries.get(key)
    asked: Opened | None = read_body(entry.wait) if entry is not None and entry.wait is not None else None
    approved = asked.question.approves if asked is not None and asked.question is not None else ""
    if entry is not None and approved and approved != prepared.call.arguments.hex():
        raise prepared.active.diverge(entry.shown_call(), shown)


def _approve(effect: str, arguments: bytes) -> dict[str, Any]:  # type: ignore[empty-body]
    """The parameters that identify an approval."""
