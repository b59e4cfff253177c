"""`git_commit` and `git_push`: a commit carries its effect's key as a trailer, and a remote shows what it holds."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perdure.engine.effect import effect
from perdure.engine.settle import Intent, Verdict, cannot_tell, did_not_happen, happened
from perdure.engine.values import current
from perdure.errors import UsageError

TRAILER: Final = "Perdure-Key"
DEFAULT_COMMIT_SECONDS: Final = 300.0
DEFAULT_PUSH_SECONDS: Final = 120.0
_ATTEMPTS: Final = 3
"""After so many attempts of unknown end a person is asked: the cause does not go away by itself."""

_OUTPUT_BYTES: Final = 64 * 1024
_REMOTE: Final = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_./@:+~-]*")
_BRANCH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")
_COMMIT: Final = re.compile(r"[0-9a-fA-F]{7,64}")
_QUESTION_SECONDS: Final = 120.0


class GitFailed(Exception):
    """Git refused, and what was asked of it did not happen."""


class GitUnconfirmed(Exception):
    """Git did not end in time, and what was asked of it may have happened."""


def git_commit(
    repo: str | os.PathLike[str],
    message: str,
    paths: Sequence[str] | None = None,
    *,
    allow_empty: bool = False,
    timeout: float = DEFAULT_COMMIT_SECONDS,
) -> str:
    """Commit changes in a git repository and return the commit's full id.

    `paths`: the files and folders to commit, new and deleted ones included, while what else is staged stays staged;
    without, everything that changed. `allow_empty` makes a commit even where nothing changed. Hooks run; after
    `timeout` seconds git is killed.

    Guaranteed: one commit for each call of a run. It carries the effect's key as a trailer (`Perdure-Key: …`). After a
    crash the local branches are searched for it, once a git that outlived its agent has ended.

    Not guaranteed: a commit whose trailer was rewritten or whose branch was deleted in between is not recognised. Hooks
    may run again. A git that was killed itself may leave `index.lock`, which git then asks you to remove.
    """
    place = _checked_text(repo, "git_commit", "repo")
    if not isinstance(message, str) or not message.strip() or "\0" in message:
        raise _misused("git_commit", f"message={message!r} is empty or no text.", "say what the commit does")
    if isinstance(paths, (str, bytes)) or not isinstance(paths, (Sequence, type(None))) or paths == []:
        raise _misused("git_commit", f"paths={paths!r} is no list of paths.", "paths=['src/a.py'], or None for all")
    chosen = None if paths is None else [_checked_text(path, "git_commit", "paths") for path in paths]
    _check_timeout("git_commit", timeout)
    return _git_commit(place, message, chosen, allow_empty=bool(allow_empty), timeout=float(timeout))


@effect(name="git_commit", in_flight_seconds=0, certain=(GitFailed, OSError, UsageError), ambiguous=(GitUnconfirmed,))
def _git_commit(repo: str, message: str, paths: list[str] | None, *, allow_empty: bool, timeout: float) -> str:
    key = current().key
    chosen = [] if paths is None else ["--", *paths]
    _act(repo, "add", *(chosen or ["--all"]), key=key, timeout=timeout)
    try:
        _act(
            repo,
            "commit",
            "--quiet",
            "--cleanup=whitespace",
            f"--message={message}",
            f"--trailer={TRAILER}: {key}",
            *(["--allow-empty"] if allow_empty else []),
            *chosen,
            key=key,
            timeout=timeout,
        )
    except GitFailed:
        made = _find(repo, key)
        if not made:
            raise
        return made
    return _find(repo, key) or _ask(repo, "rev-parse", "HEAD")


@_git_commit.check
def _was_committed(intent: Intent) -> Verdict:
    from perdure.tools.process import living

    alive = living(intent.key, seconds=intent.arguments["timeout"])
    if alive:
        return cannot_tell(f"git still runs ({alive}); resume when it has ended")
    made = _find(intent.arguments["repo"], intent.key)
    return happened(made) if made else _not_yet(intent)


def git_push(
    repo: str | os.PathLike[str],
    remote: str,
    branch: str,
    *,
    commit: str | None = None,
    timeout: float = DEFAULT_PUSH_SECONDS,
) -> str:
    """Push a branch to a remote, never by force, and return the id of the commit that was pushed.

    `commit` says what to push, such as the id `git_commit` returned; without, it is the tip of the local branch at the
    time. Git must be able to log in without asking.

    Guaranteed: after a crash the remote is asked whether its branch holds the commit; only if it does not, it is pushed
    again. A push that would drop somebody else's commits is refused by git and raises `GitFailed`.

    Not guaranteed: if somebody took the commit off the remote branch after the push and before the resume, it is pushed
    again. Hooks on the remote see what git shows them.
    """
    place = _checked_text(repo, "git_push", "repo")
    for name, value, form in (("remote", remote, _REMOTE), ("branch", branch, _BRANCH)):
        if not isinstance(value, str) or not form.fullmatch(value):
            raise _misused("git_push", f"{name}={value!r} is not a usable name.", "git_push(repo, 'origin', 'main')")
    if commit is not None and not (isinstance(commit, str) and _COMMIT.fullmatch(commit)):
        raise _misused("git_push", f"commit={commit!r} is not a commit id.", "pass what git_commit returned")
    _check_timeout("git_push", timeout)
    return _git_push(place, remote, branch, commit=commit, timeout=float(timeout))


@effect(name="git_push", in_flight_seconds=0, certain=(GitFailed, OSError, UsageError), ambiguous=(GitUnconfirmed,))
def _git_push(repo: str, remote: str, branch: str, *, commit: str | None, timeout: float) -> str:
    pushed = _resolve(repo, branch, commit)
    if _held(repo, remote, branch) == pushed:  # a remote that cannot be reached fails here, before anything is sent
        return pushed
    try:
        _act(repo, "push", "--quiet", remote, f"{pushed}:refs/heads/{branch}", key=current().key, timeout=timeout)
    except GitFailed as error:
        if "rejected]" in str(error):
            raise
        raise GitUnconfirmed(str(error)) from error
    return pushed


@_git_push.check
def _was_pushed(intent: Intent) -> Verdict:
    from perdure.tools.process import living

    arguments = intent.arguments
    repo, remote, branch = arguments["repo"], arguments["remote"], arguments["branch"]
    alive = living(intent.key, seconds=arguments["timeout"])
    if alive:
        return cannot_tell(f"git still runs ({alive}); resume when it has ended")
    pushed = _resolve(repo, branch, arguments["commit"])
    held = _held(repo, remote, branch)
    if held == pushed or (held and _contains(repo, remote, held, pushed)):
        return happened(pushed)
    return _not_yet(intent)


def _not_yet(intent: Intent) -> Verdict:
    if intent.attempt >= _ATTEMPTS:
        return cannot_tell(f"{intent.attempt} attempts have ended without an answer")
    return did_not_happen()


def _find(repo: str, key: str) -> str:
    """The newest commit on a local branch, or at HEAD, that carries the key; empty where there is none."""
    form = f"--format=%H %(trailers:key={TRAILER},valueonly,separator=%x20)"
    try:
        _ask(repo, "rev-parse", "--verify", "--quiet", "HEAD")
    except GitFailed:
        return ""  # nothing was ever committed
    found = _ask(repo, "log", "--fixed-strings", f"--grep={TRAILER}: {key}", form, "--branches", "HEAD", "--")
    for line in found.splitlines():
        commit, *keys = line.split()
        if key in keys:
            return commit
    return ""


def _resolve(repo: str, branch: str, commit: str | None) -> str:
    return _ask(repo, "rev-parse", "--verify", f"{commit or f'refs/heads/{branch}'}^{{commit}}")


def _held(repo: str, remote: str, branch: str) -> str:
    """The tip of the branch on the remote; empty where it has no such branch."""
    return _ask(repo, "ls-remote", remote, f"refs/heads/{branch}").partition("\t")[0]


def _contains(repo: str, remote: str, held: str, commit: str) -> bool:
    """Whether what the remote holds was built on the commit; its newer commits are fetched, no branch is moved."""
    _ask(repo, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", remote, held)
    return not _ask(repo, "rev-list", "--max-count=1", commit, f"^{held}")


def _act(repo: str, *words: str, key: str, timeout: float) -> None:
    """Let git change something; it holds the lifeline of the effect while it lives."""
    _git(repo, *words, key=key, timeout=timeout)


def _ask(repo: str, *words: str) -> str:
    """Let git tell something."""
    return _git(repo, *words, key=f"{current().key} question", timeout=_QUESTION_SECONDS).strip()


def _git(repo: str, *words: str, key: str, timeout: float) -> str:
    from perdure.tools.process import run_bounded

    if not Path(repo).is_dir():
        raise GitFailed(f"{repo} is not a folder.")
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "LC_ALL": "C"}
    ended = run_bounded(
        ["git", "-C", repo, *words],
        key=key,
        env={**os.environ, **quiet},
        timeout=timeout,
        max_bytes=_OUTPUT_BYTES,
    )
    if ended.timed_out:
        raise GitUnconfirmed(f"git {words[0]} did not end within {timeout:g} s and was killed")
    if ended.exit_code:
        raise GitFailed(f"git {words[0]} failed: {(ended.stderr.strip() or ended.stdout.strip())}")
    return ended.stdout


def _checked_text(value: object, tool: str, name: str) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise _misused(tool, f"{name}={value!r} is not a path.", "a text or a Path")
    return text


def _check_timeout(tool: str, timeout: object) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
        raise _misused(tool, f"timeout={timeout!r}.", "seconds above 0")


def _misused(tool: str, what: str, hint: str) -> UsageError:
    return UsageError(f"{tool}: {what}", safe="nothing was done in git.", hint=hint)
