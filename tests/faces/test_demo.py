"""`perdure demo`, then `perdure resume`: the first five minutes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest


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
    assert re.search(r"stopped \d+ s ago at step 47 of 50:\s+its process died \(pid \d+ on ", result.out), result
    assert "46 steps done, not repeated" in result.out
    assert "47 send_report        IN DOUBT: started, never confirmed.\n" in result.out
    assert "Checked: it did not happen. Doing it.\n" in result.out
    assert [int(found) for found in re.findall(r"✔ (\d+)", result.out)] == [47, 48, 49, 50]
    assert "completed  50 steps, delivery 2" in result.out
    assert len(outbox(place)) == 1
    run = place.runs()[0]
    assert (run["state"], run["steps"]) == ("completed", 50)


def test_mail_that_was_sent_before_the_kill_is_not_sent_again(place: Any) -> None:
    place.perdure("demo", "--fast", "--after-send")
    assert len(outbox(place)) == 1
    result = place.perdure("resume")
    assert result.code == 0, result
    assert "Checked: it happened. Not doing it again." in result.out
    assert [int(found) for found in re.findall(r"✔ (\d+)", result.out)] == [48, 49, 50]
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


def test_demo_fits_eighty_columns(place: Any) -> None:
    shown = place.perdure("demo", "--fast").out + place.perdure("resume").out + place.perdure("show", "-").out
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("location", ["memory:", "postgres://localhost/x"])
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
    assert "Traceback" not in result.err
