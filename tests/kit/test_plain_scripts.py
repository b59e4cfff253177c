"""Scripts: one that knows nothing of perdure is judged by its first end, and what went wrong is said in its words."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import StepFailed
from perdure.testing.crash import report as reports
from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.failing import what_happened
from perdure.testing.crash.modes import zombie
from perdure.testing.crash.nursery import Ended
from perdure.testing.crash.options import Options
from perdure.testing.crash.subject import Subject
from tests.kit.campaigns import described

Campaign = Callable[..., Report]
OF_PERDURE = """\
perdure: resumed hale-yak-1 at step 1
perdure: Run hale-yak-1 no longer matches its code.
           recorded: a(i=1)
           now:      b(i=1)
   safe: its one completed step is saved.
     do: restore the call
"""
OF_PYTHON = """\
Traceback (most recent call last):
  File "script.py", line 1
KeyError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "script.py", line 2
ValueError: first
second
"""


@pytest.fixture
def laboratory(tmp_path: Path) -> Callable[..., Laboratory]:
    def made(script: str, *, jobs: int = 2, **options: Any) -> Laboratory:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(script))
        subject = Subject(kind="script", app=str(path), shown="script.py")
        return Laboratory(subject, Options(jobs=jobs, folder=str(tmp_path), **options))

    return made


@pytest.fixture
def campaign(laboratory: Callable[..., Laboratory]) -> Campaign:
    def play(script: str, **options: Any) -> Report:
        with laboratory(script, **options) as place:
            return place.campaign()

    return play


def test_line_in_which_uncrashed_runs_differ_is_held_against_nobody(campaign: Campaign) -> None:
    report = campaign("import time; open('x.txt', 'w').write('1'); print('done', time.time())")
    assert report.is_fine, described(report)
    assert (report.reference.is_quiet_again, report.tally.again) == (False, 0)
    told = reports.text(report)
    assert (
        "  quiet once more             -  not tried: without perdure, to start it after its end is another run" in told
    )
    assert "only that it comes to its end was judged." in told
    assert "It writes x.txt, and that was not compared" in told


def test_line_that_a_script_prints_is_no_result_that_must_stay(campaign: Campaign) -> None:
    script = """
        import time, perdure

        @perdure.agent
        def looks() -> int:
            return 1

        perdure.start(looks, run_id="one", queue="later")
        print("handed in at", time.time())
    """
    report = campaign(script, at=("create_run:inside",))
    assert report.is_fine, described(report)
    assert report.tally.again == 1


def test_files_of_a_script_without_perdure_are_judged_at_its_first_end(campaign: Campaign) -> None:
    script = "open('a.txt', 'w').write('x')\nwith open('log.txt', 'a') as log: log.write('ran\\n')\nprint('end')"
    report = campaign(script, compare=("log.txt",), at=("open@a.txt:before",))
    assert report.is_fine, described(report)
    assert report.tally.files_equal == 1
    assert "only last lines and files were judged" in reports.text(report)


def test_files_of_a_script_are_judged_before_it_is_started_once_more(campaign: Campaign) -> None:
    report = campaign(
        """
        import perdure

        @perdure.step
        def look() -> int:
            return 1

        @perdure.agent
        def looks() -> int:
            return look()

        perdure.run(looks, run_id="one")
        with open("log.txt", "a") as log:
            log.write("ran\\n")
        """,
        compare=("log.txt",),
        at=("look:recorded",),
    )
    assert report.is_fine, described(report)
    assert (report.tally.files_equal, report.tally.again) == (1, 1)


def test_one_job_is_one_process_at_a_time_without_a_kill_too(
    laboratory: Callable[..., Laboratory], tmp_path: Path
) -> None:
    script = f"""
        import pathlib, time
        alone = pathlib.Path({str(tmp_path / "alone")!r})
        alone.touch(exist_ok=False)
        time.sleep(0.5)
        alone.unlink()
        open("x.txt", "w").close()
    """
    with laboratory(script, jobs=1) as place:
        assert place.reference.points
    assert (zombie.at_once(1), zombie.at_once(2)) == (1, 8)


def test_script_that_reads_its_standard_input_is_told_that_there_is_none(campaign: Campaign) -> None:
    with pytest.raises(StepFailed, match=r"exit code 1: EOFError: EOF when reading a line\.$") as refused:
        campaign("input('how many? ')")
    assert refused.value.hint.startswith("its standard input is empty in every trial: let it take arguments")


@pytest.mark.parametrize(
    ("err", "out", "said"),
    [
        (OF_PERDURE, "", "Run hale-yak-1 no longer matches its code. recorded: a(i=1) now: b(i=1)"),
        (OF_PYTHON, "", "ValueError: first"),
        ("not today\n", "done\n", "not today"),
        ("", "begun\ndone 7\n", "it last printed 'done 7'"),
        ("", "", "it said nothing"),
    ],
)
def test_what_happened_is_told_from_where_the_last_message_begins(err: str, out: str, said: str) -> None:
    assert what_happened(Ended("life-1", 1, 5, out, err, 0.1)) == said
