"""The outside of a campaign: what a dead process had sent counts as on its way until it has landed."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from perdure.testing.crash.oracle import Books, Outside

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0
REQUEST = b"POST /trial/life/mail HTTP/1.1\r\nContent-Length: 3\r\n\r\nada"


@pytest.fixture
def outside() -> Iterator[Outside]:
    """One that lets nobody in until it is told to."""
    with Outside(Books()) as outside:
        yield outside


def sent(outside: Outside, content: bytes) -> socket.socket:
    sender = socket.create_connection(("127.0.0.1", outside.server_port), timeout=PATIENCE)
    sender.sendall(content)
    return sender


def settled(outside: Outside) -> threading.Thread:
    """Somebody waits until nothing is on its way any more."""
    waiting = threading.Thread(target=lambda: outside.books.answer({"verb": "settle", "trial": "trial"}), daemon=True)
    waiting.start()
    return waiting


@pytest.mark.parametrize("content", [REQUEST, REQUEST[:-1], b""], ids=["whole", "cut", "nothing"])
def test_what_a_dead_sender_left_at_the_door_is_waited_for(outside: Outside, content: bytes) -> None:
    sent(outside, content).close()
    assert not outside.is_all_read()
    waiting = settled(outside)
    waiting.join(0.1)  # long enough for whoever does not wait
    assert waiting.is_alive()
    outside.handle_request()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    landed = [request.state for request in outside.books.accounts["trial"].requests]
    assert landed == (["done"] if content == REQUEST else [])


def test_a_living_process_that_keeps_its_connection_is_not_waited_for(outside: Outside) -> None:
    sender = sent(outside, REQUEST)
    outside.handle_request()
    assert sender.recv(65536)
    waiting = settled(outside)
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    sender.close()


def test_what_was_not_read_yet_is_on_its_way(outside: Outside) -> None:
    sender = sent(outside, REQUEST)
    assert not outside.is_all_read()
    outside.handle_request()
    assert sender.recv(65536)
    assert outside.is_all_read()
    sender.close()
