"""What never reaches the store: credentials in headers, in addresses, and wherever else they turn up.

A secret is known by where it was seen (a header or a parameter of that kind, a variable of the environment that is
named like a key), or by its look (the forms in which providers write keys, whole or with their middle hidden). It is
replaced by `[redacted]`; JSON stays JSON.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import unquote_plus, urlsplit, urlunsplit

import msgspec

from perdure.adapters.http.credentials import (
    forms_of,
    in_environment,
    in_headers,
    in_url,
    is_secret_name,
    without_looks,
)

REDACTED: Final = "[redacted]"
_Text = TypeVar("_Text", str, bytes)
_KEPT_HEADERS: Final = frozenset(
    {
        "anthropic-version",
        "cache-control",
        "content-language",
        "content-type",
        "date",
        "openai-model",
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "vary",
        "x-amzn-errortype",
        "x-amzn-requestid",
        "x-request-id",
        "x-should-retry",
    }
)
_KEPT_PREFIXES: Final = ("x-ratelimit-", "anthropic-ratelimit-", "x-amzn-bedrock-")
_ADDRESSES_REMEMBERED: Final = 256
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class Redactor:
    """Learns the secrets of this process, and keeps them out of what is stored; safe to use from any thread."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._lock = threading.Lock()
        self._forms: frozenset[str] = frozenset()
        self._known: re.Pattern[str] | None = None
        self._environment = os.environ if environment is None else environment
        self._variables: Mapping[Any, Any] = {}
        self._look_around()

    def learn(self, url: str, headers: Mapping[str, str]) -> None:
        """Remember the credentials that a request carries."""
        self.keep_out([*in_headers(headers), *in_url(url)])

    def keep_out(self, values: Iterable[str]) -> None:
        """Remember that these are secrets."""
        forms = {form for value in values for form in forms_of(value)}
        if forms <= self._forms:
            return
        with self._lock:
            longest_first = sorted(self._forms | forms, key=lambda form: (-len(form), form))
            self._known = re.compile("|".join(map(re.escape, longest_first)))
            self._forms |= forms

    def headers(self, given: Mapping[str, str]) -> dict[str, str]:
        """Those headers of an answer that may be stored: only ones that are known to be harmless are."""
        return {name: self.text(value) for name, value in given.items() if _is_kept(name)}

    def url(self, url: str) -> str:
        """An address as it may be stored and shown."""
        return self.text(clean_url(url))

    def text(self, given: _Text) -> _Text:
        """A text, or the bytes of one, without any secret; what was JSON before is JSON after."""
        if isinstance(given, bytes):
            shown = given.decode("utf-8", "surrogateescape")
            clean = self.text(shown)
            return given if clean == shown else clean.encode("utf-8", "surrogateescape")
        self._look_around()
        clean = self._replaced(given)
        if clean == given:
            return given
        if _is_lines(given):
            return "".join(map(self._line, given.splitlines(keepends=True)))
        return self._document(given, clean)

    def _line(self, line: str) -> str:
        """One line of a stream: its JSON stays JSON."""
        name, colon, rest = line.partition(":")
        if colon and name == "data":
            data = rest.strip()
            return line.replace(data, self._document(data, self._replaced(data))) if data else line
        return self._document(line, self._replaced(line))

    def _document(self, given: str, clean: str) -> str:
        """The clean text, unless cleaning broke what was JSON: then it is cleaned value by value."""
        if clean == given or _is_json(clean):
            return clean
        try:
            value = msgspec.json.decode(given)
        except _UNREADABLE:
            return clean
        return msgspec.json.encode(self._value(value)).decode()

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._replaced(value)
        if isinstance(value, list):
            return [self._value(each) for each in value]
        if isinstance(value, dict):
            return {self._replaced(name): self._value(each) for name, each in value.items()}
        shown = msgspec.json.encode(value).decode()
        return value if self._replaced(shown) == shown else REDACTED

    def _replaced(self, text: str) -> str:
        for form in self._forms:
            if form in text and self._known is not None:
                text = self._known.sub(REDACTED, text)
                break
        return without_looks(text, REDACTED)

    def _look_around(self) -> None:
        """Learn what is new in the environment: a program may load its keys long after it has begun."""
        variables = getattr(self._environment, "_data", self._environment)  # as they are kept: comparing these is quick
        if variables != self._variables:
            self._variables = dict(variables)
            self.keep_out(in_environment(self._environment))


@functools.lru_cache(maxsize=_ADDRESSES_REMEMBERED)
def clean_url(url: str) -> str:
    """An address without user, password, fragment, and parameters that are secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    pairs = [pair for pair in parts.query.split("&") if pair]
    kept = [pair for pair in pairs if not is_secret_name(unquote_plus(pair.partition("=")[0]))]
    return urlunsplit((parts.scheme, host, parts.path, "&".join(kept), ""))


def _is_kept(name: str) -> bool:
    lower = name.lower()
    return lower in _KEPT_HEADERS or lower.startswith(_KEPT_PREFIXES)


def _is_lines(text: str) -> bool:
    """Whether this is a stream of events, or of JSON line by line, and no single document."""
    return "\n" in text.strip() and not _is_json(text)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except _UNREADABLE:
        return False
    return True
