"""Values as people type them on a command line: JSON, whole numbers, tags, the code to load."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from perdure.cli.options import complete_files
from perdure.errors import UsageError
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

F = TypeVar("F", bound="Callable[..., Any]")
SHOWN_CHARACTERS: Final = 60
"""So much is repeated of what was typed wrongly."""

_MAX_DIGITS: Final = 18


def json_value(text: str, *, of: str) -> Any:  # noqa: ANN401 - any JSON
    """The value of a JSON text that was given as `of`."""
    try:
        value = strict_json(text)
        msgspec.json.encode(value)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        given = of if of.endswith("=") else f"{of} "
        quoted = shlex.quote(json.dumps(text, ensure_ascii=False))
        raise UsageError(
            f"{given}{legible(text, SHOWN_CHARACTERS)} is not JSON: {error}.",
            safe="nothing was recorded.",
            hint=f"for a text, quote it for JSON and for the shell: {given}{legible(quoted, 80)}",
        ) from error
    return value


def strict_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """The value of a JSON text; NaN and the infinities, which Python would take, are none."""
    return json.loads(text, parse_constant=_refuse_constant)


def whole_number(text: str) -> int | None:
    """The number that a text is; None where it is none."""
    return int(text[:_MAX_DIGITS]) if text.isdecimal() and text.isascii() else None


def tags_of(texts: Iterable[str], *, safe: str) -> dict[str, str]:
    """The tags of `--tag NAME=VALUE`."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise UsageError(
                f"--tag {legible(text, SHOWN_CHARACTERS)!r} is no tag.", safe=safe, hint="--tag team=billing"
            )
        found[name] = value
    return found


def app_option(what: str) -> Callable[[F], F]:
    """`--app FILE|MODULE`: where code is loaded from."""
    return click.option(
        "--app",
        "apps",
        metavar="FILE|MODULE",
        multiple=True,
        shell_complete=complete_files,
        help=f"The code of {what}; may be repeated.",
    )


def app_words(apps: Iterable[str]) -> list[str]:
    """The same, to be typed again."""
    return [word for app in apps for word in ("--app", app)]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
