"""Workers as real processes on one store, and agents that write down what they do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import clock
from perdure.status import Commands, status_of
from perdure.store import open_store
from perdure.store.protocol import Store
from tests import warm
from tests.faces.conftest import Place
from tests.postgres import schema_url

PATIENCE = 240.0

AGENTS = '''
    import fcntl

    def log(line):
        with open("log.txt", "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line + "\\n")

    def hold(name):
        """Stay inside a step until the test lets go."""
        log(f"holding {name}")
        while not os.path.exists(f"{name}.go"):
            time.sleep(0.01)

    @perdure.step
    def work(name: str, number: int) -> int:
        log(f"begin {name} {number}")
        log(f"end {name} {number}")
        return number

    @perdure.effect
    def send(name: str) -> str:
        log(f"send {name}")
        return name

    @perdure.step
    def stay(name: str) -> str:
        hold(name)
        return name

    @perdure.agent
    def job(name: str, steps: int) -> str:
        for number in range(steps):
            work(name, number)
        return send(name)

    @perdure.agent
    def lingering(name: str) -> str:
        work(name, 0)
        stay(name)
        work(name, 1)
        return send(name)

    @perdure.step
    async def softly(name: str, number: int) -> int:
        log(f"end {name} {number}")
        return number

    @perdure.agent
    async def soft(name: str) -> int:
        return sum([await softly(name, number) for number in range(5)])

    @perdure.agent
    def asks(name: str) -> str:
        answer = perdure.ask("Go on?", options=["on", "off"]).choice
        return send(f"{name} {answer}")

    @perdure.agent
    def poison(name: str) -> None:
        log(f"poison {name}")
        os.kill(os.getpid(), signal.SIGKILL)
'''


class Crew:
    """A folder, a store, and the workers that were started on it."""

    def __init__(self, place: Place, *, more: str = "") -> None:
        self.place = place
        self.processes: list[subprocess.Popen[str]] = []
        self.told: list[dict[str, Any]] = []
        self._listeners: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._looked_at: dict[str, Store] = {}
        place.write("app.py", AGENTS + more)

    def start(self, agent: str, **arguments: object) -> str:
        """Accept a run; its id."""
        given = [f"{name}={value}" for name, value in arguments.items()]
        result = self.place.perdure("start", f"app.py:{agent}", *given, "--json")
        assert result.code == 0, result
        return str(result.json()["run_id"])

    def worker(self, *options: str, app: str = "app.py") -> subprocess.Popen[str]:
        """Start a worker; what it tells is remembered."""
        return self._started([sys.executable, "-P", "-m", "perdure", "worker", app, "--log", "json", *options])

    def hands(self, worker: subprocess.Popen[str]) -> int:
        """The process that does a worker's work: the child of the one that was started, once it works."""
        below = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
        known = {each["pid"] for each in self.place.perdure("workers", "--json").json()["workers"] if each["alive"]}
        (found,) = known & set(map(int, below.read_text().split()))
        return int(found)

    def script(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a script beside the workers; what it shows is remembered like what they tell."""
        return self._started([sys.executable, *arguments])

    def until(self, seen: Any) -> None:
        """Wait for something that the workers' lines or the log show."""
        with self._changed:
            waited = clock.elapsed_seconds() + PATIENCE
            while not seen():
                assert clock.elapsed_seconds() < waited, (self.told[-20:], self.log()[-20:])
                self._changed.wait(0.05)

    def ended(self, state: str = "completed") -> list[str]:
        """The runs that reached this state, as the workers told."""
        return [each["run_id"] for each in self.told if each["event"] == "run_ended" and each["state"] == state]

    def log(self) -> list[str]:
        return self.place.lines("log.txt")

    def let_go(self, name: str) -> None:
        (self.place.folder / f"{name}.go").touch()

    def states(self) -> dict[str, tuple[str, str]]:
        """The state of every run and its reason, read here in a store that stays open: whoever waits asks often."""
        location = self.place.environment.get("PERDURE_STORE") or str(self.place.database)
        if location not in self._looked_at:
            self._looked_at[location] = open_store(location, create=False)
        store = self._looked_at[location]
        found = {run.run_id: status_of(store, run, Commands()) for run in store.list_runs()}
        return {run_id: (status.state, status.reason) for run_id, status in found.items()}

    def unsettled(self) -> set[str]:
        """The runs that go on without anybody's doing; asked of the store, as the dead tell nothing any more."""
        return {run_id for run_id, (state, _) in self.states().items() if state in ("queued", "running")}

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL

    def end(self) -> None:
        for process, listener in zip(self.processes, self._listeners, strict=True):
            process.kill()
            listener.join(PATIENCE)
            process.__exit__(None, None, None)
        for store in self._looked_at.values():
            store.close()

    def _started(self, command: list[str]) -> subprocess.Popen[str]:
        process = warm.Popen(
            command,
            cwd=self.place.folder,
            env=self.place.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.processes.append(process)
        listener = threading.Thread(target=self._listen, args=(process,), daemon=True)
        listener.start()
        self._listeners.append(listener)
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            with self._changed:
                self.told.append(
                    {"pid": process.pid, **(json.loads(line) if line.startswith("{") else {"event": line})}
                )
                self._changed.notify_all()


on_a_server_too = pytest.mark.parametrize("location", ["sqlite", "postgres"], indirect=True)
"""For what many processes do to one store at once, and what one of them tells the others: stores differ in that. The
rest of what workers do is the same with each, and is tested on a server in the exhaustive tests."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)])
def location(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The setting that names the store; none for the file that is used where none is named."""
    if request.param == "sqlite":
        yield {}
        return
    with schema_url() as url:
        yield {"PERDURE_STORE": url}


@pytest.fixture
def crew(location: dict[str, str], tmp_path: Path) -> Iterator[Crew]:
    place = Place(tmp_path)
    place.environment |= location
    made = Crew(place)
    yield made
    made.end()
