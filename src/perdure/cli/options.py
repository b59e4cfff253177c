"""What the commands share: which store they look at, and how it is opened."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from msgspec import Struct

from perdure.cli.mode import may_ask, mode
from perdure.errors import UsageError
from perdure.settings import configure, current_settings
from perdure.status import Commands
from perdure.store import open_settings, shown
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.shell_completion import CompletionItem

    from perdure.records import Run
    from perdure.store.protocol import Store

F = TypeVar("F", bound="Callable[..., Any]")
SHAPE: Final = "__perdure_json_shape__"
"""Where a command keeps what its `--json` prints."""

NEWEST: Final = "-"
"""How the run that was started last is named."""

_NAMED_STORE: Final = "perdure.cli.named_store"
_NEWEST_RUN: Final = "perdure.cli.newest_run"
_NAME_CHARACTERS: Final = 200


def store_option(command: F) -> F:
    """`--store PATH`, before or after the command's name."""
    return click.option(
        "--store",
        metavar="PATH",
        expose_value=False,
        callback=_choose_store,
        shell_complete=complete_files,
        help="Where the runs are kept: PERDURE_STORE, else ./.perdure/perdure.db.",
    )(command)


def run_argument(*, required: bool) -> Callable[[F], F]:
    """RUN: a name, an id, the beginning of one of them, or - for the newest."""
    return click.argument(
        "run", metavar="RUN" if required else "[RUN]", required=required, shell_complete=_complete_run
    )


def runs_argument(command: F) -> F:
    """[RUN...]: several of them, or none."""
    return click.argument("runs", metavar="[RUN...]", nargs=-1, shell_complete=_complete_run)(command)


def json_option(shape: type[Struct]) -> Callable[[F], F]:
    """`--json`: one object of this shape on standard output, and nothing else there; the reference documents it."""

    def decorate(command: F) -> F:
        command.__dict__[SHAPE] = shape
        return click.option(
            "--json",
            "as_json",
            is_flag=True,
            is_eager=True,
            callback=_answer_programs,
            help="One JSON object, for programs.",
        )(command)

    return decorate


def yes_option(command: F) -> F:
    """`--yes`: do it without asking."""
    return click.option("--yes", "-y", "sure", is_flag=True, help="Do it without asking.")(command)


def confirm(question: str, *, sure: bool, safe: str = "nothing was changed.") -> None:
    """Go on only if a person says so: with --yes, or on a terminal when asked."""
    if sure:
        return
    if not may_ask():
        words = [shown(_named_by_now(word)) for word in (*sys.argv[1:], "--yes")]
        raise UsageError(
            f"{question.rstrip('?')} needs your word, and nobody can be asked here.",
            safe=safe,
            hint=shlex.join(["perdure", *words]),
        )
    if not click.confirm(f"{question}", err=True):
        raise UsageError("You said no.", safe=safe, hint="nothing is left to do")


def note_newest(store: Store, run: Run) -> None:
    """Remember what `-` meant: whoever agrees to it later must not agree to a run that came since."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.find_root().meta[_NEWEST_RUN] = commands().among(store).named(run)


def _named_by_now(word: str) -> str:
    return str(click.get_current_context().find_root().meta.get(_NEWEST_RUN, word)) if word == NEWEST else word


def commands() -> Commands:
    """Commands as a person can paste them; they look at the same store as this one."""
    return Commands(click.get_current_context().find_root().meta.get(_NAMED_STORE, ""))


def named_store() -> str:
    """The store that --store names; empty where it was left out."""
    return str(click.get_current_context().find_root().meta.get(_NAMED_STORE, ""))


def command(*words: str) -> str:
    """One of them."""
    return commands()(*words)


def by_option(command: F) -> F:
    """`--by NAME`: who speaks; the user of this system where none is given."""
    return click.option("--by", metavar="NAME", default="", callback=_checked_name, help="Who says so: you.")(command)


@contextlib.contextmanager
def looking() -> Iterator[Store]:
    """The store, opened without changing anything."""
    settings = current_settings()
    refuse_memory(settings.store)
    store = open_settings(settings, create=False)
    with contextlib.closing(store):
        yield store


@contextlib.contextmanager
def writing() -> Iterator[Store]:
    """The store, opened to be changed; one that is not there is not made."""
    with looking():
        pass
    with contextlib.closing(open_settings(current_settings())) as store:
        yield store


@contextlib.contextmanager
def making() -> Iterator[Store]:
    """The store, opened to be changed, and made where there is none."""
    settings = current_settings()
    refuse_memory(settings.store)
    with contextlib.closing(open_settings(settings)) as store:
        yield store


def complete_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave it to the shell: here the name of a file is typed."""
    del context, parameter
    from click.shell_completion import CompletionItem  # which only a shell that completes needs

    return [CompletionItem(incomplete, type="file")]


def _complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The runs that a shell offers where RUN is typed."""
    del parameter
    from perdure.cli.complete import run_names  # which no other command needs

    return run_names(context, incomplete)


def _answer_programs(context: click.Context, parameter: click.Parameter, value: bool) -> bool:  # noqa: FBT001 - click's
    del context, parameter
    mode.as_json = mode.as_json or value
    return value


def _checked_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    del context, parameter
    if value and not (value.strip() and value.isprintable() and len(value) <= _NAME_CHARACTERS):
        raise UsageError(
            f"--by {legible(value, 60)!r} is no name.",
            safe="nothing was recorded.",
            hint=f"a printable text of 1 to {_NAME_CHARACTERS} characters",
        )
    return value


def _choose_store(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    del parameter
    if value is None:
        return
    if not value:
        raise UsageError(
            "--store names no path.", safe="nothing was changed.", hint="perdure show --store ./.perdure/perdure.db"
        )
    context.find_root().meta[_NAMED_STORE] = value
    configure(store=os.path.expanduser(value))  # noqa: PTH111 - a location may also be sqlite:PATH


def refuse_memory(location: str) -> None:
    """A store in memory is nobody's but the process's that made it."""
    if location.startswith("memory:"):
        raise UsageError(
            "The store is memory:, which ends with the process that made it.",
            safe="nothing was changed.",
            hint="name a path with --store or PERDURE_STORE",
        )
