"""Which runs somebody asks for, as the condition of a statement; every value is bound, never written into the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.store.postgres.connect import Q

if TYPE_CHECKING:
    from perdure.store.protocol import Which

_UNFINISHED: Final = "state NOT IN ('completed', 'cancelled')"
_AGENT: Final = "right('.' || agent, length(%s)) = %s"
_BEGINNING: Final = "(left(name, length(%s)) = %s OR left(run_id, length(%s)) = %s)"
_PLAIN: Final = {
    "since_at": "created_at >= %s",
    "until_at": "created_at < %s",
    "queue": "queue = %s",
    "tenant": "tenant = %s",
}
_AMONG: Final = "{} = ANY(%s)"
_TAGGED: Final = "(CASE WHEN tags = '' THEN '{}' ELSE tags END)::jsonb @> %s::jsonb"


def narrowed(query: str, which: Which) -> tuple[str, tuple[Any, ...]]:
    """A statement of `queries.sql` for these runs only, and the values to bind."""
    conditions: list[str] = []
    values: list[Any] = []

    def narrow(condition: str, *bound: Any) -> None:  # noqa: ANN401 - whatever the database stores
        conditions.append(condition)
        values.extend(bound)

    if which.unfinished:
        narrow(_UNFINISHED)
    if which.states:
        narrow(_AMONG.format("state"), list(which.states))
    if which.reasons:
        narrow(_AMONG.format("reason"), list(which.reasons))
    if which.agent:
        narrow(_AGENT, *(f".{which.agent}",) * 2)
    if which.beginning:
        narrow(_BEGINNING, *(which.beginning,) * 4)
    if which.tags:
        narrow(_TAGGED, msgspec.json.encode(which.tags).decode())
    for name, condition in _PLAIN.items():
        if value := getattr(which, name):
            narrow(condition, value)
    return Q[query].replace(":which", " AND ".join(conditions) or "true"), tuple(values)
