"""A server that is away for a while: workers wait for it, and nothing is performed, lost or repeated meanwhile."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from perdure import clock
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.location import read_location
from perdure.worker.absence import FIRST_SILENCE_SECONDS
from tests.faces.conftest import Place
from tests.postgres import private_server, schema_url
from tests.store.proxy import Proxy
from tests.summary import note
from tests.worker.conftest import Crew

LEASE_SECONDS = 2.0

PAYMENTS = """
    @perdure.effect
    def pay(name: str, number: int) -> int:
        log(f"pay {name} {number} {time.time()}")
        return number

    @perdure.step
    def think(number: int) -> int:
        time.sleep(0.01)
        return number

    @perdure.agent
    def payer(name: str, payments: int) -> int:
        return sum(pay(name, think(number)) for number in range(payments))

    if __name__ == "__main__":
        print("result:", perdure.run(payer, sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture
def wire() -> Iterator[Proxy]:
    with schema_url() as url, Proxy(url) as made:
        yield made


@pytest.fixture
def crew(wire: Proxy, tmp_path: Path) -> Iterator[Crew]:
    place = Place(tmp_path)
    place.environment["PERDURE_STORE"] = wire.url
    made = Crew(place, more=PAYMENTS)
    yield made
    wire.is_down = False
    made.end()


def hasten(crew: Crew, **settings: float) -> None:
    """Make leases so short that an absence of the server outlasts them."""
    short = {"lease_seconds": LEASE_SECONDS, "renew_seconds": LEASE_SECONDS / 4, "stall_seconds": LEASE_SECONDS}
    for name, value in (short | settings).items():
        crew.place.environment[f"PERDURE_{name.upper()}"] = str(value)


def payments(crew: Crew) -> dict[tuple[str, int], list[float]]:
    """Every payment, and when it was performed."""
    made = collections.defaultdict(list)
    for line in crew.log():
        _, name, number, at = line.split()
        made[name, int(number)].append(float(at))
    return made


def assert_once(crew: Crew, *, runs: int, each: int) -> None:
    made = payments(crew)
    assert len(made) == runs * each
    assert {len(times) for times in made.values()} == {1}


def test_workers_wait_for_a_server_that_is_away_and_go_on(crew: Crew, wire: Proxy) -> None:
    runs = {crew.start("payer", name=f"n{number}", payments=40) for number in range(3)}
    crew.worker()
    for absence in range(3):
        reached = len(crew.log()) + 10
        crew.until(lambda reached=reached: len(crew.log()) > reached)
        refused = wire.refused
        wire.go_away()
        crew.until(lambda refused=refused: wire.refused > refused + 3)
        performed = crew.log()
        crew.until(lambda refused=refused: wire.refused > refused + 8)
        assert crew.log() == performed, f"absence {absence}"
        wire.is_down = False
    crew.until(lambda: runs <= set(crew.ended()))
    assert_once(crew, runs=3, each=40)


def absent(crew: Crew, wire: Proxy, *, leases: float) -> tuple[float, float]:
    """Take the server away for so many leases; from when to when that was."""
    wire.go_away()
    gone_at = time.time()
    crew.until(lambda: time.time() > gone_at + leases * LEASE_SECONDS)
    back_at = time.time()
    wire.is_down = False
    return gone_at, back_at


@pytest.mark.parametrize("by", ["workers", "script"])
def test_nothing_is_performed_while_the_server_is_away_for_longer_than_a_lease(
    crew: Crew, wire: Proxy, by: str
) -> None:
    hasten(crew)
    runs = 2 if by == "workers" else 1
    if by == "script":
        crew.script("app.py", "n0", "30")
    else:
        for number in range(runs):
            crew.start("payer", name=f"n{number}", payments=30)
        crew.worker()
        crew.worker()
    crew.until(lambda: len(crew.log()) > 10)
    gone_at, back_at = absent(crew, wire, leases=2)
    crew.until(lambda: len(payments(crew)) == runs * 30)
    crew.until(lambda: {state for state, _ in crew.states().values()} == {"completed"})
    assert_once(crew, runs=runs, each=30)
    under_way = 0.5
    """A payment whose intent was acknowledged just before may still be on its way out of the process."""
    assert not [at for times in payments(crew).values() for at in times if gone_at + under_way < at < back_at]


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(b"FOR NO KEY UPDATE", id="claim"),
        pytest.param(b"FROM records", id="load", marks=pytest.mark.exhaustive),
        pytest.param(b"FROM mailbox WHERE run_id", id="mail", marks=pytest.mark.exhaustive),
        pytest.param(b"intent", id="intent"),
    ],
)
def test_recovery_goes_on_after_a_server_that_went_away_in_the_middle_of_it(
    crew: Crew, wire: Proxy, moment: bytes
) -> None:
    hasten(crew)
    crew.start("payer", name="n0", payments=12)
    first = crew.worker()
    crew.until(lambda: len(crew.log()) > 4)
    crew.kill(first)
    began = len(payments(crew))
    cuts = wire.cuts
    wire.cut_once("away", moment)
    crew.worker()
    crew.until(lambda: wire.cuts > cuts)
    assert len(payments(crew)) == began
    gone_at = time.time()
    crew.until(lambda: time.time() > gone_at + 1.5 * LEASE_SECONDS)
    assert len(payments(crew)) == began
    wire.is_down = False
    settle_in_doubt(crew)
    crew.until(lambda: {state for state, _ in crew.states().values()} == {"completed"})
    assert_once(crew, runs=1, each=12)


def settle_in_doubt(crew: Crew) -> None:
    """The kill may have come between a payment and its receipt: whoever has seen it says that it happened."""
    crew.until(lambda: next(iter(crew.states().values())) in [("completed", ""), ("waiting", "in_doubt")])
    ((run, (_, reason)),) = crew.states().items()
    if reason == "in_doubt":
        number = max(number for _, number in payments(crew))
        assert crew.place.perdure("settle", run, "pay", "--happened", str(number)).code == 0


def test_run_that_its_worker_gave_up_goes_on_once_the_server_is_back(crew: Crew, wire: Proxy) -> None:
    """The row still names a worker that lives and executes it no more."""
    hasten(crew, away_seconds=0.5)
    crew.start("payer", name="n0", payments=40)
    crew.worker()
    crew.until(lambda: len(crew.log()) > 10)
    absent(crew, wire, leases=2)
    crew.until(lambda: {state for state, _ in crew.states().values()} == {"completed"})
    assert_once(crew, runs=1, each=40)


@pytest.mark.torture
@pytest.mark.minutes(1.3)
@pytest.mark.parametrize("by", ["workers", "script"])
def test_server_that_is_killed_and_away_for_thirty_seconds_costs_nothing_and_repeats_nothing(
    tmp_path: Path, by: str
) -> None:
    with private_server() as server, contextlib.ExitStack() as stack:
        place = Place(tmp_path)
        place.environment["PERDURE_STORE"] = server.url
        crew = Crew(place, more=PAYMENTS)
        stack.callback(crew.end)
        if by == "script":
            crew.script("app.py", "n0", "200")
        else:
            for number in range(4):
                crew.start("payer", name=f"n{number}", payments=200)
            crew.worker()
            crew.worker()
        crew.until(lambda: len(crew.log()) > 50)
        for _ in range(2):
            server.kill()
            gone_at = time.time()
            while time.time() < gone_at + 30:
                time.sleep(0.5)
            back_at = time.time()
            server.start()
            assert not [at for times in payments(crew).values() for at in times if gone_at + 1 < at < back_at]
            reached = len(crew.log())
            crew.until(lambda reached=reached: len(crew.log()) > reached)
        runs = 1 if by == "script" else 4
        crew.until(lambda: len(payments(crew)) == runs * 200)
        crew.until(lambda: {state for state, _ in crew.states().values()} == {"completed"})
        assert_once(crew, runs=runs, each=200)
        note("servers away for thirty seconds", trials=runs, landed={"server kills": 2}, planned=2)


def test_who_waits_for_a_queued_run_waits_for_the_server_too(crew: Crew, wire: Proxy) -> None:
    crew.place.write(
        "wait.py",
        """
        import app

        handle = perdure.start(app.payer, "n", 2, queue="pay")
        log = app.log
        log("waiting")
        log(f"result {handle.result()}")
        """,
    )
    waiting = crew.script("wait.py")
    crew.until(lambda: "waiting" in crew.log())
    refused = wire.refused
    wire.go_away()
    crew.until(lambda: wire.refused > refused + 3)
    wire.is_down = False
    crew.worker()
    crew.until(lambda: "result 1" in crew.log())
    assert waiting.wait(60) == 0
    assert sorted(" ".join(line.split()[:3]) for line in crew.log()) == ["pay n 0", "pay n 1", "result 1", "waiting"]


def test_rights_that_were_taken_back_are_said_rarely_and_runs_go_on_once_they_are_given_again(tmp_path: Path) -> None:
    with schema_url() as url, role_with_rights(url) as (theirs, grant, revoke):
        place = Place(tmp_path)
        place.environment["PERDURE_STORE"] = theirs
        crew = Crew(place)
        crew.worker()
        crew.until(lambda: told(crew, "worker_started"))
        place.environment["PERDURE_STORE"] = url
        revoke()
        run = crew.start("job", name="a", steps=1)
        crew.until(lambda: len(told(crew, "store_missed")) == 2)
        first, second = told(crew, "store_missed")
        assert "may not do this" in first["error"]
        assert (first["seconds"], second["seconds"] >= FIRST_SILENCE_SECONDS) == (0.0, True)
        grant()
        crew.until(lambda: run in crew.ended())
        crew.until(lambda: told(crew, "store_found"))
        assert len(told(crew, "store_found")) == 1
        crew.end()


def told(crew: Crew, event: str) -> list[dict[str, Any]]:
    return [each for each in crew.told if each["event"] == event]


@contextlib.contextmanager
def role_with_rights(url: str) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """The same store by the name of a role that may do everything with its tables, until that is taken back."""
    name, schema = f"r_{clock.new_token(8)}", read_location(url).schema
    PostgresStore(url).close()

    def say(*statements: str) -> None:
        with psycopg.connect(read_location(url).url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def grant() -> None:
        say(*(f"GRANT ALL ON ALL {kind} IN SCHEMA {schema} TO {name}" for kind in ("TABLES", "SEQUENCES")))

    def revoke() -> None:
        say(f"REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} FROM {name}")

    say(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'", f"GRANT USAGE ON SCHEMA {schema} TO {name}")
    grant()
    parts = urlsplit(url)
    try:
        yield parts._replace(netloc=f"{name}:secret@{parts.hostname or ''}").geturl(), grant, revoke
    finally:
        say(f"DROP OWNED BY {name}", f"DROP ROLE {name}")
