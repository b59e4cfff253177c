"""The end of a run's page: its result, or why it stopped, and the next command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.bodies import Ended, read_body
from perdure.cli.screen import dim, good, joined, room, say
from perdure.cli.table import command_lines
from perdure.records import Kind, RunState
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from perdure.records import Record, Run
    from perdure.status import Status
    from perdure.store.protocol import Store

_RESULT_CHARACTERS: Final = 500


def tell_end(store: Store, run: Run, status: Status, last: Record) -> None:
    """The lines below a timeline."""
    result = result_of(store, last)
    if result is not None:
        say(f"  {good('completed')}")
        say(f"  result: {legible(result.decode(), _RESULT_CHARACTERS)}")
    if status.cause:
        first, *more = status.cause.removeprefix(f"Run {run.name}: ").splitlines()
        say(joined(status.words, legible(first)))
        for line in more:
            say(f"  {dim('|')} {legible(line)}")
    if status.hint:
        say(f"  {dim('do:')} {legible(status.hint)}")
    if status.next:
        for line in command_lines(status.next, width=room(), margin=""):
            say(line)


def result_of(store: Store, last: Record) -> bytes | None:
    """What a completed run returned, sealed; None where it did not."""
    ended = read_body(last) if last.kind == Kind.ENDED else None
    if not isinstance(ended, Ended) or ended.state != RunState.COMPLETED:
        return None
    return store.load_blob(bytes.fromhex(ended.blob)) if ended.blob else bytes(ended.value)
