"""Where a PostgreSQL store is: a connection URL, the schema of our tables, and how to show both without a password."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from perdure.errors import InvalidSettings

_SCHEMA: Final = "perdure"
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,40}")


class Location(Struct, frozen=True):
    """A server, a database on it, and a schema in that."""

    url: str
    """What libpq connects to; it may hold a password, and is never shown."""
    schema: str
    shown: str
    portable: bool = False
    """Whether to do without what only PostgreSQL itself has: session locks and notifications."""


def read_location(text: str) -> Location:
    """The location a URL names; `?schema=NAME` and `?portable=true` are ours, everything else is libpq's."""
    parts = urlsplit(text)
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", _SCHEMA)
    if not _NAME.fullmatch(schema):
        raise InvalidSettings(
            f"store: schema={schema!r} is no name of a schema.",
            safe="nothing was started.",
            hint="lower case letters, digits and underscores, such as ?schema=perdure",
        )
    portable = dict(options).get("portable", "false").lower()
    if portable not in ("true", "false"):
        raise InvalidSettings(
            f"store: portable={portable!r}.", safe="nothing was started.", hint="portable=true, or leave it out"
        )
    rest = urlencode([(name, value) for name, value in options if name not in ("schema", "portable")])
    shown = [(name, "…" if "password" in name else value) for name, value in options]
    host = parts.netloc.rpartition("@")
    user = host[0].partition(":")[0]
    netloc = f"{user}@{host[2]}" if user else host[2]
    return Location(
        url=urlunsplit((parts.scheme, parts.netloc, parts.path, rest, "")),
        schema=schema,
        shown=urlunsplit((parts.scheme, netloc, parts.path, urlencode(shown, safe="/…"), "")),
        portable=portable == "true",
    )
