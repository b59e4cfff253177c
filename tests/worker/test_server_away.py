"""A server that is away for a while: workers wait for it, and nothing is performed, lost or repeated meanwhile."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces.conftest import Place
from tests.postgres import schema_url
from tests.store.proxy import Proxy
from tests.worker.conftest import Crew

PAYMENTS = """
    @perdure.effect
    def pay(name: str, number: int) -> int:
        log(f"pay {name} {number}")
        return number

    @perdure.agent
    def payer(name: str, payments: int) -> int:
        return sum(pay(name, number) for number in range(payments))
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
    made.end()


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
    counts = collections.Counter(crew.log())
    assert len(counts) == 3 * 40
    assert set(counts.values()) == {1}
