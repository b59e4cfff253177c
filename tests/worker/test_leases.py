"""Leases: who cannot renew stops before others may take over, who can keeps its runs, and who is robbed is fenced."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from perdure.store.postgres import PostgresStore
from perdure.store.postgres.location import read_location
from tests.faces.conftest import Place
from tests.postgres import schema_url
from tests.store.proxy import Proxy
from tests.worker.conftest import Crew

LEASE_SECONDS = 3.0

BODIES = """
    import asyncio, ctypes

    LEASE = float(os.environ["PERDURE_LEASE_SECONDS"])

    @perdure.effect(in_flight_seconds=0)
    def pay(name: str) -> str:
        log(f"pay {name}")
        return name

    @perdure.step
    async def ponder(name: str) -> str:
        log(f"pondering {name}")
        try:
            while not os.path.exists(f"{name}.go"):
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            log(f"cancelled {name} {time.time()}")
            raise
        return name

    @perdure.agent
    async def ponderer(name: str) -> str:
        await ponder(name)
        return pay(name)

    @perdure.agent
    def payer(name: str) -> str:
        work(name, 0)
        return pay(name)

    @perdure.step
    def block(name: str) -> str:
        log(f"begin {name}")
        time.sleep(3 * LEASE)
        log(f"end {name}")
        return name

    @perdure.step
    async def block_the_loop(name: str) -> str:
        log(f"begin {name}")
        time.sleep(3 * LEASE)
        log(f"end {name}")
        return name

    @perdure.agent
    def blocked(name: str) -> str:
        block(name)
        return pay(name)

    @perdure.agent
    async def blocked_loop(name: str) -> str:
        await block_the_loop(name)
        return pay(name)

    @perdure.step
    def hold_the_interpreter(name: str) -> str:
        log(f"begin {name}")
        if not os.path.exists(f"{name}.frozen"):
            open(f"{name}.frozen", "w").close()
            while not os.path.exists(f"{name}.go"):
                ctypes.PyDLL(None).sleep(int(4 * LEASE))
            log(f"thawed {name}")
        return name

    @perdure.agent
    def stuck(name: str) -> str:
        hold_the_interpreter(name)
        return pay(name)

    if __name__ == "__main__":
        print("result:", perdure.run(globals()[sys.argv[1]], sys.argv[2]))
"""


def settings(*, lease: float = LEASE_SECONDS) -> dict[str, str]:
    return {
        "PERDURE_LEASE_SECONDS": str(lease),
        "PERDURE_RENEW_SECONDS": str(lease / 6),
        "PERDURE_STALL_SECONDS": str(lease),
    }


@pytest.fixture
def wire() -> Iterator[Proxy]:
    with schema_url() as url, Proxy(url) as made:
        yield made


@pytest.fixture
def crew(wire: Proxy, tmp_path: Path) -> Iterator[Crew]:
    """Workers that reach the store by way of a wire."""
    place = Place(tmp_path)
    place.environment |= {"PERDURE_STORE": wire.url, **settings()}
    made = Crew(place, more=BODIES)
    yield made
    wire.flow()
    made.end()


@pytest.fixture(
    params=[pytest.param("", id="postgres"), pytest.param("portable=true", id="portable", marks=pytest.mark.exhaustive)]
)
def direct(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crew]:
    """Workers on the server itself."""
    with schema_url(options=request.param) as url:
        place = Place(tmp_path)
        place.environment |= {"PERDURE_STORE": url, **settings(lease=1.5)}
        made = Crew(place, more=BODIES)
        yield made
        made.end()


@contextlib.contextmanager
def server_of(wire: Proxy) -> Iterator[psycopg.Connection[Any]]:
    """The same store, whatever becomes of the wire."""
    location = read_location(wire.target)
    with psycopg.connect(location.url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {location.schema}")
        yield connection


def silence(connection: psycopg.Connection[Any]) -> tuple[float, float]:
    """When the worker that holds a run was last heard, and how long ago that is, by the server's clock."""
    row = connection.execute(
        "SELECT max(beat_at), extract(epoch FROM clock_timestamp())::float8 - max(beat_at)"
        " FROM workers WHERE worker_id IN (SELECT holder FROM runs WHERE state = 'running')"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def test_worker_that_cannot_renew_stops_what_it_awaits_before_its_lease_is_over(crew: Crew, wire: Proxy) -> None:
    run = crew.start("ponderer", name="a")
    crew.worker()
    crew.until(lambda: "pondering a" in crew.log())
    wire.stall()
    crew.until(lambda: crew.log()[-1].startswith("cancelled a"))
    with server_of(wire) as server:
        beat_at, _ = silence(server)
    stopped_at = float(crew.log()[-1].split()[-1])
    assert stopped_at < beat_at + LEASE_SECONDS
    crew.let_go("a")
    wire.flow()
    crew.until(lambda: run in crew.ended())
    assert collections.Counter(line.split()[0] for line in crew.log()) == {"pondering": 2, "cancelled": 1, "pay": 1}


@pytest.mark.parametrize("by", ["worker", "script"])
def test_effect_whose_intent_was_held_up_past_the_lease_is_not_begun_before_it_is_claimed_anew(
    crew: Crew, wire: Proxy, by: str
) -> None:
    """The intent lands when the store is back. It was never begun, so that nobody has to be asked about it."""
    wire.cut_once("stall", b"intent")
    if by == "worker":
        crew.start("payer", name="a")
        crew.worker()
    else:
        crew.script("app.py", "payer", "a")
    crew.until(wire.is_stalled)
    with server_of(wire) as server:
        crew.until(lambda: silence(server)[1] > LEASE_SECONDS)
    assert "pay a" not in crew.log()
    wire.flow()
    crew.until(lambda: crew.log().count("pay a") == 1)
    crew.until(lambda: [state for state, _ in crew.states().values()] == ["completed"])
    assert crew.log() == ["begin a 0", "end a 0", "pay a"]
    with contextlib.closing(PostgresStore(wire.target)) as store:
        (run,) = store.list_runs()
        kinds = [record.kind for record in store.load_journal(run.run_id)]
    assert kinds.count("delivery") >= 2
    assert [kind for kind in kinds if kind in ("intent", "verdict", "receipt")] == [
        "intent",
        "verdict",
        "intent",
        "receipt",
    ]


def test_run_of_a_worker_that_is_cut_off_goes_on_elsewhere_and_happens_once(crew: Crew, wire: Proxy) -> None:
    run = crew.start("ponderer", name="a")
    first = crew.worker()
    crew.until(lambda: "pondering a" in crew.log())
    wire.stall()
    crew.until(lambda: crew.log()[-1].startswith("cancelled a"))
    crew.let_go("a")
    crew.place.environment["PERDURE_STORE"] = wire.target
    other = crew.worker()
    crew.until(lambda: run in crew.ended())
    assert [each["pid"] for each in crew.told if each["event"] == "run_taken"][-1] == other.pid
    wire.flow()
    crew.kill(other)
    later = crew.start("payer", name="b")
    crew.until(lambda: later in crew.ended())
    assert [each["pid"] for each in crew.told if each["event"] == "run_taken"][-1] == first.pid
    assert crew.log().count("pay a") == 1


@pytest.mark.parametrize(
    ("agent", "holder"),
    [
        ("blocked", "worker"),
        ("blocked_loop", "script"),
        pytest.param("blocked", "script", marks=pytest.mark.exhaustive),
        pytest.param("blocked_loop", "worker", marks=pytest.mark.exhaustive),
    ],
)
def test_step_that_blocks_for_three_leases_keeps_its_run(direct: Crew, agent: str, holder: str) -> None:
    if holder == "worker":
        direct.start(agent, name="a")
        direct.worker()
    else:
        direct.script("app.py", agent, "a")
    direct.until(lambda: direct.log() == ["begin a"])
    direct.worker()
    direct.until(lambda: {state for state, _ in direct.states().values()} == {"completed"})
    assert direct.log() == ["begin a", "end a", "pay a"]


def test_step_that_holds_the_interpreter_is_taken_over_and_its_worker_is_fenced(direct: Crew) -> None:
    run = direct.start("stuck", name="a")
    frozen = direct.worker()
    direct.until(lambda: direct.log() == ["begin a"])
    other = direct.worker()
    direct.until(lambda: run in direct.ended())
    taken = [each["pid"] for each in direct.told if each["event"] == "run_taken" and each["run_id"] == run]
    assert taken == [frozen.pid, other.pid]
    direct.let_go("a")
    direct.until(lambda: "thawed a" in direct.log())
    later = direct.start("payer", name="b")
    direct.until(lambda: later in direct.ended())
    assert direct.log().count("pay a") == 1
    assert direct.states()[run] == ("completed", "")
    assert direct.place.perdure("verify").code == 0
