"""Workers in development: a change of the code starts them anew, and runs in progress go on under it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces.conftest import Place
from tests.worker.conftest import PATIENCE, Crew

WORDS = 'WORD = "old"\n'

AGENT = """
    import words

    def hold(name):
        pathlib.Path(f"{name}.held").touch()
        while not os.path.exists(f"{name}.go"):
            time.sleep(0.01)

    @perdure.step
    def say(number: int) -> str:
        return f"{words.WORD} {number}"

    @perdure.step
    def stay(name: str) -> str:
        hold(name)
        return words.WORD

    @perdure.agent
    def talk(name: str) -> list[str]:
        return [say(0), stay(name), say(1)]
"""


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    place = Place(tmp_path)
    made = Crew(place)
    (tmp_path / "words.py").write_text(WORDS)
    place.write("app.py", AGENT)
    yield made
    made.end()


def told(crew: Crew, event: str) -> list[dict[str, Any]]:
    return [each for each in crew.told if each["event"] == event]


def started(crew: Crew, times: int) -> None:
    crew.until(lambda: len(told(crew, "worker_started")) == times)


def test_changed_file_starts_the_worker_anew_and_a_run_in_progress_goes_on_under_it(crew: Crew) -> None:
    run = crew.start("talk", name="a")
    worker = crew.worker("--reload")
    crew.until((crew.place.folder / "a.held").exists)
    (crew.place.folder / "words.py").write_text('WORD = "new"\n')
    crew.until(lambda: told(crew, "worker_draining"))
    crew.let_go("a")
    crew.until(lambda: run in crew.ended())
    (changed,) = told(crew, "code_changed")
    assert [Path(file).name for file in changed["files"]] == ["words.py"]
    assert crew.place.perdure("show", run, "--json").json()["result"] == ["old 0", "old", "new 1"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0


def test_code_that_cannot_be_loaded_is_shown_and_the_next_change_is_waited_for(crew: Crew) -> None:
    worker = crew.worker("--reload", "--log", "lines")
    crew.until(lambda: any("Ctrl-C drains" in each["event"] for each in crew.told))
    (crew.place.folder / "words.py").write_text("def broken(:\n")
    crew.until(lambda: any(each["event"].startswith("waiting for a change") for each in crew.told))
    said = [each["event"].rstrip() for each in crew.told]
    at = next(number for number, line in enumerate(said) if "cannot be loaded" in line)
    assert said[at].startswith("perdure: app.py cannot be loaded: SyntaxError: invalid syntax (words.py, line 1)")
    assert said[at + 1] == "   safe: nothing was started."
    assert said[at + 2] == "     do: mend words.py, line 1, then try again: def broken(:"
    assert said[at + 3] == "waiting for a change"
    assert worker.poll() is None
    (crew.place.folder / "words.py").write_text('WORD = "mended"\n')
    run = crew.start("talk", name="a")
    crew.let_go("a")
    crew.until(lambda: crew.states()[run][0] == "completed")
    assert crew.place.perdure("show", run, "--json").json()["result"] == ["mended 0", "mended", "mended 1"]
    worker.send_signal(signal.SIGINT)
    assert worker.wait(PATIENCE) == 0


def test_worker_whose_first_code_cannot_be_loaded_waits_too_and_can_be_stopped(crew: Crew) -> None:
    (crew.place.folder / "words.py").write_text("1 / 0\n")
    worker = crew.worker("--reload")
    crew.until(lambda: told(crew, "change_awaited"))
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0


def test_run_whose_calls_changed_is_parked_with_the_difference(crew: Crew) -> None:
    run = crew.start("talk", name="a")
    crew.worker("--reload")
    crew.until((crew.place.folder / "a.held").exists)
    crew.place.write("app.py", AGENT.replace("[say(0), stay(name), say(1)]", "[say(7), stay(name), say(1)]"))
    crew.until(lambda: told(crew, "worker_draining"))
    crew.let_go("a")
    crew.until(lambda: crew.states()[run] == ("waiting", "parked"))
    shown = crew.place.perdure("show", run).out
    assert "say(number=0)" in shown
    assert "say(number=7)" in shown


def test_file_that_is_loaded_late_is_watched_as_well(crew: Crew) -> None:
    (crew.place.folder / "late.py").write_text('WORD = "old"\n')
    crew.place.write(
        "app.py",
        """
    @perdure.agent
    def lazy() -> str:
        import late
        return late.WORD
    """,
    )
    first = crew.start("lazy")
    crew.worker("--reload")
    crew.until(lambda: first in crew.ended())
    until_seen = len(told(crew, "worker_started"))
    (crew.place.folder / "late.py").write_text('WORD = "new and longer"\n')
    crew.until(lambda: len(told(crew, "worker_started")) > until_seen)
    second = crew.start("lazy")
    crew.until(lambda: second in crew.ended())
    results = [crew.place.perdure("show", run, "--json").json()["result"] for run in (first, second)]
    assert results == ["old", "new and longer"]


def test_reload_needs_a_parent(crew: Crew) -> None:
    result = crew.place.perdure("worker", "app.py", "--reload", "--in-process")
    assert result.code == 2
    assert "--reload needs a parent" in result.err
