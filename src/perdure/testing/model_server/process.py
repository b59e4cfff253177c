"""A model server in a process of its own, for tests in whose process the agent runs, and dies."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from perdure import typed
from perdure.errors import UsageError
from perdure.testing.model_server.control import PREFIX
from perdure.testing.model_server.gate import PATIENCE_SECONDS
from perdure.testing.model_server.ledger import Readings, Request
from perdure.testing.model_server.server import environment_of

_MODULE: Final = "perdure.testing.model_server"
_MARGIN_SECONDS: Final = 10.0


class ModelProcess(Readings):
    """The same readings as of a `ModelServer`; what it says is written in a file with `def script(model)`.

    The process ends with the one that started it, however that dies.
    """

    def __init__(self, script: str | Path | None = None, *, fresh_ids: bool = False) -> None:
        self._options = ["--until-stdin-closes"]
        self._options += ["--script", str(script)] if script is not None else []
        self._options += ["--fresh-ids"] if fresh_ids else []
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> Self:
        """Start it, and wait until it listens."""
        self._process = subprocess.Popen(  # noqa: S603 - this Python, this package
            [sys.executable, "-m", _MODULE, *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            _, said = self._process.communicate()
            raise UsageError(
                f"The model server did not start: {said.strip()}",
                safe="nothing was started.",
                hint=f"try it by hand: python -m {_MODULE} {' '.join(self._options[1:])}",
            )
        return self

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._process.communicate(timeout=_MARGIN_SECONDS)
            self._process.kill()
            self._process.wait()

    @property
    def openai_url(self) -> str:
        """The base address for OpenAI."""
        return f"{self.url}/v1"

    def environment(self) -> dict[str, str]:
        """The variables by which the SDKs find it."""
        return environment_of(self.url)

    @property
    def requests(self) -> list[Request]:
        return typed.convert(self._ask("GET", "requests"), list[Request])

    def settled(self, *, seconds: float = PATIENCE_SECONDS) -> list[Request]:
        """Wait until nothing is in flight; every request."""
        return typed.convert(self._ask("GET", "settled", seconds=seconds), list[Request])

    def gate(self, name: str = "gate") -> DistantGate:
        """The gate of this name in its script."""
        return DistantGate(self, name)

    def ask_gate(self, method: str, name: str, **given: float) -> int:
        """Ask or open a gate; how many answers have come to stand there."""
        return int(self._ask(method, f"gates/{quote(name, safe='')}", **given)["reached"])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, what: str, **given: float) -> Any:
        patience = given.get("seconds", 0.0) + _MARGIN_SECONDS
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=patience)
        with contextlib.closing(connection):
            connection.request(method, f"{PREFIX}{what}?{urlencode(given)}")
            response = connection.getresponse()
            told = msgspec.json.decode(response.read())
        if response.status != http.client.OK:
            raise UsageError(told["message"], safe=told["safe"], hint=told["hint"])
        return told


class DistantGate:
    """A gate in another process, with the verbs of a `Gate`."""

    def __init__(self, process: ModelProcess, name: str) -> None:
        self._process = process
        self.name = name

    @property
    def reached(self) -> int:
        """How many answers have come to stand there."""
        return self._process.ask_gate("GET", self.name)

    def open(self) -> None:
        """Let everything go on."""
        self._process.ask_gate("POST", self.name)

    def wait(self, count: int = 1, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until so many answers stand, or have stood, there."""
        self._process.ask_gate("GET", self.name, count=count, seconds=seconds)
