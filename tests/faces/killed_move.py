"""Moves runs in processes that are killed, with a real SIGKILL, at every statement they send to either store.

Started with a source and a target. For each number read from standard input a process moves, and dies when it has come
to that many statements or acknowledged transactions; what became of it is answered with a line.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import psycopg

from perdure.cli import main
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite import file as sqlite

_VERBS = ("receive_runs", "close_runs", "release_runs")


class Countdown:
    """So many moments are left to live."""

    def __init__(self, moments: int) -> None:
        self.left = moments

    def pass_by(self, *_: object) -> bool:
        """One moment more; apsw goes on where this is true."""
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
        return True


def arm(countdown: Countdown) -> None:
    """Put a moment before every statement, and after every verb that writes."""
    connect = vars(sqlite)["connect"]
    execute: Any = psycopg.Connection.execute
    executemany: Any = psycopg.Cursor.executemany

    def connected(*args: Any, **kwargs: Any) -> Any:
        connection = connect(*args, **kwargs)
        connection.exec_trace = countdown.pass_by
        return connection

    def executed(*args: Any, **kwargs: Any) -> Any:
        countdown.pass_by()
        return execute(*args, **kwargs)

    def executed_many(*args: Any, **kwargs: Any) -> Any:
        countdown.pass_by()
        return executemany(*args, **kwargs)

    setattr(sqlite, "connect", connected)  # noqa: B010 - it is not ours to export
    psycopg.Connection.execute = executed  # type: ignore[method-assign]
    psycopg.Cursor.executemany = executed_many  # type: ignore[method-assign]
    for store in (SqliteStore, PostgresStore):
        for verb in _VERBS:
            setattr(store, verb, _followed(getattr(store, verb), countdown))


def _followed(verb: Any, countdown: Countdown) -> Any:
    def acknowledged(*args: Any, **kwargs: Any) -> Any:
        outcome = verb(*args, **kwargs)
        countdown.pass_by()
        return outcome

    return acknowledged


def _move(moments: int) -> int:
    """The wait status of a process that moves until it is killed."""
    child = os.fork()
    if not child:
        arm(Countdown(moments))
        code = main(["migrate", "--from", sys.argv[1], "--to", sys.argv[2], "--json"])
        sys.stdout.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for line in sys.stdin:
        ended = _move(int(line))
        print(f"ended {ended}", flush=True)
