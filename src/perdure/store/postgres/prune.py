"""Pruning a store on PostgreSQL: what is referred to is asked anew in every transaction that removes something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.records import FINISHED, Run
from perdure.store.chain import verified_run
from perdure.store.postgres.check import snapshot, stored_blob
from perdure.store.postgres.connect import Q, fetch
from perdure.store.protocol import Old, Prunable, Pruned
from perdure.store.prune import (
    BLOBS_AT_ONCE,
    REFERRING,
    addresses,
    chunks,
    in_order,
    is_old,
    is_old_failure,
    is_old_named,
    mentions,
    needed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from perdure.store.postgres.connect import Line


def prunable(connection: psycopg.Connection[Any], old: Old) -> Prunable:
    """What pruning would remove, as it is at one moment."""
    with snapshot(connection):
        rows = fetch(connection, "list_every_run")
        runs = [verified_run(Run(*row[1:])) for row in rows]
        going = {run.run_id for run in runs if is_old(run, old)}
        active = [row[0] for row in rows if row[1] not in going and row[8] not in FINISHED]
        mentioned = _mentioned(connection, active)
        staying = needed(runs, going, mentioned)
        leaving = in_order(run for run in runs if run.run_id in going - staying)
        numbers = [row[0] for row in rows if row[1] in going - staying]
        records, mail, size = _measured(connection, numbers, [run.run_id for run in leaving])
        unneeded = _unneeded(connection, without=set(numbers))
    return Prunable(
        runs=tuple(leaving),
        failed=sum(is_old_failure(run, old) for run in runs),
        named=sum(is_old_named(run, old) for run in runs),
        needed=len(staying),
        records=records,
        mail=mail,
        blobs=len(unneeded),
        size=size + sum(unneeded.values()),
    )


def prune(line: Line, would: Prunable) -> Iterator[Pruned]:
    """Remove what was found, each time in a transaction of its own, as far as it still may go."""
    for chunk in chunks(list(would.runs)):
        going = [run.run_id for run in would.runs]
        yield line.again(lambda connection, chunk=chunk, going=going: _remove_runs(connection, chunk, going))  # type: ignore[misc]
    unneeded = line.again(lambda connection: sorted(_unneeded(connection, without=set())))
    for first in range(0, len(unneeded), BLOBS_AT_ONCE):
        some = unneeded[first : first + BLOBS_AT_ONCE]
        yield line.again(lambda connection, some=some: _remove_blobs(connection, some))  # type: ignore[misc]


def _remove_runs(connection: psycopg.Connection[Any], chunk: list[Run], going: list[str]) -> Pruned:
    """A run that was resumed or is referred to since it was found stays; its row is locked while that is asked."""
    with connection.transaction():
        held = [row for run in chunk for row in fetch(connection, "lock_run", (run.run_id,)) if Run(*row[1:]) == run]
        active = [number for (number,) in fetch(connection, "list_active", (going,))]
        mentioned = _mentioned(connection, active)
        gone = [row for row in held if row[1] not in mentioned]
        numbers, ids = [row[0] for row in gone], [row[1] for row in gone]
        _, _, size = _measured(connection, numbers, ids)
        counts = [
            connection.execute(Q[query], (keys,)).rowcount
            for query, keys in (
                ("prune_records", numbers),
                ("prune_mail", ids),
                ("prune_set_aside", numbers),
                ("prune_runs", numbers),
            )
        ]
    return Pruned(runs=counts[3], records=counts[0], mail=counts[1], size=size)


def _remove_blobs(connection: psycopg.Connection[Any], digests: list[bytes]) -> Pruned:
    """Who stores one of them anew waits for the lock on it: before, it is seen to be needed; after, it is stored."""
    with connection.transaction():
        fetch(connection, "lock_blobs", (digests,))
        unneeded = _unneeded(connection, without=set())
        chosen = [digest for digest in digests if digest in unneeded]
        connection.execute(Q["prune_blobs"], (chosen,))
    return Pruned(blobs=len(chosen), size=sum(unneeded[digest] for digest in chosen))


def _mentioned(connection: psycopg.Connection[Any], numbers: list[int]) -> set[str]:
    bodies = fetch(connection, "read_referring", (numbers, list(REFERRING)))
    return set().union(*(mentions(body) for (body,) in bodies))


def _measured(connection: psycopg.Connection[Any], numbers: list[int], ids: list[str]) -> tuple[int, int, int]:
    ((records, record_size),) = fetch(connection, "measure_records", (numbers,))
    ((mail, mail_size),) = fetch(connection, "measure_mail", (ids,))
    return int(records), int(mail), int(record_size) + int(mail_size)


def _unneeded(connection: psycopg.Connection[Any], *, without: set[int]) -> dict[bytes, int]:
    """The large values that no record refers to but those of these runs, and their sizes."""
    stored: dict[bytes, int] = dict(fetch(connection, "list_blobs"))
    referred: set[bytes] = set()
    for number, body in fetch(connection, "read_bodies") if stored else ():
        if number not in without and body is not None:
            referred |= addresses(body, lambda digest: stored_blob(connection, digest))
    return {digest: size for digest, size in stored.items() if digest not in referred}
