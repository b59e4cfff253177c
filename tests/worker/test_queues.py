"""Queues between real workers: limits hold over all of them, order is kept, and a dead worker leaks no place."""

from __future__ import annotations

import collections
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import clock
from tests.faces.conftest import Place
from tests.worker.conftest import Crew, on_a_server_too
from tests.worker.gauge import Gauge

QUEUES = '''
    import json, socket

    wide = perdure.Queue("wide")
    three = perdure.Queue("three", concurrency=3)
    one = perdure.Queue("one", concurrency=1)
    couple = perdure.Queue("couple", per_worker=2)
    scarce = perdure.Queue("scarce", rate=perdure.Rate(5, per="10h"))
    quick = perdure.Queue("quick", rate=perdure.Rate(20, burst=4))
    left, right = (perdure.Queue(name, rate=perdure.Rate(6, per="10h", name="shared")) for name in ("left", "right"))

    @perdure.step
    def visit(name: str, room: str) -> str:
        """Be inside, as an outside process sees it, until that lets go."""
        port = int(open("gauge.port").read())
        with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as file:
            file.write(json.dumps({"enter": name, "queue": room, "pid": os.getpid()}) + "\\n")
            file.flush()
            assert file.readline() == "go\\n"
            connection.shutdown(socket.SHUT_WR)
            assert file.read() == ""  # it has seen us leave: the next one may come in
        return name

    @perdure.agent
    def guest(name: str, room: str) -> str:
        return visit(name, room)

    @perdure.agent
    async def soft_guest(name: str, room: str) -> str:
        return visit(name, room)

    @perdure.agent
    def parent(children: int) -> list[str]:
        """Children for any worker, each let go by the test."""
        log("parent begins")
        started = [perdure.start(guest, f"c{number}", "three", queue=three) for number in range(children)]
        return [child.result() for child in started]

    @perdure.agent(deliveries=1)
    def frail(name: str) -> None:
        log(f"frail {name}")
        os.kill(os.getpid(), signal.SIGKILL)

    @perdure.agent(queue=one, deliveries=2)
    def murderer(name: str) -> None:
        log(f"murderer {name}")
        os.kill(os.getpid(), signal.SIGKILL)
'''

SEED = """
    import json
    import app

    for each in json.loads(sys.argv[1]):
        agent = getattr(app, each.pop("agent", "guest"))
        if agent in (app.guest, app.soft_guest):
            each["room"] = each["queue"]
        print(perdure.start(agent, **each).run_id)
"""


class Hall(Crew):
    """Workers, and the counter that their runs report to."""

    def __init__(self, place: Place, gauge: Gauge) -> None:
        super().__init__(place, more=QUEUES)
        self.gauge = gauge
        place.write("seed.py", SEED)

    def seed(self, *starts: dict[str, Any]) -> list[str]:
        """Start runs from a process of its own; their ids."""
        result = self.place.python("seed.py", json.dumps(starts))
        assert result.code == 0, result
        return result.out.split()

    def guests(self, queue: str, count: int, *, label: str = "g", **more: Any) -> list[str]:
        return self.seed(*({"name": f"{label}{number}", "queue": queue, **more} for number in range(count)))

    def started(self, count: int) -> None:
        """Wait until so many workers are there."""
        self.until(lambda: sum(each["event"] == "worker_started" for each in self.told) >= count)

    def seen(self) -> Any:
        return self.gauge.ask()

    def until_states(self, **wanted: int) -> None:
        """Wait until so many runs are in each of these states, as the store has it."""
        self.until(lambda: wanted.items() <= collections.Counter(state for state, _ in self.states().values()).items())


@pytest.fixture
def hall(location: dict[str, str], tmp_path: Path) -> Iterator[Hall]:
    place = Place(tmp_path)
    place.environment |= location
    with Gauge(tmp_path) as gauge:
        made = Hall(place, gauge)
        yield made
        made.end()


@on_a_server_too
def test_no_more_than_the_queue_allows_run_at_once_over_all_workers(hall: Hall) -> None:
    hall.gauge.ask(group=3)
    runs = {*hall.guests("three", 60), *hall.guests("three", 60, label="s", agent="soft_guest")}
    for _ in range(4):
        hall.worker("--concurrency", "10")
    hall.until(lambda: runs <= set(hall.ended()))
    seen = hall.seen()
    assert seen["peaks"]["three"] == 3
    assert len(seen["order"]) == 120
    assert len({each["pid"] for each in hall.told if each["event"] == "run_taken"}) > 1


def test_no_worker_has_more_of_a_queue_than_one_worker_may(hall: Hall) -> None:
    hall.gauge.ask(group=4)
    runs = set(hall.guests("couple", 16))
    for _ in range(2):
        hall.worker("--concurrency", "10")
    hall.until(lambda: runs <= set(hall.ended()))
    peaks = hall.seen()["peaks"]
    assert peaks.pop("couple") == 4
    assert list(peaks.values()) == [2, 2]


def test_queue_that_a_worker_has_enough_of_keeps_no_other_from_it(hall: Hall) -> None:
    hall.gauge.ask(group=0)
    hall.guests("couple", 6, priority=9)
    hall.worker("--concurrency", "5")
    hall.until(lambda: hall.seen()["inside"].get("couple") == 2)
    other = hall.seed({"agent": "job", "name": "o", "steps": 1, "queue": "wide"})
    hall.until(lambda: other[0] in hall.ended())
    assert hall.seen()["peaks"]["couple"] == 2


@on_a_server_too
def test_rate_is_shared_by_all_workers(hall: Hall) -> None:
    """Five tokens, and the next one in two hours."""
    scarce = hall.guests("scarce", 20)
    workers = [hall.worker("--concurrency", "10") for _ in range(2)]
    hall.until_states(completed=5)
    sentinels = [hall.seed({"agent": "job", "name": f"n{at}", "steps": 1, "queue": "wide"})[0] for at in range(4)]
    hall.until(lambda: set(sentinels) <= set(hall.ended()))
    hall.started(len(workers))
    states = hall.states()
    assert [states[run] for run in scarce] == [("completed", "")] * 5 + [("queued", "")] * 15
    assert not [each for each in hall.told if each["event"] == "run_refused"]


def test_rates_of_one_name_share_a_bucket(hall: Hall) -> None:
    runs = [*hall.guests("left", 8, label="l"), *hall.guests("right", 8, label="r")]
    for _ in range(2):
        hall.worker()
    hall.until_states(completed=6)
    sentinel = hall.seed({"agent": "job", "name": "n", "steps": 1, "queue": "wide"})
    hall.until(lambda: sentinel[0] in hall.ended())
    states = hall.states()
    assert sum(states[run][0] == "completed" for run in runs) == 6
    assert not [each for each in hall.told if each["event"] == "run_refused"]


def test_no_more_begin_than_the_bucket_gave_in_the_time(hall: Hall) -> None:
    runs = set(hall.guests("quick", 40))
    before = clock.elapsed_seconds()
    for _ in range(2):
        hall.worker("--concurrency", "10")
    hall.until(lambda: runs <= set(hall.ended()))
    assert len(runs) <= 4 + 20 * (clock.elapsed_seconds() - before)


def test_higher_priority_goes_first(hall: Hall) -> None:
    hall.seed(
        *(
            {"name": f"p{priority}.{number}", "queue": "wide", "priority": priority}
            for number in range(2)
            for priority in (0, -7, 5, 100)
        )
    )
    hall.worker("--concurrency", "1")
    hall.until_states(completed=8)
    expected = [f"p{priority}.{number}" for priority in (100, 5, 0, -7) for number in range(2)]
    assert hall.seen()["order"] == expected


def test_tenants_take_turns_however_many_runs_one_of_them_has(hall: Hall) -> None:
    hall.guests("wide", 200, label="big", tenant="big")
    hall.guests("wide", 10, label="small", tenant="small")
    hall.worker("--concurrency", "1")
    hall.until(lambda: len(hall.seen()["order"]) >= 30)
    small = [at for at, name in enumerate(hall.seen()["order"]) if name.startswith("small")]
    assert len(small) == 10
    assert small[-1] <= 20, hall.seen()["order"][:30]


@on_a_server_too
def test_delayed_run_begins_no_sooner_and_holds_up_nobody(hall: Hall) -> None:
    (delayed,) = hall.guests("one", 1, label="late", delay="4s")
    prompt = hall.guests("one", 2, label="prompt")
    hall.worker()
    hall.until(lambda: delayed in hall.ended())
    assert hall.seen()["order"] == ["prompt0", "prompt1", "late0"]
    told = hall.place.perdure("show", delayed, "--json").json()
    began = next(each["at"] for each in told["timeline"] if each["record"] == "delivery")
    assert began >= told["run"]["created_at"] + 3.999  # its time was counted from a moment before it was accepted
    assert set(prompt) <= set(hall.ended())


@on_a_server_too
def test_same_id_from_many_processes_is_one_run(hall: Hall) -> None:
    hall.worker()
    ids = [hall.seed({"name": "a", "queue": "wide", "run_id": "order-7"}) for _ in range(3)]
    assert ids == [["order-7"]] * 3
    hall.until(lambda: "order-7" in hall.ended())
    assert hall.seed({"name": "a", "queue": "wide", "run_id": "order-7"}) == ["order-7"]
    assert hall.seen()["order"] == ["a"]
    assert list(hall.states()) == ["order-7"]


def test_worker_takes_only_runs_of_its_queues(hall: Hall) -> None:
    (wide,) = hall.guests("wide", 1, label="w")
    (three,) = hall.guests("three", 1, label="t")
    (plain,) = hall.seed({"agent": "job", "name": "j", "steps": 1, "priority": 1})
    hall.worker("--queue", "three", "--queue", "elsewhere")
    hall.until(lambda: three in hall.ended())
    assert {hall.states()[run][0] for run in (wide, plain)} == {"queued"}
    hall.worker("--queue", "wide", "--queue", "default")
    hall.until(lambda: {wide, plain} <= set(hall.ended()))


def test_unknown_agent_in_a_queue_is_left_alone_and_takes_no_place(hall: Hall) -> None:
    hall.place.write(
        "other.py", 'perdure.Queue("one", concurrency=1)\n@perdure.agent\ndef nap() -> int:\n    return 1\n'
    )
    (unknown,) = hall.guests("one", 1)
    stranger = hall.worker(app="other.py")
    hall.place.write("seed_other.py", 'import other\nprint(perdure.start(other.nap, queue="one").run_id)\n')
    (known,) = hall.place.python("seed_other.py").out.split()
    hall.until(lambda: known in hall.ended())
    assert hall.states()[unknown][0] == "queued"
    assert stranger.poll() is None


@on_a_server_too
def test_killed_worker_in_a_limited_queue_leaks_no_place(hall: Hall) -> None:
    hall.gauge.ask(group=0)
    first = hall.worker("--in-process")
    (held,) = hall.guests("one", 1, label="held")
    hall.until(lambda: hall.seen()["order"] == ["held0"])
    (following,) = hall.guests("one", 1, label="next")
    hall.kill(first)
    hall.until(lambda: hall.seen()["inside"]["one"] == 0)
    hall.worker()
    hall.until(lambda: hall.seen()["order"] == ["held0", "held0"])
    assert hall.states()[following][0] == "queued"
    hall.gauge.ask(group=1)
    hall.until(lambda: {held, following} <= set(hall.ended()))
    assert hall.seen()["peaks"]["one"] == 1
    assert hall.seen()["order"] == ["held0", "held0", "next0"]


def test_run_that_is_parked_for_its_deaths_gives_its_place_to_the_next(hall: Hall) -> None:
    (bad,) = hall.seed({"agent": "murderer", "name": "m", "priority": 1})
    (good,) = hall.guests("one", 1)
    deaths = 0
    while hall.states()[good][0] != "completed":
        process = hall.worker("--in-process")
        hall.until(lambda process=process: process.poll() is not None or hall.states()[good][0] == "completed")
        deaths += process.poll() == -signal.SIGKILL
    assert deaths == 2
    assert hall.states()[bad] == ("waiting", "parked")


def test_agent_that_allows_one_delivery_is_parked_after_one_death_with_cause_and_command(hall: Hall) -> None:
    (run,) = hall.seed({"agent": "frail", "name": "f", "queue": "wide"})
    first = hall.worker("--in-process")
    assert first.wait(60) == -signal.SIGKILL
    hall.worker()
    hall.until(lambda: hall.states()[run] == ("waiting", "parked"))
    assert hall.log() == ["frail f"]
    told = hall.place.perdure("show", run, "--json").json()["run"]
    assert "1 deliveries are allowed" in told["cause"]
    assert told["next"].startswith("perdure resume ")


@on_a_server_too
def test_limits_that_a_newer_worker_declares_hold_for_the_older_ones(hall: Hall) -> None:
    hall.gauge.ask(group=0)
    hall.worker("--concurrency", "10")
    hall.started(1)
    hall.place.write(
        "wider.py", 'perdure.Queue("three", concurrency=5)\n@perdure.agent\ndef nap() -> int:\n    return 1\n'
    )
    hall.guests("three", 9)
    hall.until(lambda: hall.seen()["inside"].get("three") == 3)
    hall.worker(app="wider.py")
    hall.until(lambda: hall.seen()["inside"].get("three") == 5)
    hall.gauge.ask(group=1)
    hall.until_states(completed=9)
    assert hall.seen()["peaks"]["three"] == 5


@on_a_server_too
def test_parent_whose_worker_is_killed_gets_the_results_of_children_that_others_executed(hall: Hall) -> None:
    hall.gauge.ask(group=0)
    (run,) = hall.seed({"agent": "parent", "children": 8, "queue": "wide"})
    workers = [hall.worker("--in-process", "--concurrency", "3") for _ in range(3)]
    for kills, worker in enumerate(workers[:2], 1):
        hall.until(lambda: hall.seen()["inside"].get("three") == 3)
        hall.kill(worker)
        hall.gauge.ask(group=1)
        hall.until(lambda kills=kills: len(set(hall.seen()["order"])) >= 3 * kills)
        hall.gauge.ask(group=0)
    hall.gauge.ask(group=1)
    hall.until(lambda: hall.states()[run][0] == "completed")
    assert hall.place.perdure("show", run, "--json").json()["result"] == [f"c{number}" for number in range(8)]
    states = hall.states()
    assert len(states) == 9
    assert set(states.values()) == {("completed", "")}
    assert hall.seen()["peaks"]["three"] == 3
