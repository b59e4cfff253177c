"""first.py: killed from outside while it reads, and started again."""

from __future__ import annotations

from tests.examples.stage import Stage

SENT = ["to ada@example.com: " + "; ".join(f"page {page} in one sentence" for page in range(1, 7))]


def test_killed_by_kill_9_from_outside_it_goes_on_at_the_page_it_was_killed_at(stage: Stage) -> None:
    process = stage.start()
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(4)]
    assert seen == [f"reading page {page}\n" for page in range(1, 5)]
    stage.kill(process)
    assert stage.lines("outbox.txt") == []

    ended = stage.run()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "sent to ada@example.com"), ended
    again = int(ended.out.split()[2])
    assert again >= 4
    assert f"at step {again}: {again - 1} steps not repeated" in ended.err
    assert stage.called_with("summarise") == [*map(str, range(1, again + 1)), *map(str, range(again, 7))]
    assert stage.lines("outbox.txt") == SENT
    assert stage.kills == 1


def test_killed_in_the_fourth_page_exactly_that_page_is_read_again(stage: Stage) -> None:
    stage.kill_in("summarise", "time.sleep", occurrence=4)
    ended = stage.run()
    assert ended.code == 0, ended
    assert ended.out.splitlines()[:3] == [f"reading page {page}" for page in (4, 5, 6)]
    assert stage.called_with("summarise") == ["1", "2", "3", "4", "4", "5", "6"]
    assert stage.returned_with("summarise") == ["1", "2", "3", "4", "5", "6"]
    assert stage.lines("outbox.txt") == SENT
    assert stage.kills == 1


def test_it_is_short_enough_to_read_at_a_glance(stage: Stage) -> None:
    text = stage.script.read_text().split('"""')[2]
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 20
