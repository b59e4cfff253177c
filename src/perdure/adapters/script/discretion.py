"""A script's arguments as its run keeps them: without secrets, and still told apart from others."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from perdure.adapters.http.credentials import in_arguments
from perdure.adapters.http.redact import REDACTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.adapters.http.redact import Redactor

_MARK_BYTES: Final = 2
"""Enough to tell two secrets apart, and too few to find one by."""


def discreet(arguments: Sequence[str], redactor: Redactor) -> list[str]:
    """Each argument as it is stored; what an option gives away as a secret is kept out of all else, too."""
    secrets = in_arguments(arguments)
    redactor.keep_out(filter(None, secrets))
    return [_kept(argument, secret, redactor) for argument, secret in zip(arguments, secrets, strict=True)]


def _kept(argument: str, secret: str, redactor: Redactor) -> str:
    """What is left of an argument; commands that differ in nothing but a secret are not the same command."""
    clean = redactor.text(argument.removesuffix(secret) + REDACTED if secret else argument)
    if clean == argument:
        return argument
    mark = hashlib.sha256(argument.encode(errors="surrogateescape")).digest()[:_MARK_BYTES].hex()
    return clean.replace(REDACTED, f"{REDACTED}#{mark}")
