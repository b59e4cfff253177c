"""`run_command`: a program started once, bounded in time and output, whose orphan is noticed after a crash."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure import clock
from perdure.engine.effect import effect
from perdure.engine.settle import Intent, Verdict, cannot_tell, did_not_happen, happened
from perdure.engine.values import current
from perdure.errors import UsageError

DEFAULT_OUTPUT_BYTES: Final = 64 * 1024
ORPHAN_SECONDS: Final = 30.0
"""How long a resume waits for the orphan of a command that has no timeout before it asks a person."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended. A negative exit code is the signal that killed it; `was_done` says that it did not run."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    was_done: bool = False


def run_command(
    args: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    input: str | bytes | None = None,  # noqa: A002 - the name subprocess.run uses
    creates: str | os.PathLike[str] | None = None,
    max_bytes: int = DEFAULT_OUTPUT_BYTES,
) -> Finished:
    """Run a program and return its exit code and output.

    `args` is the program and its arguments, without a shell. `env` is added to the environment. `input` is given on
    standard input. After `timeout` seconds the program and all of its process group are killed, which the result says.
    Of each output `max_bytes` are kept, half from the beginning and half from the end. `creates` names a file or folder
    that shows the work is done: where it exists, the program is not run.

    Guaranteed: the program is not started a second time while anything of the first still runs, nor while nobody
    knows how the first ended. After a crash the resume waits for the orphan to end (until its timeout, else for 30
    seconds). Then, with `creates`, the path decides: where it is there, the work is done; else the program runs
    again. Without `creates` a person decides.

    Not guaranteed: what a killed program had done stands. `creates` is only as good as the program: it should appear
    last and whole. An orphan is noticed on the same machine and with the same TMPDIR, if it keeps the files open that
    it was started with, as programs do unless they make themselves a daemon.
    """
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence) or not args:
        raise _misused(f"args={args!r} is no list of words.", "run_command(['ls', '-l'])")
    words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in args]
    if not all(isinstance(word, str) and "\0" not in word for word in words) or not words[0]:
        raise _misused(f"args={args!r} is no list of texts.", "turn numbers into text: str(3)")
    if timeout is not None and not _is_positive(timeout):
        raise _misused(f"timeout={timeout!r}.", "seconds above 0, or None")
    if type(max_bytes) is not int or max_bytes < 0:
        raise _misused(f"max_bytes={max_bytes!r}.", "a number of bytes")
    if input is not None and not isinstance(input, (str, bytes)):
        raise _misused(f"input is a {type(input).__name__}.", "text or bytes")
    _check_environment(env or {})
    return _run_command(
        words,
        cwd=_as_text(cwd, "cwd"),
        env=dict(env or {}),
        timeout=timeout,
        input=input,
        creates=_as_text(creates, "creates"),
        max_bytes=max_bytes,
    )


@effect(name="run_command", in_flight_seconds=0, certain=(OSError, UsageError))
def _run_command(
    args: list[str],
    *,
    cwd: str | None,
    env: dict[str, str],
    timeout: float | None,
    input: str | bytes | None,  # noqa: A002
    creates: str | None,
    max_bytes: int,
) -> Finished:
    from perdure.tools.process import run_bounded

    if creates is not None and _exists(creates, cwd):
        return _done_already()
    outcome = run_bounded(
        args,
        key=current().key,
        cwd=cwd,
        env={**os.environ, **env},
        timeout=timeout,
        given=input.encode() if isinstance(input, str) else input or b"",
        max_bytes=max_bytes,
    )
    return Finished(outcome.exit_code, outcome.stdout, outcome.stderr, timed_out=outcome.timed_out)


@_run_command.check
def _has_run(intent: Intent) -> Verdict:
    from perdure.tools.process import living

    timeout, creates = intent.arguments["timeout"], intent.arguments["creates"]
    age = max(0.0, clock.wall_seconds() - intent.at.timestamp())
    alive = living(intent.key, seconds=ORPHAN_SECONDS if timeout is None else max(0.0, timeout - age))
    if alive:
        return cannot_tell(f"it still runs ({alive}); resume when it has ended")
    if creates is None:
        return cannot_tell("nothing of it runs any more, and nobody saw how it ended")
    return happened(_done_already()) if _exists(creates, intent.arguments["cwd"]) else did_not_happen()


def _done_already() -> Finished:
    return Finished(0, "", "", was_done=True)


def _exists(creates: str, cwd: str | None) -> bool:
    return os.path.lexists(Path(cwd or ".", creates))


def _check_environment(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        usable = isinstance(name, str) and isinstance(value, str) and bool(name)
        if not usable or "=" in name or "\0" in name + value:
            raise _misused(f"env has {name!r}, which no environment can hold.", "names and values are texts")


def _as_text(path: object, name: str) -> str | None:
    if path is None:
        return None
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise _misused(f"{name}={path!r} is not a path.", "a text or a Path")
    return text


def _is_positive(seconds: object) -> bool:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return False
    return math.isfinite(seconds) and seconds > 0


def _misused(what: str, hint: str) -> UsageError:
    return UsageError(f"run_command: {what}", safe="nothing was started.", hint=hint)
