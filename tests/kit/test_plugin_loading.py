"""The plugin as others meet it: real runs of pytest in projects of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from perdure.testing import plugin, stores

SUITE = Path(__file__).parent / "users_suite"
SECONDS = 300
AGENT = """
    import perdure

    @perdure.step
    def fetch(page: int) -> int:
        return page

    @perdure.effect
    def send(to: str) -> str:
        return f"sent to {to}"

    @perdure.agent
    def report(pages: int) -> str:
        return send(str(sum(fetch(page) for page in range(pages))))
"""


class Project:
    """A folder in which pytest is run as a user runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def pytest(self, *words: str, code: int = 0, **environment: str) -> str:
        """Run it; what it said."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTEST_"))}
        basetemp = str(self.folder / "temporary")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", basetemp, *words],
            cwd=self.folder,
            env={**kept, **environment},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_suite_that_does_not_use_it_loads_nothing_of_perdure(project: Project) -> None:
    project.write(
        "test_plain.py",
        """
        import sys

        def test_nothing_is_loaded():
            loaded = {name.removeprefix("perdure.") for name in sys.modules if name.split(".")[0] == "perdure"}
            assert loaded <= {"perdure", "errors", "version", "testing", "testing.plugin"}
            assert "msgspec" not in sys.modules
        """,
    )
    assert "1 passed" in project.pytest("-q", "-W", "error")


def test_fixtures_of_a_suite_win_over_those_of_the_plugin(project: Project) -> None:
    project.write("conftest.py", "import pytest\n\n@pytest.fixture\ndef clock():\n    return 'mine'\n")
    project.write("test_own.py", "def test_own(clock):\n    assert clock == 'mine'\n")
    assert "1 passed" in project.pytest("-q", "-W", "error")


def test_stores_are_chosen_by_ini_and_by_option(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nperdure_stores = memory sqlite\n")
    project.write(
        "test_stores.py",
        """
        import pytest
        import perdure

        @perdure.agent
        def one() -> int:
            return 1

        def test_both(perdure_store):
            assert perdure.run(one) == 1
            assert [run.state for run in perdure_store.runs()] == ["completed"]

        @pytest.mark.parametrize("perdure_store", ["memory"], indirect=True)
        def test_its_own(perdure_store):
            assert perdure_store.kind == "memory"
        """,
    )
    said = project.pytest("-v", "-W", "error")
    assert "test_both[memory] PASSED" in said
    assert "test_both[sqlite] PASSED" in said
    assert "3 passed" in said
    assert "test_both PASSED" in project.pytest("-v", "--perdure-stores", "sqlite")
    assert "mysql is no store" in project.pytest("-q", "--perdure-stores", "mysql", code=2)
    assert not (project.folder / ".perdure").exists()


def test_missing_server_is_a_skip_that_says_what_to_install(project: Project) -> None:
    project.write("psycopg.py", "raise ImportError('there is no psycopg here')\n")
    project.write("test_server.py", "def test_server(perdure_store):\n    assert perdure_store.kind\n")
    said = project.pytest("-q", "-rs", "--perdure-stores", "postgresql")
    assert "1 skipped" in said
    assert "there is no PostgreSQL to test with (there is no psycopg here)" in said
    assert "PERDURE_TEST_POSTGRES" in said


def test_named_server_that_is_away_is_an_error(project: Project) -> None:
    project.write(
        "test_server.py",
        """
        import perdure

        @perdure.agent
        def one() -> int:
            return 1

        def test_server(perdure_store):
            perdure.configure(open_seconds=1)
            perdure.run(one)
        """,
    )
    away = {"PERDURE_TEST_POSTGRES": "postgresql://nobody@127.0.0.1:9/nothing"}
    said = project.pytest("-q", "--perdure-stores", "postgresql", code=1, **away)
    assert "StoreUnavailable" in said


def test_agents_in_test_modules_that_nobody_could_import_are_killed(project: Project) -> None:
    project.write(
        "checks/test_report.py",
        textwrap.dedent(AGENT)
        + textwrap.dedent(
            """
            def test_killed(crash):
                report = crash(report_agent, 2).at("send", "after_effect")
                assert report.tally.landed == 1

            report_agent = report
            """
        ),
    )
    assert "1 passed" in project.pytest("-q", "-W", "error", "--import-mode=importlib", "checks")


def test_failed_campaign_is_reported_without_a_traceback_of_ours(project: Project) -> None:
    project.write(
        "test_naive.py",
        """
        import perdure

        @perdure.step
        def fetch(page: int) -> int:
            return page

        @perdure.agent
        def naive(pages: int) -> int:
            for page in range(pages):
                fetch(page)
                with open("out.txt", "a") as file:
                    file.write("x")
            return len(open("out.txt").read())

        def test_killed(crash):
            crash(naive, 2).at("fetch@main.1", "after_step")
        """,
    )
    said = project.pytest("-q", code=1)
    assert "CrashFailed" in said
    assert "killed at fetch@main.1:after_step" in said
    assert "it returned 3 instead of 2" in said
    assert "replay: perdure crash test_naive.py:naive --at fetch@main.1:after_step -- pages=2" in said
    assert "step      fetch(page=1)" in said
    assert "perdure/testing" not in said.partition("short test summary")[0].replace(str(project.folder), "")


def test_questions_without_an_answer_and_answers_without_a_question_fail_plainly(project: Project) -> None:
    project.write(
        "test_people.py",
        """
        import perdure

        @perdure.agent
        def desk() -> str:
            return perdure.ask("Refund?", options=["yes", "no"]).choice

        def test_unanswered(people):
            perdure.run(desk)

        def test_unasked(people):
            people.answer("Something", True)
        """,
    )
    said = project.pytest("-q", code=1)
    assert "asks 'Refund?' (choices: yes, no), and nobody in the script answers" in said
    assert "do: people.answer('Refund?', …)" in said
    assert "nobody asked for what is left in the script: answer 'Something' with True" in said
    assert "engine/execute.py" not in said


def test_suite_of_a_user_passes_on_two_processes(project: Project) -> None:
    shutil.copytree(SUITE, project.folder / "suite")
    project.folder /= "suite"
    source = str(project.folder / "src")
    chosen = "not every_point and not recovers and not thawed and not person_is and not random and not eight"
    said = project.pytest("-q", "-n", "2", "-k", chosen, PYTHONPATH=source)
    assert "12 passed" in said


@pytest.mark.torture
def test_suite_of_a_user_passes_in_an_environment_of_its_own(project: Project) -> None:
    shutil.copytree(SUITE, project.folder / "suite")
    project.folder /= "suite"
    fresh = project.folder / "venv"
    here = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-m", "venv", str(fresh)], check=True, timeout=SECONDS)
    install = [str(fresh / "bin" / "python"), "-m", "pip", "install", "-q", str(here), ".", "pytest"]
    subprocess.run(install, check=True, timeout=SECONDS, cwd=project.folder)
    done = subprocess.run(
        [str(fresh / "bin" / "python"), "-m", "pytest", "-q", "--durations=5"],
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_plugin_and_stores_name_the_same_kinds() -> None:
    assert plugin.KINDS == stores.KINDS
