"""`perdure export` and `perdure import`: a run is carried to another store whole, or not at all."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faces.waiting import ASKING

ELSEWHERE = ("--store", "elsewhere/perdure.db")


@pytest.fixture
def done(agent: Any) -> Any:
    assert agent.python("work.py", "3").code == 0
    return agent


@pytest.fixture
def stopped(agent: Any) -> Any:
    """A run of work.py killed after its second page."""
    assert agent.python("work.py", "3", KILL="1").code == -signal.SIGKILL
    return agent


def parts(place: Any) -> list[str]:
    """What lies in the folder beside the store and the scripts."""
    return sorted(
        path.name for path in place.folder.iterdir() if path.suffix not in (".py", ".txt", "") or "part" in path.name
    )


def test_completed_run_is_told_elsewhere_as_it_was(done: Any) -> None:
    name = done.name()
    result = done.perdure("export", name)
    assert result.code == 0, result
    assert f"{name}  exported to {name}.perdure.jsonl: " in result.out
    file = done.folder / f"{name}.perdure.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    taken = done.perdure("import", file.name, *ELSEWHERE)
    assert taken.code == 0, taken
    assert f"{name}  imported: 8 records, completed" in taken.out
    assert done.perdure("show", name, *ELSEWHERE).out == done.perdure("show", name).out
    assert done.perdure("verify", *ELSEWHERE).code == 0
    again = done.perdure("import", file.name, *ELSEWHERE)
    assert (again.code, "is here already" in again.out) == (0, True)
    assert parts(done) == [file.name]


def test_unfinished_run_is_parked_and_its_next_effect_is_in_doubt(stopped: Any) -> None:
    name = stopped.name()
    assert "it is not finished" in stopped.perdure("export", "-", "-o", "run.jsonl").out
    taken = stopped.perdure("import", "run.jsonl", *ELSEWHERE)
    assert taken.code == 0, taken
    assert "parked: elsewhere it may have gone further" in taken.out
    command = f"perdure resume {name} --app work.py --store elsewhere/perdure.db"
    assert command in taken.out
    refused = stopped.python("work.py", "3", PERDURE_STORE="elsewhere/perdure.db")
    assert refused.code == 5, refused
    assert "was imported" in refused.err
    assert f"perdure resume {name}" in refused.err
    assert stopped.lines("log.txt") == ["fetch 0", "fetch 1"]
    resumed = stopped.perdure(*command.split()[1:])
    assert resumed.code == 4, resumed
    assert stopped.lines("log.txt") == ["fetch 0", "fetch 1", "fetch 2"]
    assert stopped.perdure("settle", name, "send", "--did-not-happen", *ELSEWHERE).code == 0
    assert stopped.perdure(*command.split()[1:]).code == 0
    assert stopped.lines("log.txt")[-1] == "send ada@example.com"
    assert stopped.perdure("verify", *ELSEWHERE).code == 0


def test_another_history_of_the_run_is_refused(stopped: Any) -> None:
    stopped.perdure("export", "-", "-o", "early.jsonl")
    assert stopped.perdure("resume", "-", "--app", "work.py").code == 0
    before = stopped.perdure("show", "-").out
    refused = stopped.perdure("import", "early.jsonl")
    assert refused.code == 2, refused
    assert "Another history" in refused.err
    assert stopped.perdure("show", "-").out == before
    stopped.perdure("export", "-", "-o", "late.jsonl")
    assert stopped.perdure("import", "early.jsonl", *ELSEWHERE).code == 0
    assert stopped.perdure("import", "late.jsonl", *ELSEWHERE).code == 2


def test_the_very_run_that_is_here_is_no_news(stopped: Any) -> None:
    stopped.perdure("export", "-", "-o", "run.jsonl")
    before = stopped.perdure("show", "-").out
    result = stopped.perdure("import", "run.jsonl")
    assert (result.code, "is here already" in result.out) == (0, True)
    assert stopped.perdure("show", "-").out == before


def test_file_that_is_there_is_not_written_over_unless_told_to(done: Any) -> None:
    target = done.folder / "mine.jsonl"
    target.write_text("precious")
    refused = done.perdure("export", "-", "-o", "mine.jsonl")
    assert refused.code == 2, refused
    assert "--force" in refused.err
    assert target.read_text() == "precious"
    assert done.perdure("export", "-", "-o", "mine.jsonl", "--force").code == 0
    assert done.perdure("import", "mine.jsonl", *ELSEWHERE).code == 0
    assert parts(done) == ["mine.jsonl"]


def test_standard_output_and_input_carry_a_run_too(done: Any) -> None:
    name = done.name()
    result = done.perdure("export", name, "-o", "-")
    assert result.code == 0, result
    assert json.loads(result.out.splitlines()[0])["name"] == name
    taken = done.perdure("import", "-", *ELSEWHERE, typed=result.out)
    assert taken.code == 0, taken
    assert parts(done) == []


@pytest.fixture
def large(place: Any) -> Any:
    """A run whose file has some megabytes."""
    place.write("large.py", LARGE)
    assert place.python("large.py").code == 0
    return place


LARGE = """
    import random

    @perdure.step
    def fetch(page: int) -> str:
        return random.Random(page).randbytes(150_000).hex()

    @perdure.agent
    def collect() -> int:
        return len([fetch(page) for page in range(8)])

    if __name__ == "__main__":
        perdure.run(collect)
"""


def test_export_that_fails_in_the_middle_leaves_no_file(large: Any) -> None:
    limited = ["sh", "-c", 'ulimit -f 1000 && exec "$@"', "sh", sys.executable, "-P", "-m", "perdure"]
    for more in ([], ["--force"]):
        done = subprocess.run(
            [*limited, "export", "-", "-o", "run.jsonl", *more],
            cwd=large.folder,
            env=large.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 6, done
        assert "run.jsonl cannot be written" in done.stderr
        assert "Traceback" not in done.stderr
        assert parts(large) == []


def can_trace() -> bool:
    probe = ["strace", "-o", "/dev/null", "-e", "trace=none", "true"]
    return shutil.which("strace") is not None and subprocess.run(probe, check=False).returncode == 0


@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or tracing is not allowed")
@pytest.mark.parametrize("when", ["write:signal=SIGKILL:when=3", "fsync:signal=SIGKILL:when=1"])
def test_export_that_is_killed_leaves_the_name_free_or_as_it_was(large: Any, when: str) -> None:
    """Nothing stands under the name of the file before all of it is written and synced."""
    target = large.folder / "run.jsonl"
    target.write_text("precious")
    call = when.partition(":")[0]
    trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={when}"]
    killed = [*trace, sys.executable, "-P", "-m", "perdure", "export", "-", "-o", "run.jsonl", "--force"]
    done = subprocess.run(killed, cwd=large.folder, env=large.environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "precious"
    assert large.perdure("export", "-", "-o", "run.jsonl", "--force").code == 0
    assert large.perdure("import", "run.jsonl", *ELSEWHERE).code == 0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_cut_file_is_named_and_makes_no_run(large: Any, share: float) -> None:
    large.perdure("export", "-", "-o", "run.jsonl")
    file = large.folder / "run.jsonl"
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    refused = large.perdure("import", "run.jsonl", *ELSEWHERE)
    assert refused.code == 6, refused
    assert "run.jsonl cannot be trusted: line" in refused.err
    assert "Traceback" not in refused.err
    assert not (large.folder / "elsewhere").exists()


def test_nothing_of_a_file_is_imported_as_code(done: Any) -> None:
    """Not even the module that the run's own agent names."""
    done.perdure("export", "-", "-o", "run.jsonl")
    (done.folder / "work.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    for arguments in (["import", "run.jsonl"], ["show", "-"], ["verify"]):
        assert done.perdure(*arguments, *ELSEWHERE).code == 0
    assert not (done.folder / "executed").exists()


@pytest.mark.parametrize("name", ["missing.jsonl", ".", "work.py"])
def test_what_is_no_export_is_refused(done: Any, name: str) -> None:
    refused = done.perdure("import", name, *ELSEWHERE)
    assert refused.code in (2, 6), refused
    assert refused.err.startswith("perdure: ")
    assert "Traceback" not in refused.err
    assert not (done.folder / "elsewhere").exists()


def test_several_runs_go_to_a_folder_and_come_back_together(done: Any) -> None:
    done.python("work.py", "1")
    result = done.perdure("export", "--all", "-o", "saved", "--json")
    assert result.code == 0, result
    written = result.json()["runs"]
    assert len(written) == 2
    for run in written:
        file = done.folder / run["path"]
        assert (file.parent.name, file.stat().st_size) == ("saved", run["size_bytes"])
    taken = done.perdure("import", *(run["path"] for run in written), *ELSEWHERE, "--json")
    assert taken.code == 0, taken
    assert [(run["imported"], run["parked"], run["run"]["state"]) for run in taken.json()["runs"]] == [
        (True, False, "completed")
    ] * 2
    assert done.perdure("verify", *ELSEWHERE).code == 0


def test_child_that_is_waited_for_must_come_along(place: Any) -> None:
    """Resumed without it, the run would start its child again."""
    place.write("work.py", ASKING)
    assert place.python("work.py", "parent").code == 3
    runs = {run["agent"].rpartition(".")[2]: run for run in place.perdure("ls", "--json").json()["runs"]}
    told = place.perdure("export", runs["parent"]["name"], "-o", "parent.jsonl")
    assert f"perdure export {runs['choose']['run_id']}" in told.out
    refused = place.perdure("import", "parent.jsonl", *ELSEWHERE)
    assert refused.code == 2, refused
    assert "waits for its child run" in refused.err
    assert place.perdure("export", runs["choose"]["name"], "-o", "child.jsonl").code == 0
    taken = place.perdure("import", "parent.jsonl", "child.jsonl", *ELSEWHERE, "--json")
    assert taken.code == 0, taken
    assert [run["run"]["agent"] for run in taken.json()["runs"]] == ["work.choose", "work.parent"]


@pytest.mark.parametrize(
    "arguments",
    [["export"], ["export", "-", "--all"], ["export", "--all", "-o", "-"], ["export", "-", "-o", "-", "--json"]],
)
def test_what_cannot_be_meant_is_refused(done: Any, arguments: list[str]) -> None:
    refused = done.perdure(*arguments)
    assert refused.code == 2, refused
    assert "Traceback" not in refused.err
    assert parts(done) == []


def test_run_with_a_hostile_name_stays_in_its_folder(done: Any) -> None:
    done.write("named.py", NAMED)
    assert done.python("named.py").code == 0
    result = done.perdure("export", "--all", "-o", "saved", "--json")
    assert result.code == 0, result
    for run in result.json()["runs"]:
        path = Path(run["path"])
        assert path.parent == Path("saved")
        assert path.name.isascii()


NAMED = """
    @perdure.agent
    def named() -> str:
        return "done"

    if __name__ == "__main__":
        perdure.run(named, run_id="../../etc/passwd/ünï *;rm")
"""


def test_an_effect_that_an_imported_run_reaches_may_have_been_performed_and_is_not_said_to_have_begun(
    stopped: Any,
) -> None:
    stopped.perdure("export", "-", "-o", "run.jsonl")
    stopped.perdure("import", "run.jsonl", *ELSEWHERE)
    resumed = stopped.perdure("resume", "-", "--app", "work.py", *ELSEWHERE)
    assert resumed.code == 4, resumed
    assert "send(to='ada@example.com') may have been performed (records of this run were lost" in resumed.err
    assert "IN DOUBT: it may have been performed" in resumed.err
    assert "never confirmed" not in resumed.out + resumed.err + stopped.perdure("show", *ELSEWHERE).out
