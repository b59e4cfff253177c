"""`perdure verify` and `perdure repair`: damage is named, nothing is changed by looking, and a repaired run goes on."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.faces.terminal import typed


def damage(place: Any, statement: str, *arguments: object) -> None:
    """Change the database behind the store's back."""
    connection = apsw.Connection(str(place.database))
    connection.execute(statement, arguments)
    assert connection.changes() == 1
    connection.close()


def damage_record(place: Any, seq: int) -> None:
    damage(place, "UPDATE records SET body = replace(body, 'page', 'pigs') WHERE seq = ? AND run = 1", seq)


def files(place: Any) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.database.parent.iterdir() if path.is_file()}


@pytest.fixture
def stopped(agent: Any) -> Any:
    """A run of work.py killed after its third page: records 0 to 4, steps at 2, 3 and 4."""
    assert agent.python("work.py", "5", KILL="2").code == -signal.SIGKILL
    return agent


def test_whole_store_verifies(stopped: Any) -> None:
    result = stopped.perdure("verify")
    assert (result.code, result.out) == (0, "1 run checked in ./.perdure/perdure.db: all 5 records whole\n")


def test_looking_changes_no_file(stopped: Any) -> None:
    before = files(stopped)
    for arguments in (["verify"], ["show"], ["show", "-"], ["resume"]):
        stopped.perdure(*arguments)
    after = files(stopped)
    for name in before.keys() | after.keys():
        if not name.endswith(("-shm", "-lock")):
            assert before.get(name) == after.get(name), name


def test_damaged_record_is_named_with_what_is_trusted(stopped: Any) -> None:
    damage_record(stopped, 3)
    before = files(stopped)
    result = stopped.perdure("verify")
    assert result.code == 6, result
    name = stopped.name()
    first, second, last = result.out.splitlines()
    assert first == (
        f"damaged  run {name}: record 3 is damaged (its digest does not match); records 0 to 2 are trusted"
    )
    assert second == f"  next: perdure repair {name}"
    assert last == "1 run checked in ./.perdure/perdure.db: 1 damaged, 0 whole"
    assert {name: data for name, data in files(stopped).items() if name == "perdure.db"} == {
        name: data for name, data in before.items() if name == "perdure.db"
    }


def test_damage_is_met_by_other_commands_as_an_error_of_the_store(stopped: Any) -> None:
    damage_record(stopped, 3)
    for arguments in (["show", "-"], ["resume", "-", "--app", "work.py"], ["settle", "-", "send", "--fail"]):
        result = stopped.perdure(*arguments)
        assert result.code == 6, result
        assert "record 3 is damaged" in result.err
        assert "Traceback" not in result.err


def test_repaired_run_repeats_only_what_was_set_aside_and_doubts_its_effect(stopped: Any) -> None:
    damage_record(stopped, 3)
    name = stopped.name()
    result = stopped.perdure("repair", name, "--yes")
    assert result.code == 0, result
    assert f"{name}  repaired: 2 records set aside" in result.out
    assert "in doubt" in result.out
    assert f"next: perdure resume {name} --app work.py" in result.out
    assert stopped.perdure("verify").code == 0
    resumed = stopped.perdure("resume", "--app", "work.py")
    assert resumed.code == 4, resumed
    assert stopped.lines("log.txt") == [f"fetch {page}" for page in (0, 1, 2, 1, 2, 3, 4)]
    stopped.perdure("settle", "-", "send", "--did-not-happen")
    assert stopped.perdure("resume", "--app", "work.py").code == 0
    assert stopped.lines("log.txt")[-1] == "send ada@example.com"


def test_damaged_row_does_not_hide_the_other_runs_and_can_be_repaired(stopped: Any) -> None:
    stopped.python("work.py", "1")
    damage(stopped, "UPDATE runs SET steps = 40 WHERE run = 1")
    shown = stopped.perdure("ls")
    assert shown.code == 0, shown
    assert "completed" in shown.out
    assert "damaged" in shown.out
    assert stopped.perdure("show", "-").code == 0
    assert stopped.perdure("verify").code == 6
    result = stopped.perdure("repair", "--all", "--yes")
    assert result.code == 0, result
    assert stopped.perdure("verify").code == 0
    assert len(stopped.runs()) == 2


def test_repair_asks_and_a_missing_terminal_is_no_yes(stopped: Any) -> None:
    damage_record(stopped, 3)
    result = stopped.perdure("repair", "--all", typed="y\n")
    assert result.code == 2, result
    assert "do: perdure repair --all --yes" in result.err
    assert stopped.perdure("verify").code == 6


@pytest.mark.parametrize(("keys", "code", "verified"), [(b"n\n", 2, 6), (b"y\n", 0, 0)])
def test_repair_obeys_the_answer_on_a_terminal(stopped: Any, keys: bytes, code: int, verified: int) -> None:
    damage_record(stopped, 3)
    shown = typed(stopped, ["repair", "--all"], keys, code=code)
    assert "record 3 is damaged" in shown
    assert stopped.perdure("verify").code == verified


def test_programs_get_what_is_damaged_and_what_was_mended(stopped: Any) -> None:
    assert stopped.perdure("verify", "--json").json() == {
        "whole": True,
        "store": "./.perdure/perdure.db",
        "runs_whole": 1,
        "records_whole": 5,
        "damage": [],
        "losses": [],
        "parked": [],
    }
    assert stopped.perdure("repair", "--all", "--json").json() == {"runs": []}
    name = stopped.name()
    damage_record(stopped, 3)
    found = stopped.perdure("verify", "--json")
    assert found.code == 6
    (damaged,) = found.json()["damage"]
    assert damaged == {
        "where": f"run {name}",
        "what": "record 3 is damaged (its digest does not match)",
        "run_id": damaged["run_id"],
        "trusted": 3,
        "next": f"perdure repair {name}",
    }
    refused = stopped.perdure("repair", name, "--json")
    assert (refused.code, refused.json()["error"]["code"]) == (2, "usage")
    mended = stopped.perdure("repair", name, "--json", "--yes")
    assert (mended.code, mended.err) == (0, "")
    (run,) = mended.json()["runs"]
    assert (run["name"], run["repaired"], run["set_aside"], run["error"]) == (name, True, 2, "")
    assert run["next"].startswith(f"perdure resume {name}")
    assert stopped.perdure("verify", "--json").json()["whole"]


def test_programs_get_a_loss_and_who_is_parked_by_it(agent: Any) -> None:
    put_back_older_copy(agent)
    assert agent.python("work.py", "5").code == 6
    found = agent.perdure("verify", "--json")
    assert found.code == 6
    name = agent.name()
    (loss,) = found.json()["losses"]
    assert loss["expected"] > loss["found"] > 0
    (parked,) = found.json()["parked"]
    assert (parked["name"], parked["next"]) == (name, f"perdure repair {name}")


def test_whole_run_needs_no_repair(stopped: Any) -> None:
    before = files(stopped)
    result = stopped.perdure("repair", stopped.name(), "--yes")
    assert result.code == 0, result
    assert "Nothing to repair" in result.out
    assert files(stopped)["perdure.db-wal"] == before["perdure.db-wal"]
    assert stopped.perdure("repair", "--all", "--yes").out.startswith("Nothing to repair")


@pytest.mark.parametrize("arguments", [["repair"], ["repair", "-", "--all"], ["repair", "no-such-run", "--yes"]])
def test_repair_must_be_told_what(stopped: Any, arguments: list[str]) -> None:
    result = stopped.perdure(*arguments)
    assert result.code == 2, result
    assert "Traceback" not in result.err


def test_a_run_that_is_gone_with_its_log_is_said_before_anything_runs_again(agent: Any) -> None:
    agent.python("work.py", "5", KILL="3")
    log = agent.database.with_name("perdure.db-wal")
    assert log.stat().st_size > 0
    log.write_bytes(b"")
    told = agent.python("work.py", "5")
    assert told.code == 6, told
    assert "lost" in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


def put_back_older_copy(agent: Any) -> None:
    """Everything but the mark is set back: acknowledged commits are gone."""
    agent.python("work.py", "5", KILL="0")
    older = agent.folder / "older"
    older.mkdir()
    for path in agent.database.parent.glob("perdure.db*"):
        if path.is_file() and not path.name.endswith("-mark"):
            shutil.copy(path, older)
    agent.python("work.py", "5", KILL="3")
    for path in older.iterdir():
        shutil.copy(path, agent.database.parent / path.name)


def test_older_copy_put_back_is_noticed_and_repaired(agent: Any) -> None:
    put_back_older_copy(agent)
    noticed = agent.perdure("verify")
    assert noticed.code == 6, noticed
    assert "lost" in noticed.out
    told = agent.python("work.py", "5")
    assert told.code == 6, told
    assert "lost" in told.err
    refused = agent.python("work.py", "5")
    assert refused.code == 6, refused
    name = agent.name()
    assert f"perdure repair {name}" in refused.err
    parked = agent.perdure("verify")
    assert parked.code == 6, parked
    assert "lost     " in parked.out
    assert f"parked   run {name}" in parked.out
    assert f"next: perdure repair {name}" in agent.perdure("show").out
    assert agent.perdure("repair", "--all", "--yes").code == 0
    assert agent.perdure("verify").code == 0
    assert agent.perdure("resume", name, "--app", "work.py").code == 4


@pytest.mark.parametrize("arguments", [["verify"], ["show"], ["resume"], ["repair", "--all", "--yes"]])
@pytest.mark.parametrize("what", ["directory", "text", "foreign"])
def test_path_that_is_no_store_is_refused_and_not_touched(place: Any, arguments: list[str], what: str) -> None:
    path: Path = place.folder / "thing"
    if what == "directory":
        path.mkdir()
    elif what == "text":
        path.write_text("This is a letter and no database. " * 200)
    else:
        connection = apsw.Connection(str(path))
        connection.execute("CREATE TABLE mine (x)")
        connection.close()
    before = path.read_bytes() if path.is_file() else b""
    result = place.perdure(*arguments, "--store", "thing")
    assert result.code == 6, result
    assert result.err.startswith("perdure: ")
    assert "Traceback" not in result.err
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert [found.name for found in place.folder.iterdir()] == ["thing"]
