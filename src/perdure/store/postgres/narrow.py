"""Which runs somebody asks for, as the condition of a statement; every value is bound, never written into the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.store.lease import MOVED_DETAIL
from perdure.store.postgres.connect import Q

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.store.protocol import Which

_UNFINISHED: Final = "state NOT IN ('completed', 'cancelled')"
_AGENT: Final = "right('.' || agent, length(%s)) = %s"
_BEGINNING: Final = "(left(name, length(%s)) = %s OR left(run_id, length(%s)) = %s)"
_MOVED: Final = "reason = 'parked' AND substr(detail, 1, length(%s)) = %s"
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
    for column, words in (("state", which.states), ("reason", which.reasons)):
        if words:
            narrow(_AMONG.format(column), list(words))
    if which.agent:
        narrow(_AGENT, *(f".{which.agent}",) * 2)
    if which.beginning:
        narrow(_BEGINNING, *(which.beginning,) * 4)
    if which.tags:
        narrow(_TAGGED, msgspec.json.encode(which.tags).decode())
    for condition, bound in _plain(which):
        narrow(condition, *bound)
    return Q[query].replace(":which", " AND ".join(conditions) or "true"), tuple(values)


def _plain(which: Which) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for name, condition in _PLAIN.items():
        if value := getattr(which, name):
            yield condition, (value,)
    if which.moved is not None:
        yield (_MOVED if which.moved else f"NOT ({_MOVED})"), (MOVED_DETAIL,) * 2
