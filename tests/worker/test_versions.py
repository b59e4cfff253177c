"""Deploys: old and new code side by side, a run goes on with the code that knows it, and what waits for it is seen."""

from __future__ import annotations

import signal
import textwrap
from typing import Any

import pytest

from tests.faces.conftest import Place
from tests.worker.conftest import PATIENCE, Crew, on_a_server_too

HEAD = """
import os, time
import perdure

def log(line):
    with open("log.txt", "a") as file:
        file.write(line + "\\n")
"""

OLD = """
@perdure.step
def draft(name: str) -> str:
    log(f"old draft {name}")
    return "draft"

@perdure.step
def publish(name: str) -> str:
    log(f"old publish {name}")
    return "published"

@perdure.agent
def post(name: str) -> str:
    draft(name)
    perdure.ask("Publish?", options=["yes"])
    return publish(name)

@perdure.agent
def pair(name: str) -> str:
    return perdure.start(post, f"{name} below").result()

@perdure.agent
def plain(name: str) -> str:
    return draft(name)
"""

NEW = (
    OLD.replace("old ", "new ").replace("    draft(name)\n    perdure.ask", "    write(name)\n    perdure.ask")
    + """
@perdure.step
def write(name: str) -> str:
    log(f"new write {name}")
    return "text"
"""
)


@pytest.fixture
def teams(crew: Crew) -> Crew:
    """Two folders with the same agent, of which the second makes another call first."""
    for version, code in (("v1", OLD), ("v2", NEW)):
        (crew.place.folder / version).mkdir()
        (crew.place.folder / version / "app.py").write_text(HEAD + textwrap.dedent(code))
    return crew


def team(crew: Crew, version: str, *options: str) -> Any:
    return crew.worker("--version", version, *options, app=f"{version}/app.py")


def start(crew: Crew, agent: str, name: str, *, version: str = "v1") -> str:
    result = crew.place.perdure("start", f"{version}/app.py:{agent}", f"name={name}", "--json")
    assert result.code == 0, result
    return str(result.json()["run_id"])


def parked(crew: Crew, run: str) -> bool:
    return run in crew.ended("waiting") and crew.states()[run] == ("waiting", "parked")


def stopped_by_a_deploy(crew: Crew) -> str:
    """A run that the old code began, and that parked when the new code took it up."""
    run = start(crew, "post", "a")
    old = team(crew, "v1")
    crew.until(lambda: run in crew.ended("waiting"))
    old.send_signal(signal.SIGTERM)
    assert old.wait(PATIENCE) == 0
    assert crew.place.perdure("answer", run, "yes").code == 0
    team(crew, "v2")
    crew.until(lambda: parked(crew, run))
    return run


def test_run_pinned_to_the_old_version_goes_on_there_and_the_new_one_leaves_it_alone(teams: Crew) -> None:
    run = stopped_by_a_deploy(teams)
    pinned = teams.place.perdure("pin", run, "v1", "--json")
    assert pinned.code == 0, pinned
    assert pinned.json()["run"]["version"] == "v1"
    other = start(teams, "plain", "b", version="v2")
    teams.until(lambda: other in teams.ended())
    assert teams.states()[run][0] == "queued"
    team(teams, "v1")
    teams.until(lambda: run in teams.ended())
    assert [line for line in teams.log() if line.endswith(" a")] == ["old draft a", "old publish a"]


def test_run_whose_version_no_live_worker_has_says_so_and_what_to_do(teams: Crew) -> None:
    run = stopped_by_a_deploy(teams)
    teams.place.perdure("pin", run, "v1")
    shown = teams.place.perdure("ps")
    assert "needs version v1" in shown.out
    told = next(each for each in teams.place.perdure("ps", "--json").json()["runs"] if each["run_id"] == run)
    assert told["cause"].endswith("waits for a worker of version v1, and none is alive")
    assert "--version v1" in told["next"]
    assert "perdure unpin" in told["next"]
    team(teams, "v1")
    teams.until(lambda: run in teams.ended())


def test_new_code_does_not_take_a_pinned_run_by_any_way_but_by_name(teams: Crew) -> None:
    run = start(teams, "plain", "a")
    assert teams.place.perdure("pin", run, "v1").code == 0
    script = teams.place.folder / "v2" / "call.py"
    script.write_text("import perdure, app\nprint(perdure.run(app.plain, 'a'))\n")
    refused = teams.place.python(str(script), PERDURE_VERSION="v2")
    assert refused.code == 5, refused
    assert "is pinned to version v1; this process has version v2" in refused.err
    assert "perdure unpin" in refused.err
    assert teams.log() == []
    assert teams.place.python(str(script), PERDURE_VERSION="v1").code == 0
    assert teams.log() == ["new draft a"]


def test_unpinned_run_is_anybodys(teams: Crew) -> None:
    run = start(teams, "plain", "a")
    teams.place.perdure("pin", run, "v1")
    team(teams, "v2")
    other = start(teams, "plain", "b")
    teams.until(lambda: other in teams.ended())
    assert teams.states()[run][0] == "queued"
    assert teams.place.perdure("unpin", run).code == 0
    teams.until(lambda: run in teams.ended())
    assert "new draft a" in teams.log()


@on_a_server_too
def test_waiting_run_and_its_child_are_pinned_together_and_wake_there(teams: Crew) -> None:
    run = start(teams, "pair", "a")
    old = team(teams, "v1")
    teams.until(lambda: teams.states()[run] == ("waiting", "child"))
    old.send_signal(signal.SIGTERM)
    assert old.wait(PATIENCE) == 0
    pinned = teams.place.perdure("pin", run, "v1", "--json").json()
    (child,) = pinned["children"]
    team(teams, "v2")
    assert teams.place.perdure("answer", child, "yes").code == 0
    other = start(teams, "plain", "b")
    teams.until(lambda: other in teams.ended())
    assert teams.states()[child][0] == "waiting"
    team(teams, "v1")
    teams.until(lambda: run in teams.ended())
    assert teams.log().count("old publish a below") == 1
    assert not any(line.startswith("new") and "a below" in line for line in teams.log())


@on_a_server_too
def test_run_that_a_worker_holds_is_not_pinned_away_from_it(crew: Crew) -> None:
    run = crew.start("lingering", name="a")
    crew.worker()
    crew.until(lambda: "holding a" in crew.log())
    refused = crew.place.perdure("pin", run, "v1")
    assert refused.code == 5, refused
    assert "is held by" in refused.err
    crew.let_go("a")
    crew.until(lambda: run in crew.ended())
    late = crew.place.perdure("pin", run, "v1")
    assert late.code == 2
    assert "no worker takes it any more" in late.err


def test_every_run_ends_on_the_version_that_accepted_it_where_the_team_says_so(teams: Crew) -> None:
    teams.place.environment |= {"PERDURE_PIN_RUNS": "true", "PERDURE_VERSION": "v1"}
    runs = {start(teams, "post", name) for name in ("a", "b")}
    teams.place.environment["PERDURE_VERSION"] = "v2"
    newer = start(teams, "post", "c", version="v2")
    team(teams, "v2")
    teams.until(lambda: newer in teams.ended("waiting"))
    assert {teams.states()[run][0] for run in runs} == {"queued"}
    team(teams, "v1")
    teams.until(lambda: runs <= set(teams.ended("waiting")))
    for run in (*runs, newer):
        assert teams.place.perdure("answer", run, "yes").code == 0
    teams.until(lambda: {*runs, newer} <= set(teams.ended()))
    assert sorted(line for line in teams.log() if "publish" in line) == [
        "new publish c",
        "old publish a",
        "old publish b",
    ]


@on_a_server_too
def test_abandoned_pinned_run_is_taken_over_by_a_worker_of_its_version(teams: Crew) -> None:
    teams.place.write("app.py", HOLDING)
    run = teams.start("hold", name="a")
    teams.place.perdure("pin", run, "v1")
    first = teams.worker("--version", "v1", "--in-process")
    teams.until(lambda: "holding a" in teams.log())
    teams.kill(first)
    teams.let_go("a")
    teams.worker("--version", "v2")
    other = teams.start("quick", name="b")
    teams.until(lambda: other in teams.ended())
    assert run not in teams.ended()
    teams.worker("--version", "v1")
    teams.until(lambda: run in teams.ended())


HOLDING = """
    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    @perdure.step
    def stay(name: str) -> str:
        log(f"holding {name}")
        while not os.path.exists(f"{name}.go"):
            time.sleep(0.01)
        return name

    @perdure.agent
    def hold(name: str) -> str:
        return stay(name)

    @perdure.agent
    def quick(name: str) -> str:
        return name
"""


def test_workers_and_deliveries_show_their_version(teams: Crew) -> None:
    run = start(teams, "plain", "a")
    team(teams, "v1")
    teams.until(lambda: run in teams.ended())
    listed = teams.place.perdure("workers", "--json").json()["workers"]
    assert "v1" in {each["version"] for each in listed}
    assert "version v1" in teams.place.perdure("workers").out
    assert "version v1" in teams.place.perdure("show", run).out


def test_unpinning_says_whether_the_run_was_pinned(place: Place) -> None:
    place.write("app.py", HOLDING)
    run = place.perdure("start", "app.py:quick", "name=a", "--json").json()["run_id"]
    assert "  was not pinned: it is for workers of any version" in place.perdure("unpin", run).out
    assert "  is for workers of version v1 alone" in place.perdure("pin", run, "v1").out
    assert "  is for workers of any version" in place.perdure("unpin", run).out


@pytest.mark.parametrize("version", ["", "two words", "x" * 200])
def test_unusable_version_is_refused(place: Place, version: str) -> None:
    place.write("app.py", HOLDING)
    run = place.perdure("start", "app.py:quick", "name=a", "--json").json()["run_id"]
    refused = place.perdure("pin", run, version)
    assert refused.code == 2, refused
    assert "is no version" in refused.err
    if version:
        worker = place.perdure("worker", "app.py", "--version", version)
        assert worker.code == 2, worker
        assert "perdure: --version: a short word is expected, given is " in worker.err


@pytest.fixture
def place(tmp_path: Any) -> Place:
    return Place(tmp_path)
