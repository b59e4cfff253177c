"""`perdure demo`, then `perdure resume`: the first five minutes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from perdure.demo import SCENARIOS


def outbox(place: Any) -> list[dict[str, str]]:
    return [json.loads(line) for line in place.lines(".perdure/demo-outbox.jsonl")]


def test_demo_is_killed_inside_the_effect_and_says_how_to_go_on(place: Any) -> None:
    result = place.perdure("demo", "--fast")
    assert result.code == 0, result
    assert re.search(r"run \w+-\w+-\d  perdure.demo  50 steps +state: ./.perdure\n", result.out), result
    assert re.search(r"✔ 46 write_report +model +2,960 tokens", result.out), result
    assert re.search(r"▸ 47 send_report +effect  intent recorded\n  killed \(SIGKILL", result.out), result
    assert result.out.rstrip().endswith("next: perdure resume")
    assert "made up" in result.out
    assert not outbox(place)
    assert result.err == ""


def test_resumed_demo_repeats_no_step_and_sends_the_mail_once(place: Any) -> None:
    place.perdure("demo", "--fast")
    result = place.perdure("resume")
    assert result.code == 0, result
    assert re.search(r"stopped \d+ s ago at step 47 of 50:\s+its process died \(pid \d+ on ", result.err), result
    assert re.search(r"  46 steps not repeated, saved .+ and \$0\.0512 \(made up\)\n", result.err), result
    assert "47 send_report        IN DOUBT: started, never confirmed.\n" in result.err
    assert "Checked: it did not happen. Doing it.\n" in result.err
    assert [int(found) for found in re.findall(r"✔ (\d+)", result.err)] == [47, 48, 49, 50]
    assert "completed  50 steps, delivery 2" in result.err
    assert re.fullmatch(r'"mail-\w+ sent to board@example.com; books closed at 59,476.00"\n', result.out), result
    assert len(outbox(place)) == 1
    run = place.runs()[0]
    assert (run["state"], run["steps"]) == ("completed", 50)


def test_mail_that_was_sent_before_the_kill_is_not_sent_again(place: Any) -> None:
    place.perdure("demo", "--fast", "--after-send")
    assert len(outbox(place)) == 1
    result = place.perdure("resume")
    assert result.code == 0, result
    assert "Checked: it happened. Not doing it again." in result.err
    assert [int(found) for found in re.findall(r"✔ (\d+)", result.err)] == [48, 49, 50]
    assert len(outbox(place)) == 1


def test_demo_beside_an_unfinished_one_starts_afresh(place: Any) -> None:
    place.perdure("demo", "--fast")
    first = place.name()
    result = place.perdure("demo", "--fast")
    assert result.code == 0, result
    assert "✔  1 plan" in result.out
    assert [run["state"] for run in place.runs()] == ["queued", "queued"]
    assert place.perdure("resume").code == place.perdure("resume").code == 0
    assert [run["state"] for run in place.runs()] == ["completed", "completed"]
    assert first in [run["name"] for run in place.runs()]
    assert len({mail["key"] for mail in outbox(place)}) == 2


def test_demo_keeps_to_the_store_it_is_given_and_names_it_in_the_next_command(place: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "some where" / "runs.db"
    result = place.perdure("demo", "--fast", "--store", str(elsewhere))
    assert f"next: perdure resume --store '{elsewhere}'" in result.out, result
    assert not (tmp_path / ".perdure").exists()
    assert place.perdure("resume", PERDURE_STORE=str(elsewhere)).code == 0
    assert (elsewhere.parent / "demo-outbox.jsonl").exists()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_demo_fits_eighty_columns_leaves_nothing_outside_the_folder_of_its_store_and_can_be_played_again(
    place: Any, scenario: str
) -> None:
    shown = place.perdure("demo", scenario, "--fast")
    assert (shown.code, shown.err) == (0, ""), shown
    assert max(map(len, shown.out.splitlines())) <= 80, shown
    assert "made up" in shown.out
    first = [run["name"] for run in place.runs()]
    again = place.perdure("demo", scenario, "--fast", "--json")
    assert (again.code, again.err) == (0, ""), again
    second = again.json()
    assert second["scenario"] == scenario
    assert second["killed"] >= 1
    assert [path.name for path in place.folder.iterdir()] == [".perdure"]
    names = [run["name"] for run in place.runs()]
    assert sorted(names) == sorted(first + second["runs"])


def test_question_outlives_its_process_and_the_approved_refund_happens_once(place: Any) -> None:
    result = place.perdure("demo", "approval", "--fast")
    assert result.code == 0, result
    name = place.name()
    assert re.search(
        r"◦  3 asks a person +Perform refund\(order='A-17', cents=4900\)\?\n  killed \(SIGKILL", result.out
    )
    assert f"  next: perdure approve {name}" in result.out
    assert "its process died" in place.runs()[0]["cause"]
    assert place.lines(".perdure/demo-refunds.jsonl") == []
    (asked,) = place.perdure("inbox", "--json").json()["questions"]
    assert asked["approve"] == f"perdure approve {name}"
    for words in next_commands(result.out):
        assert place.perdure(*words).code == 0
    assert place.runs()[0]["state"] == "completed"
    assert place.perdure("resume", name).code == 0
    assert len(place.lines(".perdure/demo-refunds.jsonl")) == 1


def test_rejected_refund_does_not_happen(place: Any) -> None:
    place.perdure("demo", "approval", "--fast")
    assert place.perdure("reject", "-", "--note", "too late").code == 0
    result = place.perdure("resume", "-")
    assert "there is no refund" in result.out, result
    assert place.lines(".perdure/demo-refunds.jsonl") == []


def test_payment_in_doubt_is_checked_or_waits_for_a_person_and_is_never_made_twice(place: Any) -> None:
    result = place.perdure("demo", "effect", "--fast")
    assert result.code == 0, result
    assert result.out.count("killed (SIGKILL, that was us): paid, and nobody recorded it.") == 2
    assert "Checked: it happened. Not doing it again." in result.out
    blind, checked = place.runs()
    assert checked["state"] == "completed"
    assert (blind["state"], blind["reason"]) == ("waiting", "in_doubt")
    assert len(place.lines(".perdure/demo-payments.jsonl")) == 2
    for words in next_commands(result.out):
        assert place.perdure(*words).code == 0
    assert [run["state"] for run in place.runs()] == ["completed", "completed"]
    assert len(place.lines(".perdure/demo-payments.jsonl")) == 2


def test_every_run_of_the_fleet_is_finished_and_each_letter_posted_once(place: Any) -> None:
    result = place.perdure("demo", "fleet", "--fast")
    assert result.code == 0, result
    assert result.out.count("killed (SIGKILL, that was us)") == 2
    states = [run["state"] for run in place.runs()]
    assert (states.count("completed"), states.count("queued")) == (10, 10)
    letters = [json.loads(line)["customer"] for line in place.lines(".perdure/demo-letters.jsonl")]
    assert 10 < len(letters) < 20
    for words in next_commands(result.out):
        assert place.perdure(*words).code == 0, words
    assert {run["state"] for run in place.runs()} == {"completed"}
    letters = [json.loads(line)["customer"] for line in place.lines(".perdure/demo-letters.jsonl")]
    assert sorted(map(int, letters)) == list(range(1, 21))


def next_commands(shown: str) -> list[list[str]]:
    """The commands that a demo ends with, as a person would type them."""
    lines = re.findall(r"^  (?:next|then): perdure (.+?)(?:  .*)?$", shown, re.MULTILINE)
    assert len(lines) == 2, shown
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("location", ["memory:", "postgresql://localhost/x", "postgres://localhost/x"])
def test_demo_refuses_a_store_that_cannot_show_it(place: Any, location: str) -> None:
    result = place.perdure("demo", "--fast", "--store", location)
    assert result.code == 2, result
    assert result.err.startswith("perdure: ")
    assert "Traceback" not in result.err


def test_demo_whose_store_cannot_be_opened_ends_with_the_stores_exit_code(place: Any) -> None:
    (place.folder / "folder").mkdir()
    result = place.perdure("demo", "--fast", "--store", "folder")
    assert result.code == 6, result
    assert "is a directory" in result.err
    assert len(result.err.splitlines()) == 3, result
    assert "Traceback" not in result.err
