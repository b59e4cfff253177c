"""Where a PostgreSQL store is: a connection URL, the schema of our tables, and how to show both without a password."""

from __future__ import annotations

import difflib
import functools
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct
from psycopg import pq

from perdure.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCHEMA: Final = "perdure"
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_OURS: Final = ("schema", "portable")
_HIDDEN: Final = "…"
_HALF_ENCODED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_EXAMPLE: Final = "postgresql://user@host:5432/database"
_ENCODE: Final = "in a password, write / @ : # ? and % as %2F %40 %3A %23 %3F %25"


class Location(Struct, frozen=True):
    """A server, a database on it, and a schema in that."""

    url: str
    """What libpq connects to; it may hold a password, and is never shown."""
    schema: str
    shown: str
    portable: bool = False
    """Whether to do without what only PostgreSQL itself has: session locks and notifications."""
    role: str = ""
    secrets: tuple[str, ...] = ()
    """Every text that must not be seen."""

    def scrubbed(self, text: str) -> str:
        """What somebody else said, without the password."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def read_location(text: str) -> Location:
    """The location a URL names; `?schema=NAME` and `?portable=true` are ours, everything else is libpq's."""
    parts = _split(text)
    _refuse_encoding(parts)
    options = parse_qsl(parts.query, keep_blank_values=True)
    _refuse_unknown([name for name, _ in options])
    given = dict(options)
    userinfo, _, hosts = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    _refuse_ports(hosts, is_shown="@" in parts.netloc or "@" not in text)
    shown = [(name, _HIDDEN if "password" in name else value) for name, value in options]
    rest = [(name, value) for name, value in options if name not in _OURS]
    written = [password, *(value for name, value in options if "password" in name)]
    return Location(
        url=urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(rest), "")),
        schema=_schema(given),
        shown=_joined(parts, netloc=f"{user}@{hosts}" if user else hosts, options=shown),
        portable=_is_portable(given),
        role=unquote(user) or given.get("user", ""),
        secrets=tuple(sorted({form for one in written for form in (one, unquote(one)) if form}, key=len, reverse=True)),
    )


def _split(text: str) -> SplitResult:
    """The parts of a URL whose shape can be trusted: nothing of a password is where it would be shown."""
    scheme = text.partition(":")[0]
    if not text.startswith(f"{scheme}://"):
        raise _refused(f"{scheme}: is not followed by //", hint=_EXAMPLE)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise _refused(f"it is no URL ({error})" if "@" not in text else "it is no URL", hint=_EXAMPLE) from None
    if parts.fragment or "@" in parts.path or ("@" in parts.query and "@" not in parts.netloc):
        raise _refused("its password holds a character that ends it", hint=_ENCODE)
    return parts


def _refuse_encoding(parts: SplitResult) -> None:
    """What is percent-encoded must be so whole; a part that may hold a password is named, and not shown."""
    userinfo, _, hosts = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    named = {"user": user, "password": password, "host": hosts, "database": parts.path, "options": parts.query}
    for name, text in named.items():
        if _HALF_ENCODED.search(text) or "%00" in text:
            raise _refused(f"a % in its {name} is not followed by the two digits of a character", hint=_ENCODE)
        try:
            unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise _refused(f"what is written with % in its {name} is no UTF-8", hint=_ENCODE) from None


def _refuse_ports(hosts: str, *, is_shown: bool) -> None:
    for host in hosts.split(","):
        bare = host.rpartition("]")[2] if "]" in host else host
        _, colon, port = bare.partition(":")
        if colon and not (port.isascii() and port.isdecimal() and 0 < int(port) < 2**16):
            what = f"{port!r} is no port" if is_shown else "what follows the host is no port"
            raise _refused(what, hint=f"{_EXAMPLE}; {_ENCODE}")


def _refuse_unknown(names: Sequence[str]) -> None:
    for name in names:
        if name not in _known_options():
            close = difflib.get_close_matches(name, sorted(_known_options()), n=1)
            hint = f"did you mean {close[0]}=?" if close else "leave it out: libpq and perdure know no such option"
            raise _refused(f"{name!r} is no option of a connection", hint=hint)


@functools.cache
def _known_options() -> frozenset[str]:
    """What may follow the question mark."""
    return frozenset(_OURS) | {option.keyword.decode() for option in pq.Conninfo.get_defaults()} | {"ssl"}


def _schema(given: dict[str, str]) -> str:
    schema = given.get("schema", _SCHEMA)
    if not _NAME.fullmatch(schema):
        raise _refused(
            f"schema={schema!r} is no name of a schema",
            hint="lower case letters, digits and underscores, such as ?schema=perdure",
        )
    return schema


def _is_portable(given: dict[str, str]) -> bool:
    portable = given.get("portable", "false").lower()
    if portable not in ("true", "false"):
        raise _refused(f"portable={portable!r}", hint="portable=true, or leave it out")
    return portable == "true"


def _joined(parts: SplitResult, *, netloc: str, options: list[tuple[str, str]]) -> str:
    return urlunsplit((parts.scheme, netloc, parts.path, urlencode(options, safe="/…"), ""))


def _refused(what: str, *, hint: str) -> InvalidSettings:
    return InvalidSettings(f"store: the URL cannot be used: {what}.", safe="nothing was started.", hint=hint)
