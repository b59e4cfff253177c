"""What a campaign needs to be there: a network, a server, an outside, workers, and those who talk to them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from tests.chaos import network
from tests.chaos.fleet import LEASE, Fleet
from tests.chaos.network import Network
from tests.chaos.plan import ROOT, Terms
from tests.chaos.server import PORT, Server
from tests.chaos.shape import PLACES


class Scene:
    """The processes of a campaign and where they live; all of them end with it."""

    def __init__(self, folder: Path, terms: Terms, stack: contextlib.ExitStack) -> None:
        self.folder, self._terms, self._stack = folder, terms, stack
        self.network, self.obstacle = self._networked()
        self.server = self._served()
        self.environment = self._environment_of()
        self.environment["CHAOS_OUTSIDE"] = f"{self._address}:{self._outside()}"
        self.fleet = Fleet(folder, self.environment, self._posts(), concurrency=terms.concurrency)
        stack.callback(self.fleet.end)

    @property
    def near_environment(self) -> dict[str, str]:
        """For those who meet the server's faults, but not the network's."""
        return {**self.environment, "PERDURE_STORE": f"{self.server.near_url}&{self._options}"}

    @property
    def _options(self) -> str:
        return f"portable={str(self._terms.portable).lower()}"

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A process of the campaign that meets the server's faults, but not the network's."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"tests.chaos.{name}", *arguments],
                cwd=self.folder,
                env=self.near_environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def wait_for_schema(self, accepting: subprocess.Popen[bytes]) -> None:
        """Wait until whoever accepts runs has made the tables."""
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(psycopg.Error), self.server.connected() as connection:
                connection.execute("SELECT 1 FROM perdure.runs LIMIT 1")
                return
            if time.monotonic() > until or accepting.poll() is not None:
                raise AssertionError((self.folder / "starter.log").read_text())
            time.sleep(0.1)

    def _networked(self) -> tuple[Network | None, str]:
        """A network, or why there is none."""
        if why := network.obstacle():
            return None, why
        made = Network(self._terms.workers, server_port=PORT)
        self._stack.callback(made.remove)
        return made, ""

    @property
    def _address(self) -> str:
        return network.HUB_ADDRESS if self.network is not None else "127.0.0.1"

    def _served(self) -> Server:
        folder = self.folder / "postgres"
        folder.mkdir()
        hub = self.network.enter_hub() if self.network is not None else []
        port = PORT if self.network is not None else _free_port()
        made = Server(folder, address=self._address, port=port, enter=hub, network=network.NETWORK)
        self._stack.callback(made.stop)
        made.start()
        return made

    def _environment_of(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTHONDONT"))}
        lanes = self._terms.workers * self._terms.concurrency
        pace = 0.55 * self._terms.seconds * lanes / (self._terms.runs * PLACES)
        return {
            **kept,
            **LEASE,
            "PYTHONPATH": os.pathsep.join((str(self._terms.source), str(ROOT))),
            "PERDURE_STORE": f"{self.server.url}?{self._options}",
            "PERDURE_DELIVERIES": "20",
            "CHAOS_EXECUTIONS": str(self.folder / "executions.log"),
            "CHAOS_PACE": str(pace),
            "CHAOS_DELAY": str(self._terms.delay_seconds),
        }

    def _outside(self) -> int:
        hub = self.network.enter_hub() if self.network is not None else []
        near = str(self.folder / "outside.sock")
        process = subprocess.Popen(
            [*hub, sys.executable, "-m", "tests.chaos.outside", str(self.folder / "outside.log"), self._address, near],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=self.environment,
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        assert process.stdout is not None
        return int(process.stdout.readline())

    def _posts(self) -> list[list[str]]:
        """Half of the workers share the process numbers of one machine, the others have a machine of their own."""
        if self.network is None:
            return [[] for _ in range(self._terms.workers)]
        alone = ["unshare", "--pid", "--fork", "--kill-child"]
        return [[*self.network.enter(number), *(alone if number % 2 else [])] for number in range(self._terms.workers)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
