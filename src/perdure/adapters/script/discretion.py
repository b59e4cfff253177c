"""A script's arguments as its run keeps them: without secrets, and still told apart from others."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from perdure.adapters.http.redact import REDACTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.adapters.http.redact import Redactor

_SECRET_OPTION: Final = re.compile(
    r"--?(?:\w+[-_])*(?:password|passwd|passphrase|secret|token|apikey|credentials?|(?:api|access|private|secret)[-_]key)",
    re.IGNORECASE,
)
_MARK_BYTES: Final = 2
"""Enough to tell two secrets apart, and too few to find one by."""


def discreet(arguments: Sequence[str], redactor: Redactor) -> list[str]:
    """Each argument as it is stored; what an option gives away as a secret is kept out of all else, too."""
    secrets = _secrets(arguments)
    redactor.keep_out(filter(None, secrets))
    return [_kept(argument, secret, redactor) for argument, secret in zip(arguments, secrets, strict=True)]


def _secrets(arguments: Sequence[str]) -> list[str]:
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


def _kept(argument: str, secret: str, redactor: Redactor) -> str:
    """What is left of an argument; commands that differ in nothing but a secret are not the same command."""
    clean = redactor.text(argument.removesuffix(secret) + REDACTED if secret else argument)
    if clean == argument:
        return argument
    mark = hashlib.sha256(argument.encode(errors="surrogateescape")).digest()[:_MARK_BYTES].hex()
    return clean.replace(REDACTED, f"{REDACTED}#{mark}")
