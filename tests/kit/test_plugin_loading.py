"""The plugin as others meet it: real runs of pytest in projects of their own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.testing import plugin, stores
from tests import warm
from tests.kit.desk import ROOT, TYPED

Start = Callable[..., subprocess.CompletedProcess[str]]
SUITE = Path(__file__).parent / "users_suite"
SECONDS = 300
FOREIGN = ("langsmith_plugin", "hypothesispytest", "anyio")
"""Plugins that happen to be installed here: a user need not have them, and they take longer than everything else."""
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

    def pytest(self, *words: str, code: int = 0, start: Start = subprocess.run, **environment: str) -> str:
        """Run it; what it said."""
        without = [word for name in FOREIGN for word in ("-p", f"no:{name}")]
        basetemp = str(self.folder / "temporary")
        done = start(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *without, "--basetemp", basetemp, *words],
            cwd=self.folder,
            env={**users_environment(), **environment},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def warmed(self, *words: str, code: int = 0) -> str:
        """The same where neither warnings nor what is loaded count: perdure is loaded before pytest begins."""
        return self.pytest(*words, code=code, start=warm.run)

    def campaigns(self, *words: str, code: int = 0, start: Start = warm.run, paths: tuple[Path, ...] = ()) -> str:
        """The same where campaigns are played: the processes that they kill need not be started from cold either."""
        settings = {"PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT))), **warm.addresses()}
        return self.pytest("-p", "tests.kit.warmed", *words, code=code, start=start, **settings)


def users_environment() -> dict[str, str]:
    """What a user at a desk has: where `CI` is set, pytest tells everything a second time in its summary."""
    ours = ("PERDURE_", "PYTEST_", "CI", "BUILD_NUMBER")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


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
    assert "test_both PASSED" in project.warmed("-v", "--perdure-stores", "sqlite")
    assert "mysql is no store" in project.warmed("-q", "--perdure-stores", "mysql", code=2)
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
    said = project.pytest("-q", "--perdure-stores", "postgresql", code=1, start=warm.run, **away)
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
    words = ("-q", "-W", "error", "--import-mode=importlib", "checks")
    assert "1 passed" in project.campaigns(*words, start=subprocess.run)


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
    said = project.campaigns("-q", code=1)
    assert "CrashFailed" in said
    assert "killed at fetch@main.1:after_step" in said
    assert "it returned 3 instead of 2" in said
    assert "replay: perdure crash test_naive.py:naive --at fetch@main.1:after_step -- pages=2" in said
    assert "step      fetch(page=1)" in said
    assert "perdure/testing" not in said.partition("short test summary")[0].replace(str(project.folder), "")


def test_command_that_replays_finds_an_agent_in_a_package_below_src(project: Project) -> None:
    project.write("pyproject.toml", "[tool.pytest.ini_options]\npythonpath = ['src']\ntestpaths = ['tests']\n")
    project.write("src/shop/__init__.py", "")
    project.write("src/shop/count.py", "SEEN = []\n")
    project.write(
        "src/shop/core.py",
        """
        import perdure

        from .count import SEEN

        @perdure.step
        def see(number: int) -> int:
            SEEN.append(number)
            return number

        @perdure.agent
        def bad() -> int:
            see(1)
            see(2)
            return len(SEEN)
        """,
    )
    project.write(
        "tests/test_shop.py", "from shop.core import bad\ndef test_bad(crash): crash(bad).at('see:recorded')\n"
    )
    said = project.campaigns("-q", code=1)
    (replay,) = {line.partition("replay: ")[2] for line in said.splitlines() if "replay: " in line}
    assert replay == "PYTHONPATH=src perdure crash shop.core:bad --at see@main.0:recorded"
    command = [sys.executable, *TYPED, *shlex.split(replay)[3:]]
    environment = {**users_environment(), "PYTHONPATH": f"src{os.pathsep}{ROOT}", **warm.addresses()}
    again = warm.run(command, cwd=project.folder, env=environment, capture_output=True, text=True)
    assert again.returncode == 1, again.stderr
    assert "it returned 1 instead of 2" in again.stdout


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
    said = project.warmed("-q", code=1)
    assert "asks 'Refund?' (choices: yes, no), and nobody in the script answers" in said
    assert "do: people.answer('Refund?', …)" in said
    assert "nobody asked for what is left in the script: answer 'Something' with True" in said
    assert "engine/execute.py" not in said


def test_errors_of_ours_say_what_is_safe_and_what_to_do(project: Project) -> None:
    project.write(
        "test_advice.py",
        """
        import pytest
        import perdure
        from perdure.errors import UsageError

        @perdure.agent
        def desk() -> str:
            return perdure.ask("Refund?", options=["yes", "no"]).choice

        @pytest.fixture(scope="module")
        def broken():
            raise UsageError("It is broken.", safe="all is.", hint="mend it")

        def test_called_wrongly(outcomes):
            outcomes(print)

        def test_unanswered(people):
            perdure.run(desk)

        def test_waits(perdure_store):
            perdure.run(desk)

        def test_one(broken):
            pass

        def test_other(broken):
            pass

        def test_is_what_it_was(outcomes):
            with pytest.raises(perdure.PerdureError) as refused:
                outcomes(print)
            assert str(refused.value) == refused.value.message
            assert not hasattr(refused.value, "__notes__")

        def test_of_another():
            raise ValueError("mine")
        """,
    )
    said = project.warmed("-q", code=1)
    assert "4 failed, 1 passed" in said
    shown = [line.removeprefix("E").strip() for line in said.splitlines() if line.startswith("E ")]
    begins = shown.index("perdure.errors.UsageError: print is neither a step nor an effect.")
    assert shown[begins + 1 : begins + 3] == [
        "safe: nothing was scripted.",
        "do: put @perdure.step or @perdure.effect above its def",
    ]
    assert sum(line.startswith("do: people.answer('Refund?', …)") for line in shown) == 1
    assert sum(line.startswith("safe: the run waits; nothing after the question was performed.") for line in shown) == 1
    assert shown.count("do: mend it") == 2
    waits = next(number for number, line in enumerate(shown) if line.startswith("perdure.errors.RunWaits"))
    assert any(line.startswith("do: perdure approve ") for line in shown[waits : waits + 3])
    assert shown.count("ValueError: mine") == 1


def test_runs_that_were_only_started_fail_the_test_as_others_do(project: Project) -> None:
    project.write(
        "test_started.py",
        """
        import perdure
        import pytest
        from perdure.testing.outcomes import Unscripted

        @perdure.effect
        def pay(cents: int) -> str:
            raise AssertionError("really performed")

        @perdure.agent
        def pays(cents: int) -> str:
            return pay(cents)

        @perdure.agent
        def sleeps(cents: int) -> str:
            perdure.sleep("2d")
            return pay(cents)

        @perdure.agent
        def keeps_quiet(cents: int) -> str:
            try:
                return pay(cents)
            except BaseException:
                return "nothing happened"

        @perdure.agent
        async def asks(cents: int) -> str:
            return (await perdure.ask("Refund?", options=["yes", "no"])).choice

        def test_forbidden(outcomes):
            outcomes(pay).forbidden()
            perdure.start(pays, 1)

        def test_after_a_sleep_that_is_skipped(outcomes, clock):
            outcomes(pay).forbidden()
            perdure.start(sleeps, 2)

        def test_kept_quiet(outcomes):
            outcomes(pay).forbidden()
            perdure.start(keeps_quiet, 3)

        def test_unanswered(people):
            perdure.start(asks, 4)

        def test_passes_while_it_sleeps(outcomes):
            outcomes(pay).forbidden()
            perdure.start(sleeps, 5)

        def test_passes_where_the_test_was_told(outcomes, people):
            outcomes(pay).forbidden()
            with pytest.raises(Unscripted):
                perdure.run(pays, 6)
            with pytest.raises(Unscripted):
                perdure.start(pays, 7).result(30)
            with pytest.raises(perdure.PerdureError, match="nobody in the script answers"):
                perdure.start(asks, 8).result(30)

        def test_passes_where_it_is_meant_to_wait(people):
            people.leave_open("Refund?")
            perdure.start(asks, 9)
        """,
    )
    said = project.warmed("-q", "-rA", code=1)
    assert "4 failed, 3 passed" in said
    for cents in (1, 2, 3):
        assert f"outcomes: pay(cents={cents}) was performed, and must not be." in said
    assert "asks 'Refund?' (choices: yes, no), and nobody in the script answers" in said
    assert "do: people.answer('Refund?', …)" in said
    assert said.count("PASSED test_started.py::test_passes") == 3
    assert "really performed" not in said


def test_campaign_that_was_described_and_never_played_fails_the_test(project: Project) -> None:
    project.write(
        "test_unplayed.py",
        textwrap.dedent(AGENT)
        + textwrap.dedent(
            """
            def test_unplayed(crash):
                crash(report, 2)

            def test_unplayed_though_prepared(crash):
                crash(report, 2).stub(send, "sent").answering("yes")

            def test_failed_for_another_reason(crash):
                crash(report, 2)
                assert not "mine"

            def test_played(crash):
                prepared = crash(report, 1).stub(send, "sent")
                assert prepared.at("send", "after_effect").tally.landed == 1
            """
        ),
    )
    said = project.campaigns("-q", code=1)
    assert "3 failed, 1 passed" in said
    sentence = "crash: no campaign was played against test_unplayed.py:report: call .every_point()"
    assert said.partition("short test summary")[0].count(sentence) == 2


def test_errors_of_campaigns_name_methods_of_the_fixture(project: Project) -> None:
    project.write(
        "test_words.py",
        """
        import perdure

        @perdure.effect(name="charge")
        def charge_card(cents: int) -> str:
            with open(__file__ + ".charged", "a") as file:
                file.write("charged")
            return "charged"

        @perdure.agent
        def sells(cents: int) -> str:
            return charge_card(cents)

        @perdure.agent
        def reads() -> str:
            return open("missing.txt").read()

        @perdure.agent
        def asks() -> str:
            return perdure.ask("Which?").value

        def test_misspelt_stub(crash):
            crash(sells, 1).stub("chrage", "x").every_point()

        def test_misspelt_point(crash):
            crash(sells, 1).stub(charge_card, "x").at("chrage", "after_effect")

        def test_missing_file(crash):
            crash(reads).every_point()

        def test_unanswered(crash):
            crash(asks).every_point()

        def test_one_racer(crash):
            crash(sells, 1).stub(charge_card, "x").racers(1)

        def test_plain_function(crash):
            crash(sells, 1).stub(print, "x").every_point()

        def test_closure(crash):
            @perdure.agent
            def inner() -> int:
                return 1

            crash(inner).every_point()

        def test_too_many_arguments(crash):
            crash(sells, 1, 2).every_point()

        def test_misspelt_argument(crash):
            crash(sells, euros=1).every_point()

        def test_endless(crash):
            crash(sells, 1).options(timeout_seconds=float("nan")).every_point()
        """,
    )
    said = project.campaigns("-q", code=1)
    assert "10 failed" in said
    assert ".stub('chrage', …): there is no step and no effect 'chrage'" in said
    assert "did you mean .stub('charge', …)?" in said
    assert ".at('chrage', 'after_effect'): the run has no such point" in said
    assert ".copying(FILE) puts something there" in said
    assert "say what it gets: .answering(VALUE)" in said
    assert ".racers(1): a race needs at least two processes" in said
    assert "print is neither a step nor an effect" in said
    assert "do: put @perdure.step or @perdure.effect above its def" in said
    assert "inner is defined inside a function: no other process can import it" in said
    assert "do: define the agent at the top of its module" in said
    assert "perdure: sells(): too many positional arguments." in said
    assert "perdure: sells(): missing a required argument: 'cents'." in said
    assert said.count("do: it is called as sells(cents: int)") == 2
    assert ".options(timeout_seconds=nan) is no number of seconds" in said
    assert "--" not in "\n".join(line for line in said.splitlines() if line.startswith("E "))
    assert not list(project.folder.glob("*.charged"))


@pytest.mark.exhaustive
def test_suite_of_a_user_passes_on_two_processes(project: Project) -> None:
    shutil.copytree(SUITE, project.folder / "suite")
    project.folder /= "suite"
    chosen = "not every_point and not recovers and not thawed and not person_is and not random and not eight"
    words = ("-q", "-n", "2", "-k", chosen)
    said = project.campaigns(*words, start=subprocess.run, paths=(project.folder / "src",))
    assert "12 passed" in said


@pytest.mark.exhaustive
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
