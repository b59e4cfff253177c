"""audit.py: killed in the middle, it goes on where nothing moved, and parks where the branch moved."""

from __future__ import annotations

import subprocess

import pytest

from tests.examples.stage import Stage

FILES = ["a.py", "b.py", "c.py", "d.py"]
REPORT = ["# Findings", "", "- a.py:2: evaluates text as code", "- d.py:1: catches everything"]


def _git(stage: Stage, *arguments: str) -> str:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(stage.folder / "shop"), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def shop(stage: Stage) -> Stage:
    """A repository with four Python files and one that is none."""
    folder = stage.folder / "shop"
    folder.mkdir()
    _git(stage, "init", "--quiet", "--initial-branch=main")
    texts = {"a.py": "x = 1\neval(x)\n", "b.py": "y = 2\n", "c.py": "z = 3\n", "d.py": "except:\n", "e.txt": "eval("}
    for name, text in texts.items():
        (folder / name).write_text(text)
    _git(stage, "add", ".")
    _git(stage, "commit", "--quiet", "--message", "Begin")
    return stage


def _kept_report(stage: Stage) -> list[str]:
    """The copy of the report that is kept with the run."""
    code = "import perdure, sys; sys.stdout.buffer.write(perdure.artifacts(sys.argv[1])[0].read())"
    (run_id,) = stage.run_ids("audit.audit")
    return stage.python("-c", code, run_id).out.splitlines()


def _kill_in_the_third_file(stage: Stage) -> None:
    stage.kill_in("review", "time.sleep", "shop", "main", occurrence=3)
    assert stage.returned_with("review") == ["a.py", "b.py"]


def test_where_nothing_moved_it_just_goes_on(shop: Stage) -> None:
    _kill_in_the_third_file(shop)
    ended = shop.run("shop", "main")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "2 findings in report.md"), ended
    assert shop.returned_with("review") == FILES
    assert shop.called("list_files") == ["list_files"]
    assert shop.lines("report.md") == REPORT
    assert _kept_report(shop) == REPORT
    assert shop.kills == 1


def test_where_the_branch_moved_it_parks_with_the_difference_until_that_is_accepted(shop: Stage) -> None:
    before = _git(shop, "rev-parse", "--short=7", "main")
    _kill_in_the_third_file(shop)
    (shop.folder / "shop" / "c.py").write_text("z = 3\nrun(z, shell=True)\n")
    _git(shop, "commit", "--quiet", "--all", "--message", "Move")
    after = _git(shop, "rev-parse", "--short=7", "main")

    for _ in range(2):
        parked = shop.run("shop", "main")
        assert parked.code == 5, parked
        assert f"branch main is at {after}; it was at {before}" in parked.err
        assert "--accept" in parked.err
    assert shop.returned_with("review") == ["a.py", "b.py"]

    ended = shop.perdure("resume", "-", "--accept", "--app", "audit.py")
    assert ended.code == 0, ended
    assert "3 findings in report.md" in ended.out + ended.err
    assert shop.returned_with("review") == FILES
    assert shop.lines("report.md") == [*REPORT[:3], "- c.py:2: hands text to a shell", REPORT[3]]
    assert shop.kills == 1


def test_a_branch_that_was_put_back_is_as_it_was(shop: Stage) -> None:
    _kill_in_the_third_file(shop)
    _git(shop, "commit", "--quiet", "--allow-empty", "--message", "Move")
    assert shop.run("shop", "main").code == 5
    _git(shop, "reset", "--quiet", "--hard", "HEAD~1")
    ended = shop.run("shop", "main")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "2 findings in report.md"), ended
    assert shop.returned_with("review") == FILES
    assert shop.kills == 1
