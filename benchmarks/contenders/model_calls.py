"""Model calls of a script, recorded and not, by the length of the conversation; the model answers in this process."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import apsw
import httpx

import perdure
from benchmarks.contenders.raw import INSERT, opened, row
from benchmarks.payload import messages
from perdure.adapters.http import httpx as recording
from perdure.adapters.script import conduct
from perdure.adapters.script.wiring import Project, conduct_of
from perdure.engine.scope import current_frame

URL = "http://127.0.0.1:9/v1/chat/completions"
KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCDEF"
"""One that no provider knows: it is looked for in all that is stored."""

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-5",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Held."}}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 9, "total_tokens": 1009},
}


def plain(*, directory: Path, length: int, calls: int) -> dict[str, float]:
    """Time the calls as they are."""
    del directory
    return {"call_ms": statistics.median(timed(length, calls))}


def recorded(*, directory: Path, length: int, calls: int) -> dict[str, float]:
    """Time the calls as `perdure run` records them."""
    perdure.configure(store=str(directory / "perdure.db"))
    recording.patch(httpx)
    found: list[float] = []

    @perdure.agent
    def script() -> None:
        frame = current_frame()
        assert frame is not None
        assert frame.active is not None
        conduct.begin(conduct_of(frame.active, Project.load(directory), strict=False))
        found.extend(timed(length, calls))
        conduct.end()

    perdure.run(script)
    return {"call_ms": statistics.median(found)}


def raw_commits(*, directory: Path, length: int, calls: int) -> dict[str, float]:
    """Time one commit of about 200 bytes."""
    del length
    connection: apsw.Connection = opened(directory, warm_up=50)
    found = []
    for seq in range(calls):
        started = time.perf_counter()
        connection.execute(INSERT, row(run=1, seq=seq))
        found.append(time.perf_counter() - started)
    connection.close()
    return {"call_ms": statistics.median(found) * 1000}


def timed(length: int, calls: int) -> list[float]:
    """The milliseconds of each call; the conversation grows by a question and an answer from call to call."""
    texts = messages(length + calls)
    said = [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts[:length])]
    found = []
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=ANSWER))
    with httpx.Client(transport=transport, headers={"authorization": f"Bearer {KEY}"}) as client:
        for text in texts[length:]:
            said.append({"role": "user", "content": text})
            body: dict[str, Any] = {"model": "gpt-5", "messages": said}
            request = client.build_request("POST", URL, json=body)
            started = time.perf_counter()
            client.send(request)
            found.append((time.perf_counter() - started) * 1000)
            said.append({"role": "assistant", "content": "The seat is held."})
    return found
