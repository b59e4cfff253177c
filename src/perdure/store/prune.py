"""Which runs and large values nobody needs any more: the pure part of pruning, shared by every store.

Doubt keeps: every text in a first record, a wait or an ending that equals a run's id counts as a reference to it, and
every 64 hexadecimal digits in a body as a reference to the large value of that address.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.errors import CheckpointCorrupt
from perdure.records import FINISHED, Kind, Run, RunState, is_own_id, undo_id
from perdure.store.lease import read_park

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from perdure.store.protocol import Old

REFERRING: Final = (Kind.STARTED, Kind.WAIT, Kind.ENDED)
"""Records that may name other runs: who started this one, whom it waits for, who goes on in its place."""

RUNS_AT_ONCE: Final = 100
RECORDS_AT_ONCE: Final = 5000
BLOBS_AT_ONCE: Final = 500
"""One transaction removes no more than this, so that nobody who writes has to wait for long."""

_ADDRESS: Final = re.compile(r"[0-9a-f]{64}")
_LISTING: Final = re.compile(r'"listing":"([0-9a-f]{64})"')
_CONTINUED: Final = "continued"


def is_old(run: Run, old: Old) -> bool:
    """Whether a run has ended, and long enough ago."""
    is_over = run.state in FINISHED or (old.failed and run.state == RunState.FAILED and not run.holder)
    return is_over and run.updated_at < old.ended_before and (old.named or not is_own_id(run.run_id))


def is_old_named(run: Run, old: Old) -> bool:
    """Whether a run stays only because somebody chose its id, and nobody asked for those."""
    return not is_old(run, old) and is_old(run, msgspec.structs.replace(old, named=True))


def is_old_failure(run: Run, old: Old) -> bool:
    """Whether a run stays only because it failed, and nobody asked for those."""
    return not old.failed and run.state == RunState.FAILED and run.updated_at < old.ended_before


def needed(runs: Iterable[Run], going: Collection[str], mentioned: set[str]) -> set[str]:
    """The ids that must stay of those that could go, where `mentioned` are the texts in journals that go on.

    Whoever goes on in the place of a run answers for it: either both stay or the older may go. So does the run that
    took its effects back: without that nothing would say so, and they could be taken back again.
    """
    rows = {run.run_id: run for run in runs}
    staying = [run_id for run_id in rows if run_id not in going or run_id in mentioned]
    found: set[str] = set()
    while staying:
        run_id = staying.pop()
        if run_id in rows and run_id not in found:
            found.add(run_id)
            staying += [_previous(run_id), _following(rows[run_id]), *_undoings(run_id, rows)]
    return found.intersection(going)


def in_order(runs: Iterable[Run]) -> list[Run]:
    """As they should go: failed ones and parents first, so that none is left that would start what is gone anew."""
    return sorted(runs, key=lambda run: (run.state != RunState.FAILED, run.created_at))


def mentions(body: str) -> set[str]:
    """Every text in a body."""
    try:
        return set(_texts(msgspec.json.decode(body)))
    except (ValueError, RecursionError) as error:
        raise _unreadable(error) from error


def addresses(body: str, load_blob: Callable[[bytes], bytes]) -> set[bytes]:
    """Every large value that a body may refer to, itself or through the listing of a directory."""
    found = {bytes.fromhex(text) for text in _ADDRESS.findall(body)}
    for listing in _LISTING.findall(body):
        content = load_blob(bytes.fromhex(listing)).decode(errors="replace")
        found.update(bytes.fromhex(text) for text in _ADDRESS.findall(content))
    return found


def chunks(runs: list[Run]) -> Iterator[list[Run]]:
    """The runs, as many together as one transaction may remove."""
    chunk: list[Run] = []
    for run in runs:
        is_full = len(chunk) == RUNS_AT_ONCE or sum(one.length for one in chunk) + run.length > RECORDS_AT_ONCE
        if chunk and is_full:
            yield chunk
            chunk = []
        chunk.append(run)
    if chunk:
        yield chunk


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _following(run: Run) -> str:
    park = read_park(run)
    return park.message if park.code == _CONTINUED else ""


def _undoings(run_id: str, rows: Collection[str]) -> Iterator[str]:
    """The runs that were to take this one's effects back."""
    number = 1
    while (undoing := undo_id(run_id, number)) in rows:
        yield undoing
        number += 1


def _previous(run_id: str) -> str:
    """The run in whose place this one may go on, by its id."""
    base, mark, number = run_id.rpartition("~")
    if not mark or not number.isdecimal():
        return ""
    return base if int(number) == 2 else f"{base}~{int(number) - 1}"  # noqa: PLR2004 - the first has no number


def _unreadable(error: Exception) -> CheckpointCorrupt:
    return CheckpointCorrupt(
        f"A record cannot be read ({error}): what it refers to is not known.",
        safe="nothing was removed.",
        hint="perdure verify, then perdure repair",
    )
