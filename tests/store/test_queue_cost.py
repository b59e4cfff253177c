"""What looking for work costs does not depend on how much there is: counted in work done, never in time."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import apsw
import psycopg
import pytest

from perdure.records import RunState
from perdure.store.postgres import queues as on_postgres
from perdure.store.postgres.connect import Q as POSTGRES
from perdure.store.postgres.location import read_location
from perdure.store.queues import HEARD_AT_ONCE, asked
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite import queues as on_sqlite
from perdure.store.sqlite.statements import Q as SQLITE
from perdure.store.sqlite.statements import fetch
from tests.store.journals import AGENT, created, ending, held_run, land, new_run
from tests.store.places import PostgresPlace, foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perdure.store.protocol import Store

FEW, MANY = 50, 3_000
COLUMNS = (
    *("name", "agent", "arguments", "durability", "created_at", "updated_at", "state", "reason", "detail", "epoch"),
    *("holder", "deliveries", "steps", "suspects", "length", "head", "digest", "wake_at", "heard", "tags", "tokens"),
    *("dollars", "queue", "priority", "tenant", "turn", "version"),
)
CROWDS: dict[str, dict[str, str]] = {
    "queued": {"turn": "number", "tenant": "'tenant-' || (number % 7)"},
    "unknown": {"turn": "number", "agent": "'unknown.agent'"},
    "pinned": {"turn": "number", "version": "'v9'"},
    "delayed": {"wake_at": "1000 + number"},
    "finished": {"state": "'completed'"},
    "waiting": {"state": "'waiting'", "wake_at": "1000 + number"},
    "asking": {"state": "'waiting'"},
    "foreign": {"state": "'waiting'", "wake_at": "1", "agent": "'unknown.agent'"},
    "moving": {"state": "'running'", "holder": "'holder-' || (number % 3)"},
}
HEARD_MAIL = (
    "INSERT INTO mailbox (run_id, kind, key, body, sender, at, taken, digest)"
    " SELECT run_id, 'signal', '', '{}', 'ada', 1.0, 0, x'00' FROM runs"
    " WHERE run_id LIKE 'finished-%' OR run_id LIKE 'asking-%'"
)
NEW = new_run("new", tenant="tenant-3")[0]
WANTED = asked([AGENT], [], "")


def crowd(count: int, numbers: str) -> list[str]:
    """Statements that make so many runs of every kind out of the one that is there."""
    return [
        f"INSERT INTO runs (run_id, {', '.join(COLUMNS)})"  # noqa: S608 - names and numbers of ours
        f" SELECT '{kind}-' || number, {', '.join(changes.get(column, column) for column in COLUMNS)}"
        f" FROM {numbers.format(count)}, runs WHERE run_id = 'seed'"
        for kind, changes in CROWDS.items()
    ]


def seeded(store: Store) -> None:
    created(store, "seed")
    land(store, ending(held_run(store, "other"), RunState.COMPLETED))
    store.close()


class TestSqlite:
    NUMBERS = (
        "(WITH RECURSIVE counted (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM counted WHERE number < {})"
        " SELECT number FROM counted)"
    )

    @pytest.mark.parametrize(
        "look",
        [
            lambda reader: on_sqlite.ready(reader, WANTED, {"holder-1"}, now=500.0, limit=10),
            lambda reader: on_sqlite.ready(reader, WANTED, set(), now=1e9, limit=10),
            lambda reader: on_sqlite.in_line(reader, NEW),
            lambda reader: on_sqlite.in_line(reader, new_run("new", tenant="nobody")[0]),
            lambda reader: fetch(reader, "list_holders"),
            lambda reader: fetch(reader, "list_delayed", (500.0, 10)),
            lambda reader: fetch(reader, "list_delayed", (1e9, 10)),
        ],
        ids=["ready", "ready-and-due", "turn", "turn-of-a-new-tenant", "holders", "none-delayed", "delayed"],
    )
    def test_looking_for_work_is_as_much_work_with_many_runs_as_with_few(
        self, tmp_path: Path, look: Callable[[apsw.Connection], object]
    ) -> None:
        work = [self.work(tmp_path / f"{count}.db", count, look) for count in (FEW, MANY)]
        assert work[1] <= work[0] + 50

    def work(self, path: Path, count: int, look: Callable[[apsw.Connection], object], *, mailed: bool = False) -> int:
        """How many steps SQLite's machine takes."""
        seeded(SqliteStore(path))
        steps: list[int] = []
        with foreign(path) as connection:
            for statement in crowd(count, self.NUMBERS):
                connection.execute(statement)
            if mailed:
                connection.execute(HEARD_MAIL)
                connection.execute("UPDATE runs SET heard = 1000000 WHERE run_id LIKE 'asking-%'")
                with contextlib.closing(SqliteStore(path)) as store:
                    for _ in range(2 * count // HEARD_AT_ONCE + 1):
                        store.wake_due(now=0.0)
            counter = "SQLITE_STMTSTATUS_VM_STEP"
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"][counter]))
            look(connection)
        return sum(steps)

    def test_mail_that_can_wake_nobody_costs_nothing(self, tmp_path: Path) -> None:
        def look(reader: apsw.Connection) -> object:
            return on_sqlite.ready(reader, WANTED, set(), now=500.0, limit=10)

        work = [self.work(tmp_path / f"{count}.db", count, look, mailed=True) for count in (FEW, MANY)]
        assert work[1] <= work[0] + 50

    def test_step_changes_no_column_that_an_index_depends_on(self, tmp_path: Path) -> None:
        SqliteStore(tmp_path / "perdure.db").close()
        changed = {part.split()[0] for part in SQLITE["extend_run"].split(" SET ")[1].split(" WHERE ")[0].split(", ")}
        with foreign(tmp_path / "perdure.db") as connection:
            indexes = "SELECT name, coalesce(sql, '') FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'runs'"
            for name, text in connection.execute(indexes).fetchall():
                columns = {row[2] for row in connection.execute(f"PRAGMA index_info({name})")}
                words = set(str(text).replace("(", " ").replace(")", " ").replace(",", " ").split())
                assert not changed & (columns | words), name


class TestPostgres:
    def test_looking_for_work_reads_no_more_rows_with_many_runs_than_with_few(self, place: PostgresPlace) -> None:
        with self.crowded(place) as connection:
            for name, arguments in self.questions().items():
                rows = rows_read(connection, POSTGRES[name], arguments)
                assert rows <= 60, f"{name} read {rows} rows"

    def test_what_is_measured_is_what_is_asked(self, place: PostgresPlace) -> None:
        with self.crowded(place) as connection:
            found = on_postgres.ready(connection, WANTED, [("default", "holder-1")], now=1e9, limit=10)
            first = on_postgres.in_line(connection, [NEW])[0]
        states = [run.state for run in found]
        assert states == ["running"] * 10 + ["waiting"] * 10 + ["queued"] * 10
        assert first.turn == MANY - (MANY - 3) % 7 + 1

    @pytest.fixture
    def place(self, request: pytest.FixtureRequest) -> Iterator[PostgresPlace]:
        from tests.postgres import schema_url

        with schema_url() as url:
            yield PostgresPlace(url)

    @contextlib.contextmanager
    def crowded(self, place: PostgresPlace) -> Iterator[psycopg.Connection[Any]]:
        seeded(place.open())
        location = read_location(place.url)
        with psycopg.connect(location.url, autocommit=True) as connection:
            connection.execute(f"SET search_path TO {location.schema}")
            for statement in crowd(MANY, "generate_series(1, {}) AS number"):
                connection.execute(statement)
            connection.execute("ANALYZE runs")
            yield connection

    def questions(self) -> dict[str, tuple[Any, ...]]:
        line = (["default"], [AGENT], [""])
        return {
            "list_holders": (),
            "list_held": (["default"], ["holder-1"], [AGENT], [""], 10),
            "list_lines": (),
            "list_queued": (*line, 10),
            "list_waiting_lines": (),
            "list_soonest": (*line, 1e9, 10),
            "list_mailed": ([AGENT], [""], [], True, [], 10),
            "list_delayed": (1e9, 10),
            "list_loads": (),
            "read_turns": (*(2 * names for names in line), [0, 0], ["tenant-3", "nobody"]),
        }


def rows_read(connection: psycopg.Connection[Any], statement: str, arguments: tuple[Any, ...]) -> int:
    """How many rows a statement's plan fetched and threw away, all nodes together."""
    ((plans,),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", arguments).fetchall()
    return sum(map(_rows_of, (plan["Plan"] for plan in plans)))


def _rows_of(node: dict[str, Any]) -> int:
    own = 0
    if "Scan" in node["Node Type"] and node.get("Relation Name") == "runs":
        each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        own = round(each * node["Actual Loops"])
    return own + sum(map(_rows_of, node.get("Plans", ())))
