"""Forks the processes that the campaigns kill: each is a real process, without the price of starting an interpreter.

A child leaves the serving loop and ends like any script: its uncaught exceptions meet the interpreter's own hook, and
its exit code is the interpreter's.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import perdure
from perdure.testing.crash.libraries import rehearse
from tests import warm

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """How a child ended: killed by a signal, the return code is its negative number."""

    pid: int
    returncode: int
    out: str
    err: str


class Nursery:
    """A process that has imported perdure and an agent, and forks a child for each request."""

    def __init__(self, module: str, *, python: str = sys.executable) -> None:
        self._process = warm.Popen(
            [python, "-m", "tests.crash.nursery", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )

    def run(self, folder: Path, settings: Mapping[str, str]) -> Ended:
        """Run the module's `main` in a child, in this folder, to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"folder": str(folder), "settings": dict(settings)}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, int] = json.loads(self._process.stdout.readline())
        out, err = ((folder / name).read_text() for name in ("out", "err"))
        return Ended(answer["pid"], answer["returncode"], out, err)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate("")


def environment(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: the very perdure under test, no settings but the given ones."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "CRASH_"))}
    found = [str(Path(perdure.__file__).parents[1]), str(ROOT), plain.get("PYTHONPATH", "")]
    return {**plain, "PYTHONPATH": os.pathsep.join(part for part in found if part), **(settings or {})}


def _serve() -> dict[str, Any]:
    """Fork a child for each line of standard input and report its end; returns only in a child, with its request."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        pid = os.fork()
        if not pid:
            return request
        returncode = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"pid": pid, "returncode": returncode}), flush=True)
    raise SystemExit(0)


def _settle_in(request: dict[str, Any]) -> None:
    """Make the forked process the one that was asked for: its folder, its settings, its own streams."""
    os.chdir(request["folder"])
    os.environ.update(request["settings"])
    for descriptor, name in ((0, os.devnull), (1, "out"), (2, "err")):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)


if __name__ == "__main__":
    agent = importlib.import_module(sys.argv[1])
    rehearse()
    gc.collect()
    gc.freeze()  # a child that looks through all that was loaded does little else
    _settle_in(_serve())
    agent.main()
