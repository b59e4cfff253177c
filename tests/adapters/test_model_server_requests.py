"""Everything that came in is counted, and what a dead client had in flight is told apart from what was answered."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from perdure.testing.model_server import ModelServer
from tests.adapters.asking import CHAT, GEMINI, ask, chat, question

CLIENT = """
import sys
from tests.adapters.asking import chat
url, stream, *said = sys.argv[1:]
chat(url, *said, stream=stream == "stream")
"""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


def client(model: ModelServer, *said: str, kind: str = "stream") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CLIENT, model.url, kind, *said])


def killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize("kind", ["stream", "whole"])
def test_a_request_in_flight_when_its_client_is_killed_counts_as_sent_and_not_as_answered(
    model: ModelServer, kind: str
) -> None:
    gate = model.gate()
    model.holds(gate, after=2).says(["a", "b", "c"])
    dying = client(model, "go", kind=kind)
    gate.wait()
    killed(dying)
    (request,) = model.settled()
    assert request.state == "abandoned"
    assert (model.count(), model.count("answered"), model.count("abandoned")) == (1, 0, 1)
    gate.open()
    chat(model.url, "go", stream=kind == "stream")
    assert model.repeated() == []
    assert (model.count(), model.count("answered")) == (2, 1)


def test_a_client_that_leaves_before_the_last_chunk_has_no_answer(model: ModelServer) -> None:
    gate = model.gate()
    model.holds(gate, after=5).says(["a", "b", "c"])
    address = urlsplit(model.url)
    body = json.dumps(question(CHAT, "go", stream=True)).encode()
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as leaving:
        leaving.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        leaving.sendall(body)
        gate.wait()
        while b'"c"' not in leaving.recv(65536):
            pass
    gate.open()
    assert [(request.state, request.chunks) for request in model.settled()] == [("abandoned", 5)]


def test_an_answered_request_that_is_sent_again_is_named(model: ModelServer) -> None:
    chat(model.url, "one")
    chat(model.url, "two")
    assert model.repeated() == []
    chat(model.url, "one")
    (repeated,) = model.repeated()
    assert repeated.number == 3
    assert repeated.fingerprint == model.requests[0].fingerprint
    assert "turn 0 answered" in repr(repeated)


def test_the_order_of_fields_makes_no_other_request(model: ModelServer) -> None:
    ask(model.url, CHAT, '{"model": "x", "messages": [{"role": "user", "content": "go"}]}')
    ask(model.url, CHAT, '{"messages": [{"content": "go", "role": "user"}], "model": "x"}')
    assert len(model.repeated()) == 1


def test_fields_that_differ_can_be_left_out_of_account(model: ModelServer) -> None:
    for key in ("a", "b"):
        ask(model.url, CHAT, question(CHAT, "go") | {"prompt_cache_key": key})
    assert model.repeated() == []
    assert len(model.repeated(ignoring=["prompt_cache_key"])) == 1


def test_two_equal_requests_at_once_are_no_repetition_of_an_answered_one(model: ModelServer) -> None:
    gate = model.gate()
    model.holds(gate).says("hello")
    with ThreadPoolExecutor(2) as threads:
        told = [threads.submit(chat, model.url, "go") for _ in range(2)]
        gate.wait(2)
        gate.open()
        assert {each.result(60).status for each in told} == {200}
    assert model.count("answered") == 2
    assert model.repeated() == []


def test_a_failed_request_that_is_sent_again_is_no_repetition(model: ModelServer) -> None:
    model.fails(500).says("hello")
    chat(model.url, "go")
    chat(model.url, "go")
    assert model.repeated() == []


def test_a_request_whose_client_dies_while_sending_it_is_none(model: ModelServer) -> None:
    address = urlsplit(model.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as half:
        half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    assert model.ledger.wait(lambda requests: len(requests) == 1, seconds=60)
    (request,) = model.requests
    assert (request.state, request.is_over, model.count()) == ("partial", True, 0)


def test_a_body_in_chunks_is_read(model: ModelServer) -> None:
    address = urlsplit(model.url)
    body = b'{"messages": [{"role": "user", "content": "go"}]}'
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as connection:
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        answered = b"".join(iter(lambda: connection.recv(4096), b""))
    assert b"You said: go" in answered


def test_a_request_is_noted_as_it_was_sent_without_its_keys(model: ModelServer) -> None:
    body = question(GEMINI, "go")
    ask(model.url, f"{GEMINI}?key=hush&alt=json", body, headers={"X-Goog-Api-Key": "hush", "X-Trace": "7"})
    ask(model.url, CHAT, question(CHAT, "go"), headers={"Authorization": "Bearer hush", "Cookie": "a=hush"})
    first, second = model.requests
    assert (first.number, first.method, first.body, first.dialect) == (1, "POST", body, "gemini")
    assert first.path == f"{GEMINI}?key=(hidden)&alt=json"
    assert first.headers["x-trace"] == "7"
    assert (second.number, second.headers["authorization"]) == (2, "(hidden)")
    assert "hush" not in f"{first.headers} {second.headers} {first.path}"


def test_every_request_of_many_at_once_is_counted_once(model: ModelServer) -> None:
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda number: chat(model.url, f"question {number}"), range(64)))
    assert (model.count(), model.count("answered")) == (64, 64)
    assert [request.number for request in model.requests] == list(range(1, 65))
    assert model.repeated() == []


def test_a_server_that_closes_ends_what_is_held() -> None:
    with ModelServer() as model, ThreadPoolExecutor(1) as threads:
        gate = model.gate()
        model.holds(gate, after=1).says("hello")
        told = threads.submit(chat, model.url, "go", stream=True)
        gate.wait()
        model.close()
        assert told.exception(60) is not None
    assert [request.state for request in model.requests] == ["abandoned"]
