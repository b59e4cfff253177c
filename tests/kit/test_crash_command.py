"""`perdure crash` from outside: agents, scripts with and without perdure, what it prints, refuses and replays."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.faces.conftest import Result
from tests.kit.desk import Desk
from tests.postgres import server_url

AGENT = """
    @perdure.step
    def look(number: int) -> int:
        return number

    @perdure.effect
    def send(to: str) -> str:
        return f"sent to {to}"

    @perdure.agent
    def report(number: int) -> str:
        return send(f"ada {look(number)}")

    @perdure.agent
    def fails() -> None:
        raise ValueError("no way")

    def plain() -> None: ...
"""

NAIVE = """
    import json, urllib.request

    CHECKPOINT = pathlib.Path("checkpoint.json")

    def send(letter):
        address = os.environ["PERDURE_CRASH_OUTSIDE"]
        with urllib.request.urlopen(f"{address}/mail", data=letter.encode()) as answer:
            return json.load(answer)["receipt"]

    done = json.loads(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    for number in range(done, int(sys.argv[1])):
        if "--first" in sys.argv:
            CHECKPOINT.with_suffix(".new").write_text(json.dumps(number + 1))
            CHECKPOINT.with_suffix(".new").replace(CHECKPOINT)
            send(f"letter {number}")
        else:
            send(f"letter {number}")
            CHECKPOINT.with_suffix(".new").write_text(json.dumps(number + 1))
            CHECKPOINT.with_suffix(".new").replace(CHECKPOINT)
    print("done")
"""


@pytest.fixture
def place(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.write("app.py", AGENT)
    return made


def crash(place: Desk, *words: str, **environment: str) -> Result:
    return place.crash("--jobs", "2", *words, **environment)


def counts(result: Result) -> dict[str, int]:
    """The numbers of the table."""
    return {name: int(number) for name, number in re.findall(r"(?m)^  (\S.*?) {2,}(\d+)(?:$|  )", result.out)}


def test_dry_run_lists_every_write_and_every_window_and_kills_nothing(place: Desk) -> None:
    result = crash(place, "app.py:report", "--dry-run", "--", "number=1")
    assert result.code == 0, result
    assert result.err == ""
    listed = [line.strip() for line in result.out.splitlines()[2:]]
    assert result.out.startswith("app.py:report: 23 points, 1 effect, ")
    assert listed[:3] == ["open_store:before", "open_store:after", "join:before"]
    windows = [text.rpartition(":")[2] for text in listed if text.startswith("send@main.1")]
    assert windows == ["before_intent", "after_intent", "inside_effect", "after_effect", "after_receipt"]
    told = crash(place, "app.py:report", "--dry-run", "--json", "--", "number=1").json()
    assert [point["at"] for point in told["listed"]] == listed
    assert (told["planned"], told["fine"], told["points"], told["seed"]) == (0, True, len(listed), 0)


def test_agent_is_killed_and_the_users_own_store_is_not_touched(place: Desk) -> None:
    place.perdure("run", "app.py:report", "number=1")
    before = digests(place.folder)
    mine = {"PERDURE_STORE": str(place.database)}
    result = crash(place, "app.py:report", "--sample", "11", "--", "number=1", **mine)
    assert result.code == 0, result
    assert re.search(r"^Every promise was kept at \d+ of \d+ points\.", result.out, re.MULTILINE)
    assert result.err == ""
    assert digests(place.folder) == before


def test_setting_of_a_script_does_not_move_its_store_out_of_the_trial(place: Desk) -> None:
    place.write(
        "script.py",
        f"""
        import app
        perdure.configure(store={str(place.folder / "mine.db")!r})
        print(perdure.run(app.report, 1, run_id="one"))
        """,
    )
    result = crash(place, "script.py", "--at", "send:after_effect")
    assert result.code == 0, result
    assert not (place.folder / "mine.db").exists()


def test_environment_that_a_script_sets_does_not_move_its_store_out_of_the_trial(place: Desk) -> None:
    mine = place.folder / "mine" / "mine.db"
    place.write(
        "script.py",
        f"""
        import app
        os.environ["PERDURE_STORE"] = {str(mine)!r}
        print(perdure.run(app.report, 1, run_id="one"))
        """,
    )
    result = crash(place, "script.py", "--at", "send:after_effect")
    assert result.code == 0, result
    assert not mine.parent.exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sender.py:report", "--stub", "sned=1"], "did you mean --stub send=…?"),
        (["sender.py:report", "--stub", "zzz=1"], "its steps and effects are: look, send"),
        (["script.py", "--stub", "sned=1"], "did you mean --stub send=…?"),
        (["forgiving.py", "--stub", "sned=1"], "did you mean --stub send=…?"),
        (["naive.py", "--stub", "sned=1", "--", "1"], "leave it out: it has no steps and no effects"),
    ],
)
def test_stub_that_replaces_nothing_is_refused_before_any_body_begins(place: Desk, words: list[str], hint: str) -> None:
    done = place.folder / "done"
    place.write(
        "sender.py",
        f"""
        @perdure.step
        def look() -> int:
            pathlib.Path({str(done)!r}).touch()
            return 1

        @perdure.effect
        def send() -> int:
            pathlib.Path({str(done)!r}).touch()
            return look()

        @perdure.agent
        def report() -> int:
            return send() + look()
        """,
    )
    place.write("script.py", "import sender\nperdure.run(sender.report)")
    place.write(
        "forgiving.py",
        "import contextlib, sender\nwith contextlib.suppress(Exception):\n    perdure.run(sender.report)",
    )
    place.write("naive.py", NAIVE)
    result = crash(place, *words)
    assert result.code == 2, result
    assert f"--stub {words[2][:-1]}…: there is no step and no effect" in result.err
    assert hint in result.err
    assert not done.exists()
    assert not list(place.trials.iterdir())


@contextlib.contextmanager
def started(place: Desk, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A campaign of an agent that stops in its first trial, for good, once it is resumed; begins when it is there."""
    meeting = place.folder / "meeting"
    place.write(
        "sticky.py",
        f"""
        @perdure.step
        def look() -> int:
            return 1

        @perdure.step
        def stick() -> int:
            if "life-2" in os.environ["PERDURE_CRASH_OUTSIDE"]:
                pathlib.Path({str(meeting)!r}).write_text("here")
                signal.pause()
            return 2

        @perdure.agent
        def report() -> int:
            return look() + stick()
        """,
    )
    with place.crashing("sticky.py:report", "--at", "look:before_step", *words) as process:
        try:
            while not meeting.exists():
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_campaign_removes_everything_and_says_how_far_it_came(place: Desk, number: signal.Signals) -> None:
    with started(place) as process:
        process.send_signal(number)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (128 + number, "")
    assert err == "perdure: interrupted; 0 trials were played, 0 faults found; everything was removed.\n"
    assert not list(place.trials.iterdir())


def test_interrupted_campaign_shows_the_faults_that_it_had_found(place: Desk) -> None:
    meeting = place.folder / "meeting"
    place.write(
        "forgetful.py",
        f"""
        done = []

        @perdure.step
        def look() -> int:
            done.append("look")
            return 1

        @perdure.step
        def read() -> int:
            done.append("read")
            return 2

        @perdure.step
        def stick() -> int:
            if "read" not in done:
                pathlib.Path({str(meeting)!r}).write_text("here")
                signal.pause()
            return 3

        @perdure.agent
        def report() -> int:
            total = look() + read() + stick()
            return total if "look" in done else -total
        """,
    )
    with place.crashing("forgetful.py:report", "--jobs", "1") as process:
        while not meeting.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert re.fullmatch(
        r"perdure: interrupted; \d+ trials were played, [1-9]\d* faults? found; what has no fault was removed\.\n", err
    )
    assert "the result differs from the uncrashed run: it returned -6 instead of 6" in out
    assert re.search(r"(?m)^     replay: perdure crash forgetful.py:report .*--at ", out)
    kept = set(re.findall(r"kept in (\S+)", out))
    assert kept
    assert {str(folder) for folder in place.trials.glob("*/*")} >= kept


def test_interrupted_campaign_on_a_server_leaves_no_schema_there(place: Desk) -> None:
    url = server_url()
    with started(place, "--store", url) as process:
        made = own_schemas(place) & schemas(url)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130
    assert len(made) == 1
    assert not made & schemas(url)


def test_what_a_killed_campaign_left_behind_is_removed_by_the_next(place: Desk) -> None:
    url = server_url()
    with started(place, "--store", url) as process:
        left = own_schemas(place) & schemas(url)
        process.kill()
    (folder,) = place.trials.iterdir()
    kept = place.trials / "perdure-crash-kept"
    kept.mkdir()
    # Without the server nobody could remove the schema, and nobody forgets it.
    assert crash(place, "app.py:report", "--dry-run", "--", "number=1").code == 0
    assert folder.exists()
    assert crash(place, "app.py:report", "--dry-run", "--store", url, "--", "number=1").code == 0
    assert len(left) == 1
    assert not left & schemas(url)
    assert list(place.trials.iterdir()) == [kept]


def own_schemas(place: Desk) -> set[str]:
    """The schemas that the trials which are going on say they have."""
    return {path.read_text().splitlines()[1] for path in place.trials.glob("*/*/schema")}


def schemas(url: str) -> set[str]:
    """The schemas of trials on the server."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'crash_%'").fetchall()
    return {name for (name,) in found}


def test_table_for_programs_has_everything(place: Desk) -> None:
    told = crash(place, "app.py:report", "--at", "send:after_effect", "--json", "--", "number=1").json()
    assert (told["target"], told["mode"], told["store"], told["fine"]) == ("app.py:report", "every", "sqlite", True)
    assert (told["points"], told["planned"], told["landed"], told["in_effect"], told["resumed"]) == (1, 1, 1, 1, 1)
    assert (told["effects_in_doubt"], told["results_equal"], told["quiet_again"], told["faults"]) == (1, 1, 1, [])
    assert (told["results_not_compared"], told["effects_not_judged"]) == (0, 0)
    assert told["points_of_run"] > told["points"]


def test_naive_script_that_notes_afterwards_repeats_exactly_what_it_repeats(place: Desk) -> None:
    place.write("naive.py", NAIVE)
    result = crash(place, "naive.py", "--json", "--", "2")
    told = result.json()
    assert result.code == 1, result
    # Each letter is sent again after a kill anywhere between its landing and the note of it: after the request, around
    # the opening of the note, and before it is put in place.
    assert (told["planned"], told["landed"]) == (12, 12)
    assert (told["effects_repeated"], told["effects_lost"]) == (8, 0)
    found = Counter(fault["points"][0].rpartition(":")[0].partition("#")[0] for fault in told["faults"])
    assert found == {"mail": 2, "open@checkpoint.new": 4, "replace@checkpoint.json": 2}


def test_naive_script_that_notes_before_loses_exactly_what_it_loses(place: Desk) -> None:
    place.write("naive.py", NAIVE)
    told = crash(place, "naive.py", "--json", "--", "2", "--first").json()
    # A letter is lost after a kill anywhere between the note of it and its landing.
    assert (told["effects_repeated"], told["effects_lost"]) == (0, 4)
    found = {fault["points"][0] for fault in told["faults"]}
    assert found == {
        f"{name}{number}:{window}"
        for name, window in (("replace@checkpoint.json", "after"), ("mail", "before_request"))
        for number in ("", "#2")
    }


def test_failure_prints_seed_folder_and_the_command_that_replays_it(place: Desk) -> None:
    place.write("naive.py", NAIVE)
    result = crash(place, "naive.py", "--", "1")
    assert result.code == 1, result
    lines = result.out.splitlines()
    (first,) = [at for at, line in enumerate(lines) if line.startswith("  1. killed at ")]
    assert lines[first + 1] == "     an effect was repeated: mail 'letter 0' happened 2 times instead of 1"
    assert lines[first + 2].startswith("     seed 0, kept in ")
    folder = Path(lines[first + 2].partition("kept in ")[2])
    assert (folder / "work" / "checkpoint.json").exists()
    words = shlex.split(lines[first + 3].partition("replay: ")[2])
    assert words[:2] == ["perdure", "crash"]
    again = place.crash(*words[2:])
    assert again.code == 1, again
    assert counts(again)["points"] == 1
    assert lines[first] in again.out
    assert lines[first + 1] in again.out


def test_random_campaign_names_its_seed_and_replays_a_trial(place: Desk) -> None:
    place.write("naive.py", NAIVE)
    told = crash(place, "naive.py", "--random", "6", "--seed", "40", "--json", "--", "2").json()
    assert told["seed"] == 40
    fault = next(fault for fault in told["faults"] if fault["kind"] == "repeated")
    assert 40 <= fault["seed"] < 46
    assert f"--random 1 --seed {fault['seed']} -- 2" in fault["replay"]
    assert place.crash(*shlex.split(fault["replay"])[2:]).code == 1


def test_script_that_begins_anew_after_its_end_is_not_held_to_be_quiet(place: Desk) -> None:
    place.write("script.py", "import app\nprint(perdure.run(app.report, 1))")
    result = crash(place, "script.py", "--at", "record_ended:after")
    assert result.code == 0, result
    assert counts(result)["kills landed"] == 1
    assert "over when killed            1  its run was; to start it again begins another" in result.out


def test_without_the_kill_the_command_says_that_nothing_landed_and_fails(place: Desk) -> None:
    place.write("spare.py", "from perdure.testing.crash import trap\ntrap.stop = lambda how: None")
    result = crash(place, "app.py:report", "--sample", "22", "--setup", "spare.py", "--", "number=1")
    assert result.code == 1, result
    assert "0 kills landed of 2 planned: nothing was tested." in result.out
    assert counts(result)["kills landed"] == 0


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["nosuch.py"], 2, "'nosuch.py' does not exist.", "perdure crash script.py"),
        (["app.py"], 2, "app.py only defines agents", "name the agent: perdure crash app.py:report"),
        (["app.py:reprot"], 2, "app.py has no agent 'reprot'.", "did you mean app.py:report?"),
        (["app.py:plain"], 2, "app.py has no agent 'plain'.", "its agents are: app.py:fails, app.py:report"),
        (["app.py:report"], 2, "missing a required argument: 'number'", "report(number: int)"),
        (["app.py:report", "--", "number=x"], 2, "number=x does not fit int.", "report(number: int)"),
        (["app.py:fails"], 1, "Without any kill it does not come to its end", "mend that first"),
        (["hello.py"], 2, "There is nothing to kill", "--dry-run lists the points"),
        (["hello.py", "--random", "2"], 2, "There is nothing to kill", "--dry-run lists the points"),
        (["broken.py:x"], 2, "broken.py cannot be loaded: ModuleNotFoundError", "mend broken.py"),
        (["app.py:report", "--at", "send:nowhere", "--", "number=1"], 2, "the run has no such point", "send@main.1:"),
        (["app.py:report", "--store", "x.db", "--", "number=1"], 2, "every trial has a file", "leave it out"),
        (["app.py:report", "--random", "2", "--flip", "--", "number=1"], 2, "are two campaigns", "name one"),
        (["app.py:report", "--random", "2", "--at", "x", "--", "number=1"], 2, "--random chooses", "leave one"),
        (["app.py:report", "--random", "0", "--", "number=1"], 2, "--random is at least 1, not 0.", "--help"),
        (["app.py:report", "--racers", "1", "--", "number=1"], 2, "--racers is at least 2, not 1.", "--help"),
        (["app.py:report", "--stub", "look=x", "--", "number=1"], 2, "--stub look=x is not", """--stub look='"x"'"""),
        (["app.py:report", "--stub", "look", "--", "number=1"], 2, "is no NAME=JSON", "--stub name=true"),
        (["app.py:report", "--answer", "{", "--", "number=1"], 2, "is not JSON", "quote it"),
        (["app.py:report", "--setup", "nosuch.py", "--", "number=1"], 2, "does not exist", "name a file"),
        (["app.py:report", "--copy", "nosuch", "--", "number=1"], 2, "cannot be copied", "name a file"),
        (["app.py:report", "--timeout", "nan", "--", "number=1"], 2, "--timeout nan is no number", "--timeout 60"),
        (["app.py:report", "--timeout", "inf", "--", "number=1"], 2, "--timeout inf is no number", "--timeout 60"),
        (["app.py:report", "--timeout", "0", "--", "number=1"], 2, "--timeout 0 is no number", "--timeout 60"),
        (["app.py:report", "--timeout", "-1", "--", "number=1"], 2, "--timeout -1 is no number", "--timeout 60"),
        (["app.py:report", "--outside-delay", "nan", "--", "number=1"], 2, "--outside-delay nan is no", "0 or more"),
    ],
)
def test_bad_input_is_refused_in_three_lines(place: Desk, words: list[str], code: int, message: str, hint: str) -> None:
    (place.folder / "broken.py").write_text("import nosuch\n")
    (place.folder / "hello.py").write_text("'It does nothing that lasts.'\n")
    result = crash(place, *words)
    lines = result.err.splitlines()
    assert (result.code, result.out) == (code, ""), result
    assert [line[:9] for line in lines] == ["perdure: ", "   safe: ", "     do: "], result
    assert message in lines[0]
    assert hint in lines[2]
    assert not list(place.trials.iterdir())


@pytest.mark.parametrize("target", ["app.py:report", "script.py"])
def test_place_without_room_for_a_trial_is_a_full_disk_and_names_the_way_out(place: Desk, target: str) -> None:
    place.write("script.py", "import app\nprint(perdure.run(app.report, 1, run_id='one'))")
    words = ["--", "number=1"] if ":" in target else []
    result = crash(place, target, *words, PERDURE_ROOM_MB="900000000")
    assert result.code == 6, result
    message, _, hint = result.err.splitlines()
    assert message.endswith(" MB are needed to begin anything.")
    assert hint == "     do: name a folder where there is room for the trials: --folder PATH"


def digests(folder: Path) -> dict[str, Any]:
    """Every file of the user's, but what belongs to trials and to Python."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    kept = [path for path in found if not {"trials", "__pycache__"} & set(path.relative_to(folder).parts)]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}
