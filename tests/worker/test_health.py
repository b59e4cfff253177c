"""Health is answered at once also while there is no worker: not ready, and why."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces.conftest import Place
from tests.worker.conftest import PATIENCE, Crew

LOADS_SLOWLY = """
    pathlib.Path("loading").touch()
    while not os.path.exists("loaded"):
        time.sleep(0.01)

    @perdure.agent
    def idle() -> None:
        pass
"""


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    made = Crew(Place(tmp_path))
    yield made
    made.end()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def told(crew: Crew, event: str) -> list[dict[str, Any]]:
    return [each for each in crew.told if each["event"] == event]


def is_stopped(pid: int) -> bool:
    """Whether no thread of a process does anything any more; a signal needs a moment."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def health(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def test_health_while_the_code_is_loaded_is_not_ready_and_says_so(crew: Crew, port: int) -> None:
    crew.place.write("slow.py", LOADS_SLOWLY)
    worker = crew.worker("--health", str(port), app="slow.py")
    crew.until((crew.place.folder / "loading").exists)
    status, said = health(port)
    assert (status, said["ok"], said["why"], said["worker_id"]) == (503, False, "it loads its code", "")
    (crew.place.folder / "loaded").touch()
    crew.until(lambda: told(crew, "worker_started"))
    status, said = health(port)
    assert (status, said["ok"], said["why"]) == (200, True, "")
    assert said["worker_id"] in {each["worker_id"] for each in told(crew, "worker_started")}
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0


def test_health_after_a_reload_that_failed_is_not_ready_and_says_so(crew: Crew, port: int) -> None:
    crew.worker("--health", str(port), "--reload")
    crew.until(lambda: told(crew, "worker_started"))
    whole = (crew.place.folder / "app.py").read_text()
    (crew.place.folder / "app.py").write_text("def broken(:\n")
    crew.until(lambda: told(crew, "change_awaited"))
    status, said = health(port)
    assert (status, said["ok"]) == (503, False)
    assert said["why"] == "its code cannot be loaded; it is started anew when that has changed"
    (crew.place.folder / "app.py").write_text(whole)
    crew.until(lambda: len(told(crew, "worker_started")) == 2)
    assert health(port)[0] == 200


def test_health_in_the_pause_before_another_worker_is_not_ready_and_says_so(crew: Crew, port: int) -> None:
    worker = crew.worker("--health", str(port))
    crew.until(lambda: told(crew, "worker_started"))
    os.kill(crew.hands(worker), signal.SIGKILL)
    crew.until(lambda: len(told(crew, "worker_started")) == 2)
    second = crew.hands(worker)
    os.kill(second, signal.SIGSTOP)  # so that who asks is not answered before the second death
    crew.until(lambda: is_stopped(second))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as asking:
        asking.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        os.kill(second, signal.SIGKILL)
        answer = b"".join(iter(lambda: asking.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert json.loads(body)["why"].startswith("it died; another starts ")


def test_who_asks_and_says_nothing_keeps_neither_others_nor_the_worker_waiting(crew: Crew, port: int) -> None:
    crew.place.write("slow.py", LOADS_SLOWLY)
    worker = crew.worker("--health", str(port), app="slow.py")
    crew.until((crew.place.folder / "loading").exists)
    with socket.create_connection(("127.0.0.1", port)) as silent, socket.create_connection(("127.0.0.1", port)) as rude:
        rude.sendall(b"GET / HT")
        rude.close()
        assert health(port)[0] == 503
        (crew.place.folder / "loaded").touch()
        crew.until(lambda: told(crew, "worker_started"))
        assert health(port)[0] == 200
        assert silent.recv(1) == b""
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
