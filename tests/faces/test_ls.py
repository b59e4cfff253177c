"""`perdure ls`: the runs there are, newest first, narrowed, a page at a time, and where each really stands."""

from __future__ import annotations

import re
import signal
from typing import Any

import apsw
import pytest


@pytest.fixture
def many(place: Any) -> Any:
    """A folder with 23 completed runs of two agents, one that failed, and one whose process was killed."""
    place.write("work.py", MANY)
    place.python("work.py")
    assert place.python("work.py", "die").code == -signal.SIGKILL
    return place


def test_list_is_newest_first_and_paged(many: Any) -> None:
    shown = many.perdure("ls").out.splitlines()
    assert shown[-1] == "… and 5 older: perdure ls --page 2"
    second = many.perdure("ls", "--page", "2").out.splitlines()
    assert sum("completed" in line for line in second) == 5
    assert len(many.perdure("ls", "--all", "--json").json()["runs"]) == 25
    runs = many.runs()
    assert [run["created_at"] for run in runs] == sorted((run["created_at"] for run in runs), reverse=True)
    first = many.perdure("ls", "--limit", "10", "--json").json()
    assert (first["total"], first["page"], first["pages"], len(first["runs"])) == (25, 1, 3, 10)
    third = many.perdure("ls", "--limit", "10", "--page", "3", "--json").json()
    assert [run["run_id"] for run in third["runs"]] == [run["run_id"] for run in runs[20:]]
    beyond = many.perdure("ls", "--page", "3")
    assert beyond.code == 2, beyond
    assert "There is no page 3: 25 runs make 2 pages." in beyond.err


def test_each_option_narrows_and_together_they_narrow_further(many: Any) -> None:
    def found(*options: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = many.perdure("ls", "--all", "--json", *options).json()["runs"]
        return listed

    assert {run["agent"] for run in found("--agent", "even")} == {"work.even"}
    assert len(found("--agent", "work.odd")) == 11
    assert len(found("--agent", "od")) == 0
    assert [run["state"] for run in found("--state", "failed")] == ["failed"]
    assert len(found("--state", "failed", "--state", "completed")) == 24
    assert len(found("--tag", "kind=even", "--tag", "team=a")) == 12
    assert found("--tag", "kind=even", "--state", "failed") == []
    assert len(found("--since", "1h")) == 25
    assert found("--until", "1h") == []
    assert len(found("--since", "2020-01-01", "--until", "2999-01-01T00:00:00Z")) == 25
    assert found("--since", "2999-01-01") == []
    none = many.perdure("ls", "--state", "cancelled", "--tag", "team=b")
    assert none.out.endswith("has state cancelled tag team=b. perdure ls lists them all.\n"), none


def test_the_command_for_the_next_page_narrows_as_this_one_did(many: Any) -> None:
    shown = many.perdure("ls", "--state", "completed", "--tag", "team=a", "--limit", "5").out.splitlines()
    assert shown[-1] == "… and 18 older: perdure ls --state completed --tag team=a --limit 5 --page 2"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "yesterday"], "--since 'yesterday' is neither a time ago nor a date."),
        (["--tag", "team"], "--tag 'team' is no tag."),
        (["--state", "broken"], "'broken'"),
        (["--reason", "tea"], "'tea'"),
        (["--page", "0"], "--page"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(many: Any, options: list[str], said: str) -> None:
    result = many.perdure("ls", *options)
    assert result.code == 2, result
    assert said in result.err
    assert "Traceback" not in result.err


def test_dead_run_is_queued_in_the_list_and_for_its_filter(many: Any) -> None:
    shown = many.perdure("ls").out
    name = next(run["name"] for run in many.runs() if run["agent"] == "work.dies")
    assert re.search(rf"^{name} +work.dies +queued +1 ", shown, re.MULTILINE), shown
    assert re.search(r"  its process died \(pid \d+ on .+\)\n", shown), shown
    assert f"  next: perdure resume {name} --app work.py\n" in shown
    assert many.perdure("ls", "--state", "running", "--json").json()["runs"] == []
    assert [run["name"] for run in many.perdure("ls", "--state", "queued", "--json").json()["runs"]] == [name]


def test_stopped_process_is_alive_until_it_is_stalled(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.agent
        def work() -> None:
            print("ready", flush=True)
            time.sleep(60)

        perdure.run(work)
        """,
    )
    process = place.start("work.py")
    run = place.runs()[0]
    assert (run["state"], run["next"]) == ("running", "")
    assert run["cause"].startswith(f"held by pid {process.pid} on ")
    process.send_signal(signal.SIGSTOP)
    patient = place.perdure("ls", "--json").json()["runs"][0]
    assert patient["state"] == "running"
    settings = {"PERDURE_STALL_SECONDS": "0.002", "PERDURE_RENEW_SECONDS": "0.001"}
    stalled = place.perdure("ls", "--json", **settings).json()["runs"][0]
    assert stalled["state"] == "queued"
    assert stalled["cause"].startswith("its process gave no sign of life")
    assert place.perdure("ls", "--state", "running", "--json", **settings).json()["runs"] == []


def test_damaged_row_is_named_and_hides_no_other(many: Any) -> None:
    connection = apsw.Connection(str(many.database))
    connection.execute("UPDATE runs SET steps = 40 WHERE run = 20")
    connection.close()
    for arguments in (["ls"], ["ps", "--all"]):
        shown = many.perdure(*arguments)
        assert shown.code == 0, shown
        assert "damaged  run " in shown.out
        assert "  next: perdure verify\n" in shown.out
        told = many.perdure(*arguments, "--json", "--limit", "30").json()
        assert len(told["runs"]) == 24
        assert [set(each) for each in told["damaged"]] == [{"where", "what", "run_id", "trusted", "next"}]


def test_a_run_that_shares_its_name_is_called_by_its_id_in_the_next_command(place: Any) -> None:
    place.write("work.py", TWINS)
    place.python("work.py")
    first, second = place.runs()
    assert (first["name"], second["name"]) == ("same-name-1", "same-name-1")
    assert first["next"] == f"perdure approve {first['run_id']} (or: perdure reject {first['run_id']})"
    result = place.perdure("approve", first["run_id"])
    assert result.code == 0, result
    assert [run["cause"][:8] for run in place.runs()] == ["answered", "waits fo"]


def test_empty_store_says_what_to_do(place: Any) -> None:
    place.python("-c", "from perdure.engine.session import session; session()")
    for command in ("ls", "ps"):
        result = place.perdure(command)
        assert result.code == 0, result
        assert result.out.endswith("perdure demo shows how it works.\n")


MANY = """
    perdure.configure(durability="process")

    @perdure.step
    def fetch(page: int) -> int:
        return page

    @perdure.agent(tags={"team": "a", "kind": "even"})
    def even(number: int) -> int:
        return fetch(number)

    @perdure.agent(tags={"team": "a"})
    def odd(number: int) -> int:
        return fetch(number)

    @perdure.agent
    def fails() -> None:
        raise ValueError("no")

    @perdure.agent
    def dies() -> None:
        fetch(1)
        os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        if sys.argv[1:]:
            perdure.run(dies)
        for number in range(23):
            perdure.run(odd if number % 2 else even, number)
        try:
            perdure.run(fails)
        except ValueError:
            pass
"""

TWINS = """
    from perdure.engine import lifecycle

    lifecycle.new_name = lambda: "same-name-1"

    @perdure.agent
    def asks(number: int) -> str:
        return perdure.ask("Ship it?", options=["yes", "no"]).choice

    for number in range(2):
        try:
            perdure.run(asks, number)
        except perdure.errors.PerdureError:
            pass
"""
