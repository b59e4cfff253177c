"""The command line from outside: real processes in a folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm

SECONDS = 60


class Result:
    """What a process left: its exit code and what it wrote."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"

    def json(self) -> Any:
        return json.loads(self.out)


class Place:
    """A folder in which commands and scripts are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        source = str(Path(__file__).parents[2] / "src")
        path = os.pathsep.join(filter(None, (source, kept.get("PYTHONPATH"))))
        self.environment = {**kept, "PYTHONPATH": path, "COLUMNS": "80"}
        self._started: list[subprocess.Popen[str]] = []

    @property
    def database(self) -> Path:
        return self.folder / ".perdure" / "perdure.db"

    def write(self, name: str, text: str) -> Path:
        """Put a script into the folder."""
        path = self.folder / name
        path.write_text("import os, pathlib, signal, sys, time\nimport perdure\n" + textwrap.dedent(text))
        return path

    def perdure(self, *arguments: str, typed: str | None = None, **environment: str) -> Result:
        """Run `perdure …` to its end."""
        return self._run(["-P", "-m", "perdure", *arguments], typed, environment)

    def python(self, *arguments: str, **environment: str) -> Result:
        """Run a script to its end."""
        return self._run(list(arguments), None, environment)

    def cold(self, *arguments: str) -> Result:
        """Run a script to its end in an interpreter that has loaded nothing of ours."""
        return Result(subprocess.run([sys.executable, *arguments], check=False, **self._options(None, {})))

    def start(self, *arguments: str, until: str = "ready", **environment: str) -> subprocess.Popen[str]:
        """Start a script, and return once it has printed a line that holds `until`."""
        process = warm.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._started.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if until in line:
                return process
        raise AssertionError(f"{arguments} ended without {until!r}: {process.communicate()}")

    def runs(self) -> list[dict[str, Any]]:
        """All runs, newest first, as `perdure ls --json` gives them."""
        listed: list[dict[str, Any]] = self.perdure("ls", "--all", "--json").json()["runs"]
        return listed

    def name(self) -> str:
        """The newest run's name."""
        return str(self.runs()[0]["name"])

    def lines(self, name: str) -> list[str]:
        """The lines of a file that agents under test append to."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()

    def _run(self, arguments: list[str], typed: str | None, environment: dict[str, str]) -> Result:
        return Result(warm.run([sys.executable, *arguments], **self._options(typed, environment)))

    def _options(self, typed: str | None, environment: dict[str, str]) -> dict[str, Any]:
        return {
            "cwd": self.folder,
            "env": {**self.environment, **environment},
            "input": typed or "",
            "capture_output": True,
            "text": True,
            "timeout": SECONDS,
        }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end()


AGENT = """
    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    @perdure.step
    def fetch(page: int) -> str:
        log(f"fetch {page}")
        return f"page {page}"

    @perdure.effect
    def send(to: str) -> str:
        log(f"send {to}")
        if os.environ.get("KILL") == "send":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"sent to {to}"

    @perdure.agent
    def report(pages: int) -> str:
        for page in range(pages):
            fetch(page)
            if os.environ.get("KILL") == str(page):
                os.kill(os.getpid(), signal.SIGKILL)
        return send("ada@example.com")

    if __name__ == "__main__":
        print("result:", perdure.run(report, int(sys.argv[1])))
"""


@pytest.fixture
def agent(place: Place) -> Place:
    """A folder with `work.py`: an agent that fetches pages, then sends one mail; KILL names where it dies."""
    place.write("work.py", AGENT)
    return place
