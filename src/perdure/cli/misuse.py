"""A command typed wrongly, in our three lines instead of click's usage text."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Final

import click

from perdure.cli.mode import mode
from perdure.errors import UsageError
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Iterable

_SAFE: Final = "nothing was changed."
_WORD_CHARACTERS: Final = 60


def explained(error: click.ClickException, arguments: list[str] | None) -> UsageError:
    """What was typed wrongly, and how to find out what can be typed; programs that ask for JSON get that as JSON."""
    _heed_json(arguments)
    context: click.Context | None = getattr(error, "ctx", None)
    path = context.command_path if context is not None else _path(arguments)
    verb, where = path.removeprefix("perdure "), f"{path} --help"
    match error:
        case click.NoSuchOption(option_name=name, possibilities=possible):
            near = difflib.get_close_matches(name, possible or (), n=1, cutoff=0.5)
            return _wrong(f"{verb} has no option {legible(name, _WORD_CHARACTERS)}.", near, f"{where} lists them")
        case click.MissingParameter(param=click.Parameter() as parameter) if context is not None:
            return _wrong(f"{verb} needs {_metavar(parameter)}.", (), f"{_usage(context)}; {where} explains it")
        case click.BadParameter(param=click.Parameter(type=click.Choice(choices=choices)) as parameter):
            known = [str(choice) for choice in choices]
            word = _given(arguments, parameter)
            listed = f"{', '.join(known[:-1])} or {known[-1]}"
            message = f"{verb}: {_metavar(parameter)} is {listed}{f', not {word!r}' if word else ''}."
            return _wrong(message, difflib.get_close_matches(word, known, n=1, cutoff=0.5), where)
        case click.BadParameter(param=click.Parameter(type=click.types.IntParamType()) as parameter):
            given = legible(error.message, _WORD_CHARACTERS).partition(" is not ")
            what = f"{given[0]} is none" if given[1] else legible(error.message).rstrip(".")
            kind = parameter.type
            if isinstance(kind, click.IntRange) and given[2].startswith("in the range") and kind.max is None:
                return _wrong(f"{verb}: {_metavar(parameter)} is at least {kind.min}, not {given[0]}.", (), where)
            return _wrong(f"{verb}: {_metavar(parameter)} takes a whole number: {what}.", (), where)
        case click.BadOptionUsage(option_name=name):
            prefix = "" if path == "perdure" else f"{verb}: "
            return _wrong(f"{prefix}{legible(name, _WORD_CHARACTERS)} needs a value.", (), where)
        case _:
            return _wrong(f"{verb}: {legible(error.format_message()).rstrip('.')}.", (), where)


def unknown_command(word: str, known: Iterable[str], arguments: list[str] | None = None) -> UsageError:
    """A command that there is not, and those it may have been meant for."""
    _heed_json(arguments)
    near = [f"perdure {name}" for name in difflib.get_close_matches(word, list(known), n=2, cutoff=0.5)]
    return _wrong(f"There is no command {legible(word, _WORD_CHARACTERS)!r}.", near, "perdure --help lists them")


def did_you_mean(word: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.5) -> str:
    """A question about what was meant, to open a hint with; empty where nothing is like it."""
    near = difflib.get_close_matches(word, list(known), n=most, cutoff=cutoff)
    return _asked(dict.fromkeys(near))


def _asked(near: Iterable[str]) -> str:
    meant = " or ".join(map(legible, near))
    return f"did you mean {meant}? " if meant else ""


def _wrong(message: str, near: Iterable[str], hint: str) -> UsageError:
    return UsageError(message, safe=_SAFE, hint=f"{_asked(near)}{hint}")


def _path(arguments: list[str] | None) -> str:
    """The command that was typed, where click does not tell: an option that lacks its value."""
    words = sys.argv[1:] if arguments is None else arguments
    typed = next((word for word in words if not word.startswith("-")), "")
    return f"perdure {legible(typed, _WORD_CHARACTERS)}".strip()


def _heed_json(arguments: list[str] | None) -> None:
    """What is wrong with a command line may be found before its `--json` is come to."""
    words = sys.argv[1:] if arguments is None else arguments
    mode.as_json = mode.as_json or "--json" in words


def _metavar(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.metavar or (parameter.name or "argument").upper()


def _usage(context: click.Context) -> str:
    """How the command is typed, without its options."""
    pieces = [piece for piece in context.command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    return " ".join([context.command_path, *pieces])


def _given(arguments: list[str] | None, parameter: click.Parameter) -> str:
    """What was given for this parameter: the word after the option, or the first that is none."""
    words = (sys.argv[1:] if arguments is None else arguments)[1:]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if isinstance(parameter, click.Option) and name in parameter.opts:
            return legible(value or following, _WORD_CHARACTERS)
    return legible(next((word for word in words if not word.startswith("-")), ""), _WORD_CHARACTERS)
