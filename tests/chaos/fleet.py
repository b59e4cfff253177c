"""The campaign's workers: real `perdure worker` processes that are killed, frozen, cut off, and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LEASE: Final = {"PERDURE_LEASE_SECONDS": "3", "PERDURE_RENEW_SECONDS": "1", "PERDURE_STALL_SECONDS": "4"}
STORE_AWAY: Final = 6
"""The exit code of a worker that could not reach its store when it was started."""


@dataclass
class Post:
    """A place in the fleet, and the worker that has it now."""

    number: int
    enter: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started: int = 0
    left: list[int] = field(default_factory=list)
    """Exit codes of workers that left by themselves."""
    is_frozen: bool = False
    is_cut: bool = False
    is_draining: bool = False
    is_killed: bool = False

    @property
    def log_now(self) -> Path:
        return self.log.with_suffix(f".{self.started}.log")

    def worker_id(self) -> str:
        """The id of the worker that has this post now; empty before it has told."""
        with contextlib.suppress(OSError):
            for line in reversed(self.log_now.read_text().splitlines()):
                if '"worker_started"' in line and line.endswith("}"):
                    return str(json.loads(line)["worker_id"])
        return ""

    def first(self) -> int:
        """The process that was started first, behind what made its machine."""
        assert self.process is not None
        inside = _children_of(self.process.pid) if "unshare" in self.enter else []
        return inside[0] if inside else self.process.pid

    def innermost(self) -> int:
        """The process that executes runs: the last of those that were started one by the other."""
        assert self.process is not None
        pid = self.process.pid
        while children := _children_of(pid):
            pid = children[-1]
        return pid


class Fleet:
    """So many workers, each at its post; whoever is gone is replaced when it is looked at."""

    def __init__(self, folder: Path, environment: dict[str, str], posts: list[list[str]], *, concurrency: int) -> None:
        self._environment = environment
        self._folder = folder
        self._concurrency = concurrency
        self._is_over = False
        self.posts = [Post(number, enter, folder / f"worker{number}") for number, enter in enumerate(posts)]

    def look(self) -> None:
        """Start whoever is not there."""
        for post in self.posts:
            process = post.process
            if process is not None and process.poll() is None:
                continue
            if process is not None and not (post.is_killed or post.is_draining):
                post.left.append(process.returncode)
            self._start(post)

    def kill(self, post: Post, *, whole: bool) -> None:
        """Kill the process that executes runs, or everything at this post as when the machine goes."""
        if whole:
            post.is_killed = True
            self._signal(post, signal.SIGKILL)
            if post.process is not None:
                post.process.wait()
            post.is_frozen = False
        elif post.process is not None:
            victim = post.innermost()
            post.is_killed = victim == post.first() or not post.worker_id()
            _send(victim, signal.SIGKILL)

    def freeze(self, post: Post) -> None:
        post.is_frozen = True
        self._signal(post, signal.SIGSTOP)

    def thaw(self, post: Post) -> None:
        post.is_frozen = False
        self._signal(post, signal.SIGCONT)

    def drain(self, post: Post) -> None:
        """Ask the worker to leave, as a deploy does."""
        if post.process is not None:
            post.is_draining = True
            _send(post.first(), signal.SIGTERM)

    def wait_until_all_work(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not all(post.worker_id() for post in self.posts):
            if time.monotonic() > until:
                silent = [post.log_now.read_text()[-2000:] for post in self.posts if not post.worker_id()]
                raise AssertionError("\n".join(["workers do not start:", *silent]))
            time.sleep(0.05)

    def end(self) -> None:
        for post in self.posts:
            self._signal(post, signal.SIGKILL)
            if post.process is not None:
                post.process.wait()

    def _start(self, post: Post) -> None:
        post.started += 1
        post.is_frozen = post.is_draining = post.is_killed = False
        command = [sys.executable, "-P", "-m", "perdure", "worker", "tests.chaos.errands", "--log", "json"]
        with post.log_now.open("wb") as log:
            post.process = subprocess.Popen(
                [*post.enter, *command, "--concurrency", str(self._concurrency)],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @staticmethod
    def _signal(post: Post, number: signal.Signals) -> None:
        """Everything that was started at this post."""
        if post.process is not None and post.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(post.process.pid, number)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _children_of(pid: int) -> list[int]:
    """The children of a process, in the order in which they were started."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
