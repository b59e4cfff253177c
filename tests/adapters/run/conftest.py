"""Scripts that know nothing of perdure, executed by `perdure run` in real processes, against a model on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.testing.model_server import ModelServer
from tests import warm
from tests.adapters.run.trials import certificate, loaded
from tests.crash.nursery import Nursery

SECONDS = 90
SOURCE = Path(__file__).parents[3] / "src"
FRAMEWORKS = (
    *("agents", "anthropic", "langchain.agents", "langchain.tools", "langchain_openai", "langgraph.graph"),
    *("langgraph.prebuilt", "mcp", "mcp.client.stdio", "openai", "pydantic_ai", "pydantic_ai.models.openai"),
)
OURS = ("perdure: ", "   safe: ", "     do: ", "         ")


class Ended:
    """What a process left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"

    @property
    def told(self) -> list[str]:
        """The lines of ours."""
        return [line for line in self.err.splitlines() if line.startswith(OURS)]

    @property
    def own(self) -> str:
        """What the script itself wrote to standard error."""
        return "".join(line for line in self.err.splitlines(keepends=True) if not line.startswith(OURS))


class Place:
    """A folder with a script, and what happened outside."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        path = os.pathsep.join(filter(None, (str(SOURCE), kept.get("PYTHONPATH"))))
        own = {"PYTHONPATH": path, "PERDURE_DURABILITY": "process", "SSL_CERT_FILE": str(certificate(folder))}
        self.environment = {**kept, **environment, **own}

    def write(self, text: str, name: str = "agent.py") -> None:
        """Put a script into the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def run(self, *arguments: str, typed: str = "", **environment: str) -> Ended:
        """`perdure run` with these arguments, to its end."""
        return self.perdure("run", *arguments, typed=typed, **environment)

    def perdure(self, *arguments: str, typed: str = "", **environment: str) -> Ended:
        """`perdure` with these arguments, to its end; the script is a process that perdure starts."""
        return self._ended(warm.run, [sys.executable, "-P", "-m", "perdure", *arguments], typed, environment)

    def plain(self, *arguments: str, typed: str = "", **environment: str) -> Ended:
        """The script without perdure."""
        return self._ended(subprocess.run, [sys.executable, *arguments], typed, environment)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Begin a command, and return once the script has printed `ready`."""
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "ready\n", (line, process.communicate())
        return process

    def lines(self, name: str = "log.txt") -> list[str]:
        """What happened outside, in its order."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def _ended(self, run: Callable[..., Any], command: list[str], typed: str, environment: Mapping[str, str]) -> Ended:
        done = run(
            command,
            cwd=self.folder,
            env={**self.environment, **environment},
            input=typed,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def together() -> Iterator[Nursery]:
    """A process that has loaded the frameworks of the tests' own environment, one after the other takes longer."""
    with loaded(*FRAMEWORKS) as opened:
        yield opened


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, server: ModelServer) -> Place:
    return Place(tmp_path, server.environment())


@pytest.fixture
def bare(tmp_path: Path) -> Place:
    """A folder for scripts that ask no model."""
    return Place(tmp_path, {})


def killed(code: int) -> bool:
    """Whether this exit code tells of SIGKILL."""
    return code in (-signal.SIGKILL, 128 + signal.SIGKILL)
