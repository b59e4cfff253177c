"""`perdure signal`: send a named message to a run."""

from __future__ import annotations

from typing import Annotated

import click
from msgspec import Meta, Struct

from perdure.cli.answer import asked
from perdure.cli.contract import RunObject, run_object
from perdure.cli.control import standing, tell_next
from perdure.cli.options import by_option, json_option, run_argument, store_option
from perdure.cli.screen import bold, print_json, say
from perdure.cli.typed import json_value
from perdure.engine import control
from perdure.status import OpenWait
from perdure.telemetry.text import legible


class Signalled(Struct, frozen=True):
    """A signal that was sent, and where that leaves the run."""

    signal: Annotated[str, Meta(description="the signal's name")]
    is_awaited: Annotated[bool, Meta(description="false where it is kept until the run waits for it")]
    run: Annotated[RunObject, Meta(description="the run after that")]


@click.command()
@run_argument(required=True)
@click.argument("name")
@click.argument("payload", metavar="[JSON]", required=False)
@by_option
@json_option(Signalled)
@store_option
def signal(run: str, name: str, payload: str | None, *, by: str, as_json: bool) -> None:
    """Send the signal NAME to RUN, with JSON as its payload (null where none is given).

    It is kept until the run waits for it, and delivered once, in the order of sending.
    """
    value = None if payload is None else json_value(payload, of=f"signal {legible(name, 60)}")
    found, waits = asked(run)
    control.signal(found.run_id, name, value, by=by)
    awaited = [wait for wait in waits if wait.opened.reason == "signal"]
    after, status = standing(found)
    if as_json:
        is_awaited = any(wait.opened.signal == name for wait in awaited)
        print_json(Signalled(name, is_awaited, run_object(after, status)))
        return
    say(f"{bold(legible(found.name))}  signal {legible(name)} sent{_kept(name, awaited)}")
    tell_next(status)


def _kept(name: str, awaited: list[OpenWait]) -> str:
    """What becomes of a signal that the run does not wait for now: perhaps its name was mistyped."""
    names = [wait.opened.signal for wait in awaited]
    if name in names:
        return ""
    others = f" (it waits for {', '.join(map(legible, names))} now)" if names else ""
    return f"; kept until the run waits for it{others}"
