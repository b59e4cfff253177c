"""Where secrets are found, and the forms in which they turn up again."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

SHORTEST_SECRET: Final = 8
"""Shorter values guard nothing, and would be found in innocent text."""

_LOOKS: Final = {
    ("k-", "sk-", "pk-", "rk-"): r"[A-Za-z0-9_-]*[*.•…]{3,}[A-Za-z0-9_-]*"  # as error messages have it, middle hidden
    r"|(?<=[sr]k-)(?:ant|proj|svcacct|or|admin)-[A-Za-z0-9_-]{16,}"
    r"|(?<=[sr]k-)(?=[A-Za-z_-]*[0-9])[A-Za-z0-9]{20,}",
    ("A", "AIza"): r"[A-Za-z0-9_-]{30,}",
    ("A", "A[KS]IA"): r"[A-Z0-9]{16}\b",
    (".", r"ya29\."): r"[A-Za-z0-9_-]{20,}",
    ("_", "gh[oprsu]_"): r"[A-Za-z0-9]{20,}",
    ("_", "gsk_", "hf_", "r8_", "lsv2_"): r"[A-Za-z0-9_-]{20,}",
    ("-", "xai-", "nvapi-", "pplx-"): r"[A-Za-z0-9_-]{20,}",
    ("J", "eyJ"): r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+",
}
"""How keys of providers go on behind what they begin with; the last one is a signed token. In front stands what all
of these beginnings have and most texts have not. A beginning is a pattern that begins with letters: to look for any
other takes ten times as long."""

_LOOK: Final = re.compile("|".join(rf"\b(?:{'|'.join(begun)})(?:{rest})" for (_, *begun), rest in _LOOKS.items()))
_BEGINNINGS: Final = [(sign, [re.compile(each).search for each in begun]) for sign, *begun in _LOOKS]
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
_SECRET_OPTION: Final = re.compile(
    r"--?(?:[^\W_]*[-_])*(?:password|passwd|passphrase|secret|token|apikey|credentials?|(?:api|access|private|secret)[-_]key)",
    re.IGNORECASE,
)
"""Fewer names than headers and variables have: `--sort-key` and `--session` tell commands apart, and guard nothing."""

_NAMES_REMEMBERED: Final = 1024
_PUBLIC_VARIABLES: Final = frozenset({"GPG_KEY"})
_HTML: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""As Go writes them in JSON."""


def without_looks(text: str, mark: str) -> str:
    """The text with whatever looks like a key of a provider replaced."""
    for sign, begun in _BEGINNINGS:
        if sign in text:
            for found in begun:
                if found(text):
                    return _LOOK.sub(mark, text)
    return text


@functools.lru_cache(maxsize=_NAMES_REMEMBERED)
def is_secret_name(name: str) -> bool:
    """Whether a header or a parameter of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def in_environment(variables: Mapping[str, str]) -> Iterator[str]:
    """The values of variables that are named like a secret, and the passwords in addresses."""
    for name, value in variables.items():
        yield from _passwords(value)
        if _SECRET_VARIABLE.search(name) and name.upper() not in _PUBLIC_VARIABLES and not value.startswith(("/", "~")):
            yield value


def in_arguments(arguments: Sequence[str]) -> list[str]:
    """The end of each argument that an option of a name like `--api-key` makes a secret; empty for none."""
    secrets = []
    is_next = False
    for argument in arguments:
        option, equals, value = argument.partition("=")
        is_named = _SECRET_OPTION.fullmatch(option) is not None
        is_value = is_next and not argument.startswith("-")
        secrets.append(argument if is_value else value if is_named else "")
        is_next = is_named and not equals
    return secrets


def in_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """The credentials in the headers of a request."""
    for name, value in headers.items():
        if is_secret_name(name):
            yield value


def in_url(url: str) -> Iterator[str]:
    """The credentials in an address."""
    if "?" not in url and "@" not in url:
        return
    yield from (value for name, value in parse_qsl(urlsplit(url).query) if is_secret_name(name))
    yield from _passwords(url)


@functools.lru_cache(maxsize=_NAMES_REMEMBERED)
def forms_of(value: str) -> frozenset[str]:
    """A secret as it may turn up: without its scheme, decoded, escaped in JSON or in an address."""
    words = {value, value.partition(" ")[2].strip()}
    if value[:6].lower() == "basic ":
        words |= {_decoded(value[6:]), _decoded(value[6:]).partition(":")[2]}
    if "=" in value and value[:6].lower() != "basic ":
        words |= {pair.partition("=")[2].strip() for pair in re.split(r"[;,]", value)}
    long = {word for word in words if len(word) >= SHORTEST_SECRET}
    return frozenset(form for word in long for form in _written(word))


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
