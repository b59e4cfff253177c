"""`perdure signal`: send a named message to a run."""

from __future__ import annotations

import click

from perdure.cli.control import tell_next
from perdure.cli.options import by_option, json_value, looking, run_argument, store_option
from perdure.cli.runs import current_run
from perdure.cli.screen import bold, say
from perdure.engine import control
from perdure.replay import Journal
from perdure.status import OpenWait, open_waits
from perdure.telemetry.text import legible


@click.command()
@run_argument(required=True)
@click.argument("name")
@click.argument("payload", metavar="[JSON]", required=False)
@by_option
@store_option
def signal(run: str, name: str, payload: str | None, by: str) -> None:
    """Send the signal NAME to RUN, with JSON as its payload (null where none is given).

    It is kept until the run waits for it, and delivered once, in the order of sending.
    """
    value = None if payload is None else json_value(payload, of=f"signal {legible(name, 60)}")
    with looking() as store:
        found = current_run(store, run)
        waits = open_waits(store, found, Journal(store.load_journal(found.run_id)))
    control.signal(found.run_id, name, value, by=by)
    say(f"{bold(legible(found.name))}  signal {legible(name)} sent{_kept(name, waits)}")
    tell_next(found)


def _kept(name: str, waits: list[OpenWait]) -> str:
    """What becomes of a signal that the run does not wait for now: perhaps its name was mistyped."""
    awaited = [wait.opened.signal for wait in waits if wait.opened.reason == "signal"]
    if name in awaited:
        return ""
    others = f" (it waits for {', '.join(map(legible, awaited))} now)" if awaited else ""
    return f"; kept until the run waits for it{others}"
