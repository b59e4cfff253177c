"""`git_commit` and `git_push` with a real git, whose hooks kill the agent at chosen moments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import tools
from perdure.errors import UsageError
from tests.tools.workbench import Workbench


def git(repo: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(repo), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return new_repo(work / "repo")


@pytest.fixture
def remote(work: Path, repo: Path) -> Path:
    path = work / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    git(repo, "remote", "add", "origin", str(path))
    return path


def new_repo(path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(path)], check=True)
    git(path, "config", "user.name", "Ada")
    git(path, "config", "user.email", "ada@example.com")
    return path


def hook(repo: Path, name: str, *lines: str) -> None:
    path = (repo / ".git" if (repo / ".git").exists() else repo) / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def kill_once(bench: Workbench) -> str:
    """A line for a hook that kills the agent the first time it is reached."""
    return f"mkdir {bench.work}/once 2>/dev/null && kill -9 $(cat {bench.pid_file})"


def commits(repo: Path, branch: str = "main") -> list[str]:
    return git(repo, "log", "--format=%s", branch).splitlines()


def change(repo: Path, content: str = "text", name: str = "a.txt") -> None:
    (repo / name).write_text(content)


@perdure.agent
def committing(repo: str, message: str) -> list[str]:
    return [tools.git_commit(repo, message), tools.git_commit(repo, "empty", allow_empty=True)]


def test_a_commit_is_made_once_for_each_call_and_carries_its_key(repo: Path) -> None:
    change(repo)
    made = perdure.run(committing, str(repo), "add a\n\nbecause # of it", run_id="r")
    assert perdure.run(committing, str(repo), "add a\n\nbecause # of it", run_id="r") == made
    assert commits(repo) == ["empty", "add a"]
    assert made == git(repo, "log", "--reverse", "--format=%H").splitlines()
    keys = git(repo, "log", "--format=%(trailers:key=Perdure-Key,valueonly)").split()
    assert len(set(keys)) == 2
    assert "because # of it" in git(repo, "log", "-1", "--format=%b", made[0])


@pytest.mark.parametrize("when", ["pre-commit", "prepare-commit-msg", "commit-msg", "post-commit"])
def test_killed_inside_git_there_is_exactly_one_commit_after_the_resume(
    bench: Workbench, repo: Path, when: str
) -> None:
    change(repo)
    hook(repo, when, kill_once(bench), "exit 0")
    arguments = {"repo": str(repo), "message": "add a"}
    bench.expect_killed("git_commit", arguments)
    made = bench.expect_done("git_commit", arguments)
    assert commits(repo) == ["add a"]
    assert git(repo, "rev-parse", "HEAD") in made
    assert git(repo, "status", "--porcelain") == ""


def test_a_git_that_outlived_its_agent_is_waited_for(bench: Workbench, repo: Path) -> None:
    change(repo)
    os.mkfifo(bench.work / "gate")
    hook(repo, "pre-commit", f"{kill_once(bench)} && read -r _ < {bench.work}/gate", "exit 0")
    arguments = {"repo": str(repo), "message": "add a"}
    bench.expect_killed("git_commit", arguments)
    resumed = bench.start("git_commit", arguments)
    bench.wait_for_look(resumed)
    (bench.work / "gate").write_text("go\n")
    assert resumed.wait(60) == 0
    assert commits(repo) == ["add a"]


def test_a_commit_found_on_another_branch_is_not_made_again(bench: Workbench, repo: Path) -> None:
    change(repo)
    hook(repo, "post-commit", kill_once(bench), "exit 0")
    arguments = {"repo": str(repo), "message": "add a", "allow_empty": True}
    bench.expect_killed("git_commit", arguments)
    git(repo, "checkout", "--quiet", "--orphan", "other")
    git(repo, "commit", "--quiet", "--message", "unrelated")
    bench.expect_done("git_commit", arguments)
    assert commits(repo) == ["add a"]
    assert commits(repo, "other") == ["unrelated"]


def test_only_the_given_paths_are_committed(repo: Path) -> None:
    change(repo, name="a")
    change(repo, name="b")
    change(repo, name="c")
    git(repo, "add", "c")
    tools.git_commit(repo, "only a", ["a"])
    assert git(repo, "show", "--name-only", "--format=") == "a"
    assert git(repo, "status", "--porcelain").split() == ["A", "c", "??", "b"]
    (repo / "a").unlink()
    tools.git_commit(repo, "remove a", ["a"])
    assert git(repo, "ls-files") == "c"


@pytest.mark.parametrize("refusal", ["nothing", "hook"])
def test_a_refused_commit_is_an_ordinary_failure(repo: Path, refusal: str) -> None:
    if refusal == "hook":
        change(repo)
        hook(repo, "pre-commit", "echo not today >&2; exit 1")
    named = "not today" if refusal == "hook" else "nothing to commit"
    for _ in range(2):
        with pytest.raises(tools.GitFailed, match=named):
            perdure.run(committing, str(repo), "message", run_id="r")
    assert git(repo, "for-each-ref") == ""


def test_a_folder_without_git_is_an_ordinary_failure(work: Path) -> None:
    with pytest.raises(tools.GitFailed, match="not a git repository"):
        perdure.run(committing, str(work), "message", run_id="r")
    with pytest.raises(tools.GitFailed, match="is not a folder"):
        perdure.run(committing, str(work / "none"), "message", run_id="s")


@perdure.agent
def pushing(repo: str, commit: str | None = None) -> str:
    return tools.git_push(repo, "origin", "main", commit=commit)


@pytest.mark.parametrize("when", ["pre-receive", "post-receive"])
def test_killed_inside_the_push_the_remote_holds_the_commit_after_the_resume(
    bench: Workbench, repo: Path, remote: Path, when: str
) -> None:
    change(repo)
    made = tools.git_commit(repo, "add a")
    hook(remote, when, f"echo pushed >> {bench.work}/log", kill_once(bench), "exit 0")
    arguments = {"repo": str(repo), "remote": "origin", "branch": "main"}
    bench.expect_killed("git_push", arguments)
    assert made in bench.expect_done("git_push", arguments)
    assert git(remote, "rev-parse", "main") == made
    assert (bench.work / "log").read_text() == "pushed\n"


def test_a_commit_somebody_built_on_counts_as_pushed(bench: Workbench, repo: Path, remote: Path) -> None:
    change(repo)
    made = tools.git_commit(repo, "add a")
    hook(remote, "post-receive", kill_once(bench), "exit 0")
    arguments = {"repo": str(repo), "remote": "origin", "branch": "main", "commit": made}
    bench.expect_killed("git_push", arguments)
    other = bench.work / "other"
    subprocess.run(["git", "clone", "--quiet", "--branch=main", str(remote), str(other)], check=True)
    git(other, "-c", "user.name=B", "-c", "user.email=b@b", "commit", "-q", "--allow-empty", "-m", "on top")
    git(other, "push", "--quiet", "origin", "main")
    assert made in bench.expect_done("git_push", arguments)
    assert commits(remote) == ["on top", "add a"]


def test_a_push_over_somebody_elses_commit_is_refused(repo: Path, remote: Path, work: Path) -> None:
    change(repo)
    tools.git_commit(repo, "ours")
    other = new_repo(work / "other")
    change(other)
    tools.git_commit(other, "theirs")
    git(other, "push", "--quiet", str(remote), "main")
    with pytest.raises(tools.GitFailed, match="rejected"):
        perdure.run(pushing, str(repo), run_id="r")
    assert commits(remote) == ["theirs"]


def test_a_remote_that_cannot_be_reached_is_an_ordinary_failure(repo: Path) -> None:
    change(repo)
    tools.git_commit(repo, "ours")
    git(repo, "remote", "add", "origin", "/no/such/place.git")
    with pytest.raises(tools.GitFailed, match="does not appear to be a git repository"):
        perdure.run(pushing, str(repo), run_id="r")


def test_a_given_commit_is_pushed_and_not_what_came_after(repo: Path, remote: Path) -> None:
    change(repo)
    first = tools.git_commit(repo, "first")
    tools.git_commit(repo, "second", allow_empty=True)
    assert perdure.run(pushing, str(repo), first, run_id="r") == first
    assert commits(remote) == ["first"]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: tools.git_commit(".", " "), "message=' '"),
        (lambda: tools.git_commit("", "x"), "repo='' is not a path"),
        (lambda: tools.git_commit(".", "x", "a.txt"), "no list of paths"),
        (lambda: tools.git_commit(".", "x", []), "no list of paths"),
        (lambda: tools.git_push(".", "--upload-pack=evil", "main"), "not a usable name"),
        (lambda: tools.git_push(".", "origin", "+main"), "not a usable name"),
        (lambda: tools.git_push(".", "origin", "a:b"), "not a usable name"),
        (lambda: tools.git_push(".", "origin", "main", commit="HEAD"), "not a commit id"),
        (lambda: tools.git_push(".", "origin", "main", timeout=0), "timeout=0"),
    ],
)
def test_misused_git_is_told_in_three_lines(call: Any, named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        call()
    assert len(raised.value.lines()) == 3
