"""`perdure queues`, and what `start`, `ls`, `ps` and `show` know of queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.store import open_store
from tests.faces.conftest import Place

SHOP = """
    mail = perdure.Queue(
        "mail", concurrency=3, per_worker=2, rate=perdure.Rate(100, per="1m", burst=2, name="smtp")
    )

    @perdure.agent(queue=mail)
    def send(to: str) -> str:
        return to

    @perdure.agent
    def count(number: int) -> int:
        return number
"""


@pytest.fixture
def shop(place: Place) -> Place:
    place.write("shop.py", SHOP)
    return place


def started(place: Place, *arguments: str) -> Any:
    result = place.perdure("start", *arguments, "--json")
    assert result.code == 0, result
    return result.json()


def declare(place: Place, queue: perdure.Queue) -> None:
    """Say what a worker with this queue in its code would."""
    store = open_store(str(place.database))
    store.declare_queue(queue.limits)
    store.close()


def test_started_run_says_where_it_waits(shop: Place) -> None:
    run = started(shop, "shop.py:send", "to=ada", "--priority", "-3", "--tenant", "acme")
    assert (run["queue"], run["priority"], run["tenant"], run["wake_at"]) == ("mail", -3, "acme", 0)
    other = started(shop, "shop.py:send", "to=ada", "--queue", "eu/bulk", "--delay", "1h")
    assert (other["queue"], other["priority"], other["tenant"]) == ("eu/bulk", 0, "")
    assert other["wake_at"] >= other["created_at"] + 3599
    assert started(shop, "shop.py:count", "number=1")["queue"] == "default"
    shown = shop.perdure("show", run["run_id"]).out
    assert "queue mail   priority -3   tenant acme" in shown


def test_delayed_run_is_told_with_its_time(shop: Place) -> None:
    run = started(shop, "shop.py:count", "number=1", "--delay", "1h")
    assert "accepted, not begun; delayed until " in run["cause"]
    assert "queued  delayed" in shop.perdure("ps").out
    assert "delayed until " in shop.perdure("show", run["run_id"]).out


def test_runs_are_listed_by_queue_and_by_tenant(shop: Place) -> None:
    first = started(shop, "shop.py:send", "to=ada", "--tenant", "acme")["name"]
    second = started(shop, "shop.py:send", "to=bob", "--tenant", "umbrella corp")["name"]
    third = started(shop, "shop.py:count", "number=1", "--tenant", "acme")["name"]

    def listed(*options: str) -> list[str]:
        return [run["name"] for run in shop.perdure("ls", "--json", *options).json()["runs"]]

    assert listed("--queue", "mail") == [second, first]
    assert listed("--tenant", "acme") == [third, first]
    assert listed("--queue", "mail", "--tenant", "umbrella corp") == [second]
    assert listed("--queue", "nowhere") == []
    assert "has queue nowhere" in shop.perdure("ls", "--queue", "nowhere").out
    assert shop.perdure("ls", "--queue", "").code == 2


def test_queues_are_listed_with_what_waits_and_what_is_allowed(shop: Place) -> None:
    for to in ("a", "b"):
        started(shop, "shop.py:send", f"to={to}")
    started(shop, "shop.py:send", "to=c", "--delay", "1d")
    smtp = perdure.Rate(100, per="1m", burst=2, name="smtp")
    declare(shop, perdure.Queue("mail", concurrency=3, per_worker=2, rate=smtp))
    told = shop.perdure("queues", "--json").json()["queues"]
    assert [queue["name"] for queue in told] == ["default", "mail"]
    mail = told[1]
    assert mail.pop("oldest_at") > 0
    assert mail.pop("rate") == pytest.approx(100 / 60)
    assert mail == {
        "name": "mail",
        "queued": 2,
        "delayed": 1,
        "running": 0,
        "wait_seconds": 0,
        "concurrency": 3,
        "per_worker": 2,
        "burst": 2,
        "bucket": "smtp",
    }
    heading, default, line = shop.perdure("queues").out.splitlines()
    assert heading.split() == ["QUEUE", "QUEUED", "DELAYED", "RUNNING", "OLDEST", "LIMITS"]
    assert default.split() == ["default", "0", "0", "0", "-", "-"]
    assert line.split()[:4] == ["mail", "2", "1", "0"]
    assert line.endswith("3 at once, 2 per worker, 1.67/s (smtp)")


def test_what_holds_a_queue_up_is_told(shop: Place) -> None:
    for number in range(2):
        started(shop, "shop.py:count", f"number={number}", "--queue", "slow")
    declare(shop, perdure.Queue("slow", rate=perdure.Rate(1, per="1d")))
    store = open_store(str(shop.database))
    run = store.list_runs()[0]
    assert not store.take_tokens("queue:slow", rate=1 / 86400, burst=1)
    assert shop.perdure("queues").out.splitlines()[-1].endswith("1/d     next in 23 h")
    store.declare_queue(perdure.Queue("held", concurrency=1).limits)
    store.close()
    held = started(shop, "shop.py:count", "number=7", "--queue", "held")["run_id"]
    started(shop, "shop.py:count", "number=8", "--queue", "held")
    shop.write("hold.py", HOLD)
    shop.start("hold.py", held)
    lines = shop.perdure("queues").out.splitlines()
    assert lines[2].split()[:4] == ["held", "1", "0", "1"]
    assert lines[2].endswith("1 at once  full")
    assert run.queue == "slow"


HOLD = """
    from perdure.store import open_store
    from perdure.store.protocol import Terms

    store = open_store("./.perdure/perdure.db")
    store.claim_run(sys.argv[1], store.join().worker_id, Terms(3, 120.0))
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("start", "shop.py:count", "number=1", "--queue", "two words"), "'two words' is no name of a queue"),
        (("start", "shop.py:count", "number=1", "--queue", ""), "'' is no name of a queue"),
        (("start", "shop.py:count", "number=1", "--delay", "soon"), "--delay='soon' is no duration"),
        (("start", "shop.py:count", "number=1", "--delay=-5s"), "is no duration"),
        (("start", "shop.py:count", "number=1", "--priority", "high"), "--priority takes a whole number"),
        (("start", "shop.py:count", "number=1", "--priority", "9999999999"), "priority=9999999999"),
        (("start", "shop.py:count", "number=1", "--tenant", " "), "is no tenant"),
        (("start", "shop.py:count", "number=1", "--quue", "mail"), "--quue"),
        (("worker", "shop.py", "--queue", "two words"), "'two words' is no name of a queue"),
        (("worker", "torn.py"), "Queue 'mail' is declared twice"),
        (("worker", "shop.py", "again.py"), "Queue 'mail' is declared twice"),
    ],
)
def test_what_cannot_work_is_refused_with_three_lines(shop: Place, arguments: tuple[str, ...], words: str) -> None:
    shop.write("torn.py", 'perdure.Queue("mail", concurrency=1)\nperdure.Queue("mail", concurrency=2)\n')
    shop.write("again.py", 'perdure.Queue("mail", concurrency=1)\n')
    result = shop.perdure(*arguments)
    assert result.code == 2, result
    assert words in result.err
    assert "   safe: nothing was " in result.err
    assert "     do: " in result.err
    assert not Path(shop.database).exists()
