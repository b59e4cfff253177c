"""What the commands share: which store they look at, and how it is opened."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from perdure.errors import UsageError
from perdure.settings import configure, current_settings
from perdure.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perdure.store.protocol import Store

F = TypeVar("F", bound="Callable[..., Any]")
_NAMED_STORE: Final = "perdure.cli.named_store"


def store_option(command: F) -> F:
    """`--store PATH`, before or after the command's name."""
    return click.option(
        "--store",
        metavar="PATH",
        expose_value=False,
        callback=_choose_store,
        help="Where the runs are kept: PERDURE_STORE, else ./.perdure/perdure.db.",
    )(command)


def run_argument(*, required: bool) -> Callable[[F], F]:
    """RUN: a name, an id, the beginning of one of them, or - for the newest."""
    return click.argument("run", metavar="RUN", required=required)


def command(*words: str) -> str:
    """A command as a person can paste it; it looks at the same store as this one."""
    named = click.get_current_context().find_root().meta.get(_NAMED_STORE)
    store = ("--store", named) if named else ()
    return shlex.join(("perdure", *words, *store))


@contextlib.contextmanager
def looking() -> Iterator[Store]:
    """The store, opened without changing anything."""
    settings = current_settings()
    _refuse_memory(settings.store)
    store = open_store(settings.store, create=False, seconds=settings.open_seconds)
    with contextlib.closing(store):
        yield store


@contextlib.contextmanager
def writing() -> Iterator[Store]:
    """The store, opened to be changed; one that is not there is not made."""
    with looking():
        pass
    settings = current_settings()
    with contextlib.closing(open_store(settings.store, seconds=settings.open_seconds)) as store:
        yield store


def _choose_store(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    del parameter
    if value is None:
        return
    if not value:
        raise UsageError("--store names no path.", hint="perdure show --store ./.perdure/perdure.db")
    context.find_root().meta[_NAMED_STORE] = value
    configure(store=os.path.expanduser(value))  # noqa: PTH111 - a location may also be sqlite:PATH


def _refuse_memory(location: str) -> None:
    if location.startswith("memory:"):
        raise UsageError(
            "The store is memory:, which ends with the process that made it.",
            safe="nothing was changed.",
            hint="name a path with --store or PERDURE_STORE",
        )
