"""Asking a person before an effect is performed. The approval is bound to the arguments: for others it is void."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from perdure import codec
from perdure.engine.ask import ForPerson
from perdure.engine.call import Prepared, approval_key
from perdure.engine.wait import WaitSpec, finished
from perdure.errors import ApprovalDenied
from perdure.records import Question

if TYPE_CHECKING:
    from collections.abc import Generator

    from perdure.engine.drive import Operation
    from perdure.engine.effect import EffectSpec

APPROVE: Final = "approve"
DENY: Final = "deny"


def approval(prepared: Prepared[EffectSpec]) -> Generator[Operation, Any, ApprovalDenied | None]:
    """None where the effect may be performed; otherwise the failure that its agent sees."""
    spec = prepared.spec
    needed = spec.approve(*prepared.args, **prepared.kwargs) if callable(spec.approve) else spec.approve
    if not needed:
        return None
    question = Question(
        text=f"Perform {prepared.shown()}?",
        show=Raw(codec.seal_arguments(prepared.arguments, of=spec.name)),
        options=(APPROVE, DENY),
        approves=prepared.call.arguments.hex(),
    )
    asking = WaitSpec(_approve, name=f"approve {spec.name}")
    asked = Prepared(
        asking, prepared.frame, (spec.name, prepared.call.arguments), {}, key=approval_key(prepared.call.key)
    )
    given = yield from finished(asked, ForPerson(question, None, None), lambda _, value: value)
    if given["choice"] == APPROVE:
        return None
    return ApprovalDenied(f"{prepared.shown()} was not approved by {given['by']}.")


def _approve(effect: str, arguments: bytes) -> dict[str, Any]:  # type: ignore[empty-body]
    """The parameters that identify an approval."""
