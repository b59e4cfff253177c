"""The model server as a process of its own: the count is kept where no death of an agent reaches it."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from perdure.errors import UsageError
from perdure.testing.model_server import ModelProcess
from tests.adapters.asking import CHAT, chat, spoken

SCRIPT = """
def script(model):
    model.calls("search", q="x")
    model.holds(model.gate("slow"), after=1).says("done")
    model.when(containing="weather").says("sunny")
"""
COMMAND = [sys.executable, "-m", "perdure.testing.model_server"]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def model(script: Path) -> Iterator[ModelProcess]:
    with ModelProcess(script) as serving:
        yield serving


def test_a_process_says_what_its_script_says_and_tells_what_it_was_asked(model: ModelProcess) -> None:
    assert chat(model.url, "go").json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "search"
    assert spoken(CHAT, chat(model.url, "the weather?")) == "sunny"
    chat(model.url, "the weather?")
    assert (model.count(), model.count("answered"), model.unexpected) == (3, 3, [])
    assert [request.number for request in model.repeated()] == [3]
    assert model.requests[0].body == {"model": "x", "messages": [{"role": "user", "content": "go"}]}


def test_a_gate_in_the_process_is_waited_at_and_opened_from_here(model: ModelProcess) -> None:
    gate = model.gate("slow")
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(chat, model.url, "go", "called", "and?", stream=True)
        gate.wait()
        assert (gate.reached, model.count("in flight")) == (1, 1)
        gate.open()
        assert told.result(60).events[-1] == "[DONE]"
    assert [request.state for request in model.settled()] == ["answered"]


def test_a_gate_that_the_script_does_not_have_is_refused(model: ModelProcess) -> None:
    with pytest.raises(UsageError) as refused:
        model.gate("other").open()
    assert "gates/other" in refused.value.message


def test_a_gate_that_nobody_comes_to_is_an_error_here(model: ModelProcess) -> None:
    with pytest.raises(UsageError) as refused:
        model.gate("slow").wait(seconds=0.01)
    assert "No answer came" in refused.value.message


def test_the_process_ends_with_whoever_started_it(script: Path) -> None:
    starter = f"""
from perdure.testing.model_server import ModelProcess
with ModelProcess({str(script)!r}) as model:
    print(model.url, flush=True)
    input()
"""
    command = [sys.executable, "-c", starter]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        address = urlsplit(started.stdout.readline().strip())
        with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
            started.kill()
            with contextlib.suppress(ConnectionResetError):  # one of the two that only the end of the server brings
                assert connection.recv(1) == b""


def test_the_command_prints_its_address_and_ends_well_when_told_to(script: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--port", "0", "--script", str(script)], stdout=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout is not None
        url = serving.stdout.readline().strip()
        assert spoken(CHAT, chat(url, "the weather?")) == "sunny"
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(60) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("nothing = 1", "has no function `script`"),
        ("def script(model): model.sings()", "raised AttributeError"),
    ],
)
def test_a_script_that_cannot_be_used_is_named_with_a_hint(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "wrong.py"
    if text is not None:
        path.write_text(text)
    done = subprocess.run([*COMMAND, "--script", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "do: write a Python file" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(UsageError) as refused:
        ModelProcess(path).start()
    assert said in refused.value.message
