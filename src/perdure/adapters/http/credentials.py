"""Where secrets are found, and the forms in which they turn up again."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

SHORTEST_SECRET: Final = 8
"""Shorter values guard nothing, and would be found in innocent text."""

SECRET_LOOK: Final = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]*[*.•…]{3,}[A-Za-z0-9_-]*"  # as error messages repeat a key, its middle hidden
    r"|\b(?:sk|rk)-(?:ant|proj|svcacct|or|admin)-[A-Za-z0-9_-]{16,}"
    r"|\b(?:sk|rk)-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9]{20,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\bya29\.[A-Za-z0-9_-]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\b(?:xai-|gsk_|hf_|nvapi-|pplx-|r8_|lsv2_)[A-Za-z0-9_-]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"
)
"""Keys of providers; the last one is a signed token."""

_SECRET_NAME: Final = re.compile(
    r"(?:^|[-_.])(?:key|apikey|auth|authorization|credentials?|cookie2?|passwd|password|pass|pat|secrets?|sig"
    r"|signature|session|token|jwt|dsn)(?:$|[-_.])|api[-_]?key|access[-_]?key|[a-z]token$",
    re.IGNORECASE,
)
_SECRET_VARIABLE: Final = re.compile(
    r"(?:^|_)(?:KEY|APIKEY|TOKEN|SECRET|SECRETS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT)$"
    r"|API_?KEY|ACCESS_KEY|SECRET|PASSWORD",
    re.IGNORECASE,
)
_PUBLIC_VARIABLES: Final = frozenset({"GPG_KEY"})
_HTML: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""As Go writes them in JSON."""


def is_secret_name(name: str) -> bool:
    """Whether a header or a parameter of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def in_environment(variables: Mapping[str, str]) -> Iterator[str]:
    """The values of variables that are named like a secret, and the passwords in addresses."""
    for name, value in variables.items():
        yield from _passwords(value)
        if _SECRET_VARIABLE.search(name) and name.upper() not in _PUBLIC_VARIABLES and not value.startswith(("/", "~")):
            yield value


def in_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """The credentials in the headers of a request."""
    for name, value in headers.items():
        if is_secret_name(name):
            yield value


def in_url(url: str) -> Iterator[str]:
    """The credentials in an address."""
    yield from (value for name, value in parse_qsl(urlsplit(url).query) if is_secret_name(name))
    yield from _passwords(url)


def forms_of(value: str) -> set[str]:
    """A secret as it may turn up: without its scheme, decoded, escaped in JSON or in an address."""
    words = {value, value.partition(" ")[2].strip()}
    if value[:6].lower() == "basic ":
        words |= {_decoded(value[6:]), _decoded(value[6:]).partition(":")[2]}
    if "=" in value and value[:6].lower() != "basic ":
        words |= {pair.partition("=")[2].strip() for pair in re.split(r"[;,]", value)}
    long = {word for word in words if len(word) >= SHORTEST_SECRET}
    return {form for word in long for form in _written(word)}


def _written(word: str) -> set[str]:
    in_json = {json.dumps(word)[1:-1], json.dumps(word, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(form)[1:-1] for form in in_json}
    slashes = {form.replace("/", "\\/") for form in in_json}
    html = {"".join(_HTML.get(letter, letter) for letter in form) for form in in_json}
    return {word, quote(word, safe=""), quote_plus(word)} | in_json | twice | slashes | html


def _passwords(value: str) -> Iterator[str]:
    if "://" not in value or "@" not in value:
        return
    try:
        user = urlsplit(value).netloc.rpartition("@")[0]
    except ValueError:
        return
    password = user.partition(":")[2]
    yield from {password, unquote(password)} if password else {user}


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode()
    except ValueError:
        return ""
