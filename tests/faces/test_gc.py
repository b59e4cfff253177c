"""`perdure gc`: says what would go, removes it only when told to, and harms nothing that stays."""

from __future__ import annotations

import signal
from typing import Any

import apsw
import pytest

from tests.faces.terminal import typed
from tests.faces.waiting import ASKING


@pytest.fixture
def runs(agent: Any) -> Any:
    """Three completed runs, a failed one, and one that was killed."""
    for pages in ("1", "2", "3"):
        assert agent.python("work.py", pages).code == 0
    agent.write("fails.py", FAILING)
    assert agent.python("fails.py").code == 1
    assert agent.python("work.py", "4", KILL="1").code == -signal.SIGKILL
    return agent


FAILING = """
    @perdure.agent
    def fails() -> str:
        raise ValueError("no")

    if __name__ == "__main__":
        perdure.run(fails)
"""


def states(place: Any) -> list[str]:
    connection = apsw.Connection(str(place.database))
    found = connection.execute("SELECT state FROM runs ORDER BY run").fetchall()
    connection.close()
    return [str(state) for (state,) in found]


def test_without_a_word_nothing_is_removed_and_the_command_is_told(runs: Any) -> None:
    before = states(runs)
    result = runs.perdure("gc", "--keep", "0s")
    assert result.code == 0, result
    assert result.out.startswith("3 runs ended more than 0s ago\n")
    assert "stays: 1 failed run (--failed removes them" in result.out
    assert "  remove them: perdure gc --keep 0s --yes\n" in result.out
    assert states(runs) == before


def test_young_runs_are_kept(runs: Any) -> None:
    result = runs.perdure("gc", "--yes")
    assert (result.code, result.out) == (0, "Nothing to remove: no finished run ended more than 30d ago.\n")
    assert len(states(runs)) == 5


def test_the_command_that_is_told_removes_them_and_the_rest_goes_on(runs: Any) -> None:
    said = runs.perdure("gc", "--keep", "0s").out
    (line,) = [line for line in said.splitlines() if "remove them:" in line]
    result = runs.perdure(*line.partition("perdure ")[2].split())
    assert result.code == 0, result
    assert "Removed 3 runs: " in result.out
    assert states(runs) == ["failed", "running"]
    assert runs.perdure("verify").code == 0
    resumed = runs.perdure("resume", "-", "--app", "work.py")
    assert resumed.code == 0, resumed
    assert runs.lines("log.txt").count("fetch 0") == 4
    assert runs.perdure("verify").code == 0
    assert runs.perdure("doctor").code == 0


def test_failed_runs_go_only_when_asked_for(runs: Any) -> None:
    assert runs.perdure("gc", "--keep", "0s", "--failed", "--yes").code == 0
    assert states(runs) == ["running"]


def test_delete_asks_and_a_missing_terminal_is_no_yes(runs: Any) -> None:
    refused = runs.perdure("gc", "--keep", "0s", "--delete", typed="y\n")
    assert refused.code == 2, refused
    assert "do: perdure gc --keep 0s --delete --yes" in refused.err
    assert len(states(runs)) == 5
    assert "Remove 3 runs for good?" in typed(runs, ["gc", "--keep", "0s", "--delete"], b"n\n", code=2)
    assert len(states(runs)) == 5
    assert "Removed" in typed(runs, ["gc", "--keep", "0s", "--delete"], b"y\n")
    assert len(states(runs)) == 2


def test_programs_get_the_same(runs: Any) -> None:
    would = runs.perdure("gc", "--keep", "0s", "--json").json()
    assert (would["removed"], would["run_count"], len(would["runs"])) == (False, 3, 3)
    assert (would["failed_kept"], would["needed_kept"]) == (1, 0)
    assert would["next"] == "perdure gc --keep 0s --yes"
    assert all(run["state"] == "completed" and run["ended_at"] > 0 for run in would["runs"])
    refused = runs.perdure("gc", "--keep", "0s", "--delete", "--json")
    assert (refused.code, refused.json()["error"]["code"]) == (2, "usage")
    done = runs.perdure("gc", "--keep", "0s", "--yes", "--json")
    assert (done.code, done.err) == (0, "")
    removed = done.json()
    assert (removed["removed"], removed["run_count"], removed["next"]) == (True, 3, "")
    assert removed["records"] == would["records"] > 10
    assert removed["size_bytes"] == would["size_bytes"] > 0


def test_child_of_a_run_that_waits_is_kept(place: Any) -> None:
    place.write("work.py", NURSE + ASKING)
    result = place.python("work.py", "nurse")
    assert result.code == 3, result
    told = place.perdure("gc", "--keep", "0s", "--yes")
    assert "Nothing to remove" in told.out
    assert "stays: 1 run that others refer to" in told.out
    assert sorted(states(place)) == ["completed", "waiting"]


NURSE = """
    @perdure.agent
    def quick(customer: str) -> str:
        return customer

    @perdure.agent
    def nurse(customer: str) -> str:
        child = perdure.start(quick, customer).result()
        return perdure.ask("Well?").value + child
"""


def test_what_a_run_made_in_its_working_directory_stays_and_is_named(place: Any) -> None:
    place.write("makes.py", MAKING)
    assert place.python("makes.py").code == 0
    name = place.name()
    would = place.perdure("gc", "--keep", "0s", "--json").json()
    assert would["folders"] == [f".perdure/work/{name}"]
    result = place.perdure("gc", "--keep", "0s", "--yes")
    assert f"stays: what they made in .perdure/work: {name}" in result.out
    assert (place.folder / ".perdure" / "work" / name / "report.txt").read_text() == "made"
    assert states(place) == []


MAKING = """
    @perdure.step
    def make(folder: str) -> None:
        (pathlib.Path(folder) / "report.txt").write_text("made")

    @perdure.agent
    def makes() -> None:
        make(os.fspath(perdure.workdir()))

    if __name__ == "__main__":
        perdure.run(makes)
"""


@pytest.mark.parametrize("keep", ["soon", "-1d", "30", ""])
def test_what_is_no_duration_is_refused(runs: Any, keep: str) -> None:
    result = runs.perdure("gc", f"--keep={keep}", "--yes")
    assert result.code == 2, result
    assert "Traceback" not in result.err
    assert len(states(runs)) == 5


def test_a_process_that_goes_on_meanwhile_is_not_disturbed(runs: Any) -> None:
    runs.write("goes.py", GOING)
    process = runs.start("goes.py")
    result = runs.perdure("gc", "--keep", "0s", "--yes")
    assert result.code == 0, result
    (runs.folder / "go").touch()
    assert process.wait(60) == 0
    assert runs.perdure("verify").code == 0
    assert runs.perdure("ls", "--json").code == 0


GOING = """
    @perdure.step
    def one(number: int) -> int:
        return number

    @perdure.agent
    def goes() -> int:
        one(0)
        print("ready", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        return sum(one(number) for number in range(20))

    if __name__ == "__main__":
        perdure.run(goes)
"""


CHOSEN = """
    @perdure.effect
    def pay() -> str:
        with open("log.txt", "a") as file:
            file.write("paid\\n")
        return "paid"

    @perdure.agent
    def payer() -> str:
        return pay()

    if __name__ == "__main__":
        perdure.run(payer, run_id=sys.argv[1])
"""


def test_a_run_whose_id_somebody_chose_stays_unless_asked_for_and_then_it_is_named(place: Any) -> None:
    place.write("payer.py", CHOSEN)
    assert place.python("payer.py", "invoice-7").code == 0
    kept = place.perdure("gc", "--keep", "0s", "--yes")
    assert "stays: 1 run whose id you chose (--named removes them, and the same id begins anew then)" in kept.out
    assert place.perdure("gc", "--keep", "0s", "--json").json()["named_kept"] == 1
    assert place.python("payer.py", "invoice-7").code == 0
    assert place.lines("log.txt") == ["paid"]
    would = place.perdure("gc", "--keep", "0s", "--named")
    assert "note: ids you chose, which begin anew when used again: invoice-7\n" in would.out
    assert "perdure gc --keep 0s --named --yes\n" in would.out
    assert "Removed 1 run" in place.perdure("gc", "--keep", "0s", "--named", "--yes").out
