"""A run that kills its workers, beside two hundred that do not: it alone is parked, with the cause; they complete."""

from __future__ import annotations

import collections
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces.conftest import Place
from tests.worker.conftest import Crew, on_a_server_too

OTHERS = 200
LIMIT_BYTES = 200_000_000

POISON = """
    @perdure.step
    def think(name: str) -> str:
        time.sleep(0.2)
        log(f"think {name}")
        return name

    @perdure.effect(keyed=True)
    def deliver(name: str) -> str:
        log(f"deliver {name}")
        return name

    @perdure.agent
    def bystander(name: str) -> str:
        think(name)
        return deliver(name)

    @perdure.agent
    def killer(name: str, how: str) -> None:
        log(f"killer {name}")
        if how == "exits":
            os._exit(3)
        if how == "eats":
            eaten = []
            while True:
                eaten.append(bytearray(b"x" * 5_000_000))
        os.kill(os.getpid(), signal.SIGKILL)

    @perdure.agent
    def patient(name: str) -> str:
        return stay(name)

    @perdure.agent
    def ringleader(others: int) -> None:
        # It kills its process once the others are in it as well; the third time they may be kept from it.
        log("ringleader")
        lines = open("log.txt").read().splitlines()
        deaths = lines.count("ringleader")
        patience = time.monotonic() + (3 if deaths == 3 else 30)
        while time.monotonic() < patience:
            if open("log.txt").read().count("holding") >= others * deaths:
                break
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        for number in range(int(sys.argv[1])):
            perdure.start(bystander, f"n{number}", queue="default")
"""


@pytest.fixture
def crew(location: dict[str, str], tmp_path: Path) -> Iterator[Crew]:
    place = Place(tmp_path)
    place.environment |= location
    made = Crew(place, more=POISON)
    yield made
    made.end()


def accept_others(crew: Crew) -> None:
    result = crew.place.python("app.py", str(OTHERS))
    assert result.code == 0, result


def check_poisoned(crew: Crew, run: str, *, cause: str) -> None:
    """Everybody else has completed, once; the killer is parked after three, and says why and what to do."""
    crew.until(lambda: any(each["event"] == "run_refused" and each["run_id"] == run for each in crew.told))
    crew.until(lambda: not crew.unsettled())
    states = collections.Counter(crew.states().values())
    assert states == {("completed", ""): OTHERS, ("waiting", "parked"): 1}
    assert len({line for line in crew.log() if line.startswith("deliver ")}) == OTHERS
    assert crew.log().count("killer p") == 3
    shown = crew.place.perdure("show", run).out
    assert shown.count(f"on {socket.gethostname()}: {cause}") == 3, shown
    assert "next: perdure resume " in shown


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("kills", "killed by signal 9 (SIGKILL)"),
        pytest.param("exits", "exited with code 3", marks=pytest.mark.exhaustive),
    ],
)
def test_run_that_kills_is_parked_alone_and_two_hundred_others_complete(crew: Crew, how: str, cause: str) -> None:
    run = crew.start("killer", name="p", how=how)
    accept_others(crew)
    for _ in range(2):
        crew.worker("--concurrency", "10")
    check_poisoned(crew, run, cause=cause)


@on_a_server_too
def test_runs_that_shared_every_process_with_a_killer_are_not_parked_with_it(crew: Crew) -> None:
    killer = crew.start("ringleader", others=3)
    others = [crew.start("patient", name=f"n{number}") for number in range(3)]
    crew.worker()
    crew.until(lambda: any(each["event"] == "run_refused" and each["run_id"] == killer for each in crew.told))
    for number in range(3):
        crew.let_go(f"n{number}")
    crew.until(lambda: set(others) <= set(crew.ended()))
    assert crew.log().count("ringleader") == 3
    assert crew.states()[killer] == ("waiting", "parked")


class Pen:
    """A control group with little memory, of the first or of the second kind."""

    def __init__(self) -> None:
        root = Path("/sys/fs/cgroup")
        kind = root / "memory" if (root / "memory").is_dir() else root
        self.path = kind / f"perdure-test-{os.getpid()}"
        self.path.mkdir()
        try:
            if kind is root:
                (self.path / "memory.max").write_text(str(LIMIT_BYTES))
                with contextlib.suppress(OSError):
                    (self.path / "memory.swap.max").write_text("0")
            else:
                (self.path / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
        except OSError:
            self.path.rmdir()
            raise

    def admit(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))


@pytest.fixture
def pen() -> Iterator[Pen]:
    try:
        made = Pen()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield made
    while (made.path / "cgroup.procs").read_text():
        pass
    made.path.rmdir()


def test_run_that_eats_all_memory_is_parked_as_out_of_memory(pen: Pen, crew: Crew) -> None:
    accept_others(crew)
    first = crew.worker("--concurrency", "10")
    crew.until(lambda: any(each["event"] == "worker_started" for each in crew.told))
    pen.admit(crew.hands(first))
    pen.admit(first.pid)
    run = crew.start("killer", name="p", how="eats")
    check_poisoned(crew, run, cause="killed by signal 9 (out of memory)")
