"""`http_request` against a real server that answers, refuses, hangs up, dies, and honours keys."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import tools
from perdure.errors import AttemptsExhausted, EffectInDoubt, UsageError
from tests.engine.manual_clock import ManualClock
from tests.tools.server import Handler, Reaction, Received, Server, answer, carry_out, hang_up
from tests.tools.workbench import Workbench


@perdure.agent
def order(url: str, keyed: bool = True) -> str:
    return tools.http_request("POST", f"{url}/orders", json={"b": 1, "a": [2]}, keyed=keyed).text


@perdure.agent
def look(url: str) -> tools.Response:
    return tools.http_request("GET", f"{url}/orders?limit=1", headers={"X-Trace": "1"})


def after(act: Callable[[], object], then: Reaction) -> Reaction:
    def react(handler: Handler, received: Received) -> None:
        act()
        then(handler, received)

    return react


def carried_out_but_lost(handler: Handler, received: Received) -> None:
    """Do it, and lose the answer."""
    handler.owner.ledger.setdefault(received.key, len(handler.owner.ledger) + 1)
    hang_up(handler, received)


def test_an_order_carries_the_key_of_its_effect_and_a_replay_sends_nothing(server: Server) -> None:
    assert perdure.run(order, server.url, run_id="r") == "order 1"
    assert perdure.run(order, server.url, run_id="r") == "order 1"
    assert perdure.run(order, server.url, run_id="other") == "order 2"
    assert len(server.received) == 2
    received = server.received[0]
    assert received.body == b'{"a":[2],"b":1}'
    assert received.headers["content-type"] == "application/json"
    assert len(set(server.ledger)) == 2


@pytest.mark.parametrize("lost", [answer(500), answer(503), answer(408), answer(425), hang_up, carried_out_but_lost])
def test_an_ambiguous_answer_is_followed_by_the_same_key_and_the_same_bytes(
    server: Server, manual_clock: ManualClock, lost: Reaction
) -> None:
    server.plan(lost, carry_out)
    assert perdure.run(order, server.url, run_id="r") == "order 1"
    assert len(server.received) == 2
    assert len({received.key for received in server.received}) == 1
    assert len({received.body for received in server.received}) == 1
    assert len(server.ledger) == 1
    assert len(manual_clock.slept) == 1


@pytest.mark.parametrize("status", [409, 429, 401, 404, 422])
def test_a_refusal_after_an_attempt_of_unknown_end_is_not_taken_for_a_proof(
    server: Server, manual_clock: ManualClock, status: int
) -> None:
    server.plan(carried_out_but_lost, answer(status), carry_out)
    assert perdure.run(order, server.url, run_id="r") == "order 1"
    assert len(server.received) == 3
    assert len(server.ledger) == 1


def test_a_server_that_is_gone_after_receiving_leaves_the_order_in_doubt(
    server: Server, manual_clock: ManualClock
) -> None:
    server.plan(carried_out_but_lost)
    manual_clock.on_sleep = server.stop
    with pytest.raises(EffectInDoubt, match="an earlier attempt may have been carried out"):
        perdure.run(order, server.url, run_id="r")
    assert len(server.received) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429])
def test_a_refusal_of_the_first_attempt_is_an_ordinary_failure(server: Server, status: int) -> None:
    server.plan(answer(status, b"no such thing"), answer(status, b"no such thing"), carry_out)
    for _ in range(2):
        with pytest.raises(tools.RequestRefused, match=f"{status}: no such thing") as raised:
            perdure.run(order, server.url, run_id="r")
        assert raised.value.status == status
    assert len(server.received) == 2
    assert perdure.run(order, server.url, run_id="r") == "order 1"


def test_a_connection_that_is_refused_is_an_ordinary_failure(server: Server) -> None:
    server.stop()
    with pytest.raises(tools.RequestRefused, match="could not be reached: ConnectionRefusedError"):
        perdure.run(order, server.url, run_id="r")


def test_a_name_that_does_not_exist_is_an_ordinary_failure() -> None:
    with pytest.raises(tools.RequestRefused, match=r"the name no-such-host.invalid was not found"):
        perdure.run(order, "http://no-such-host.invalid", run_id="r")


def test_tls_that_is_not_agreed_is_an_ordinary_failure(server: Server) -> None:
    with pytest.raises(tools.RequestRefused, match="could not be reached: SSL"):
        perdure.run(order, server.url.replace("http:", "https:"), run_id="r")
    assert server.received == []


def test_a_server_that_accepts_and_says_nothing_is_left_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"

        @perdure.agent
        def agent() -> str:
            return tools.http_request("POST", url, data="x", timeout=0.05, keyed=False).text

        with pytest.raises(EffectInDoubt, match=r"no answer within 0\.05 s"):
            perdure.run(agent, run_id="r")


def test_a_server_that_answers_for_ever_is_left_after_the_timeout(server: Server) -> None:
    def drip(handler: Handler, received: Received) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        gone = threading.Event()
        while not gone.wait(0.01):
            try:
                handler.wfile.write(b"x")
            except OSError:
                return

    server.plan(drip)
    with pytest.raises(tools.RequestUnconfirmed, match=r"no answer within 0\.2 s"):
        tools.http_request("POST", server.url, timeout=0.2)


def test_an_answer_that_ends_too_early_is_ambiguous(server: Server) -> None:
    def cut(handler: Handler, received: Received) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"half")
        hang_up(handler, received)

    server.plan(cut)
    with pytest.raises(tools.RequestUnconfirmed, match="IncompleteRead"):
        tools.http_request("POST", server.url)


def test_four_attempts_of_unknown_end_ask_a_person(server: Server, manual_clock: ManualClock) -> None:
    server.plan(answer(500, b"broken"))
    with pytest.raises(EffectInDoubt, match="sent 4 times under the same key"):
        perdure.run(order, server.url, run_id="r")
    assert len({received.key for received in server.received}) == 1
    server.plan(carry_out)
    assert perdure.run(order, server.url, run_id="r") == "order 1"


@pytest.mark.parametrize("lost", [answer(500), hang_up])
def test_without_keys_a_doubt_goes_to_a_person_and_nothing_is_sent_again(server: Server, lost: Reaction) -> None:
    server.plan(lost)
    for _ in range(3):
        with pytest.raises(EffectInDoubt):
            perdure.run(order, server.url, keyed=False, run_id="r")
    assert len(server.received) == 1
    assert "idempotency-key" not in server.received[0].headers


def test_reading_is_a_step_that_is_attempted_again(server: Server, manual_clock: ManualClock) -> None:
    server.plan(answer(503), hang_up, answer(200, b'{"orders":[]}', X_Trace="7"))
    for _ in range(2):
        found = perdure.run(look, server.url, run_id="r")
        assert found.json() == {"orders": []}
        assert (found.status, found.headers["x-trace"], found.is_cut) == (200, "7", False)
    assert [received.path for received in server.received] == ["/orders?limit=1"] * 3
    assert "idempotency-key" not in server.received[0].headers
    server.plan(answer(500))
    with pytest.raises(AttemptsExhausted):
        perdure.run(look, server.url, run_id="other")


def test_a_process_killed_after_the_server_received_is_resumed_with_one_effect(
    bench: Workbench, server: Server
) -> None:
    arguments = {"method": "POST", "url": f"{server.url}/orders", "data": "one"}
    killed: list[int] = []

    def kill() -> None:
        killed.append(int(bench.pid_file.read_text()))
        os.kill(killed[-1], signal.SIGKILL)

    server.plan(after(kill, carry_out), after(kill, hang_up), carry_out)
    bench.expect_killed("http_request", arguments)
    bench.expect_killed("http_request", arguments)
    assert "order 1" in bench.expect_done("http_request", arguments)
    assert len(set(killed)) == 2
    assert len(server.received) == 3
    assert len({received.key for received in server.received}) == 1
    assert len(server.ledger) == 1


def test_a_body_is_kept_up_to_its_bound(server: Server) -> None:
    server.plan(answer(200, b"x" * 5000))
    cut = tools.http_request("GET", server.url, max_bytes=100)
    assert (cut.body, cut.is_cut) == (b"x" * 100, True)
    assert not tools.http_request("GET", server.url, max_bytes=5000).is_cut
    assert tools.http_request("HEAD", server.url).body == b""


def test_a_secret_header_is_sent_and_not_recorded(server: Server, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @perdure.agent
    def agent() -> int:
        return tools.http_request("POST", server.url, headers_from_env={"Authorization": "MY_TOKEN"}).status

    with pytest.raises(UsageError, match="MY_TOKEN, which the environment does not have"):
        perdure.run(agent, run_id="r")
    monkeypatch.setenv("MY_TOKEN", "Bearer hush-hush")
    assert perdure.run(agent, run_id="r") == 201
    assert server.received[0].headers["authorization"] == "Bearer hush-hush"
    assert b"hush-hush" not in b"".join(
        path.read_bytes() for path in store.parent.glob("perdure.db*") if path.is_file()
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"method": "FETCH"}, "method='FETCH'"),
        ({"url": "ftp://host/"}, "not an http or https URL"),
        ({"url": "http://"}, "not an http or https URL"),
        ({"url": "http://host:99999/"}, "not an http or https URL"),
        ({"url": "http://host/a b"}, "not a URL"),
        ({"url": "http://user:secret@host/"}, "holds a password"),
        ({"headers": {"A": "b\r\nC: d"}}, "cannot be sent"),
        ({"headers": {"idempotency-key": "mine"}}, "set by perdure"),
        ({"json": 1, "data": "x"}, "both given"),
        ({"data": 3}, "data is a int"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"max_bytes": -1}, "max_bytes=-1"),
    ],
)
def test_a_misused_request_is_told_in_three_lines_and_nothing_is_sent(given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        tools.http_request(**{"method": "POST", "url": "http://127.0.0.1:9/", **given})
    assert len(raised.value.lines()) == 3
