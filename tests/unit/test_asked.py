"""One request to end may come as several signals; only one that is made again later means at once."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from perdure import clock
from perdure.asked import ECHO_SECONDS, STOPS, Asked, Bell

if TYPE_CHECKING:
    from types import FrameType

PATIENCE = 60.0


class Hearing:
    """Signals at moments of our choice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clock, "boot_seconds", lambda: self.now)
        self.asked = Asked()

    def hear(self, number: int, *, after: float = 0.0) -> tuple[int, bool]:
        """How often it was asked by then, and whether that was once too often."""
        self.now += after
        self.asked.note(number)
        return self.asked.times, self.asked.is_impatient


@pytest.fixture
def hearing(monkeypatch: pytest.MonkeyPatch) -> Hearing:
    return Hearing(monkeypatch)


@pytest.mark.parametrize("number", STOPS)
def test_signal_to_a_process_and_to_its_group_is_one_request(hearing: Hearing, number: int) -> None:
    assert hearing.hear(number) == (1, False)
    assert hearing.hear(number) == (1, False)
    assert hearing.hear(number, after=ECHO_SECONDS * 0.9) == (1, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_again_later_is_at_once(hearing: Hearing, number: int) -> None:
    assert hearing.hear(number) == (1, False)
    assert hearing.hear(number, after=ECHO_SECONDS) == (2, True)


def test_echoes_do_not_put_off_who_keeps_asking(hearing: Hearing) -> None:
    hearing.hear(signal.SIGINT)
    assert hearing.hear(signal.SIGINT, after=ECHO_SECONDS * 0.6) == (1, False)
    assert hearing.hear(signal.SIGINT, after=ECHO_SECONDS * 0.6) == (2, True)


def test_terminal_that_goes_away_asks_in_more_ways_than_one(hearing: Hearing) -> None:
    assert hearing.hear(signal.SIGHUP) == (1, False)
    assert hearing.hear(signal.SIGTERM) == (2, False)
    assert hearing.hear(signal.SIGHUP, after=ECHO_SECONDS) == (3, False)
    assert hearing.asked.last == signal.SIGHUP


def test_bell_can_be_rung_between_any_two_lines_of_itself() -> None:
    bells = [Bell(), Bell()]
    rung: list[int] = []

    def signalled(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            sys.settrace(None)
            rung.append(frame.f_lineno)
            for bell in bells:
                bell.ring()
            sys.settrace(signalled)
        return signalled

    def use() -> None:
        sys.settrace(signalled)
        bells[0].wait(PATIENCE)
        bells[1].ring()
        sys.settrace(None)

    using = threading.Thread(target=use, daemon=True)
    using.start()
    using.join(PATIENCE)
    assert not using.is_alive()
    assert len(rung) > 3


def test_bell_wakes_who_waits_and_stays_rung() -> None:
    bell = Bell()
    assert not bell.wait(0.0)
    waiting = threading.Thread(target=bell.wait, args=(PATIENCE,), daemon=True)
    waiting.start()
    bell.ring()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    assert bell.wait(0.0)
