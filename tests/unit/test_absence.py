"""A store that is missed: said once, then ever more rarely, and once when it is over; it is left alone ever longer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from perdure import clock, events
from perdure.worker.absence import (
    FIRST_PAUSE_SECONDS,
    FIRST_SILENCE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    LONGEST_SILENCE_SECONDS,
    Absence,
)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock's hand."""
    hand = [1000.0]
    monkeypatch.setattr(clock, "boot_seconds", lambda: hand[0])
    monkeypatch.setattr(clock, "new_fraction", lambda: 1.0)
    return hand


@pytest.fixture
def told() -> Iterator[list[events.Observable]]:
    """What was said."""
    heard: list[events.Observable] = []
    end = events.subscribe(heard.append, events.StoreMissed, events.StoreFound)
    yield heard
    end()


def test_absence_is_said_once_and_then_after_ever_longer_silences(
    now: list[float], told: list[events.Observable]
) -> None:
    absence = Absence()
    times = []
    for _ in range(4 * 3600):
        before = len(told)
        absence.begin("w", "away")
        times += [now[0]] * (len(told) - before)
        now[0] += 0.25
    silences = [after - before for before, after in itertools.pairwise(times)]
    assert silences[:4] == [FIRST_SILENCE_SECONDS * 2**number for number in range(4)]
    assert silences == sorted(silences)
    assert silences[-1] == LONGEST_SILENCE_SECONDS
    assert told[1] == events.StoreMissed("w", "away", FIRST_SILENCE_SECONDS)


def test_end_of_an_absence_is_said_once_and_the_next_begins_anew(
    now: list[float], told: list[events.Observable]
) -> None:
    absence = Absence()
    for _ in range(2):
        told.clear()
        for _ in range(3):
            absence.begin("w", "away")
            now[0] += 0.25
        for _ in range(3):
            absence.end("w")
        assert told == [events.StoreMissed("w", "away", 0.0), events.StoreFound("w", 0.75)]


def test_store_that_is_missed_is_left_alone_for_ever_longer(now: list[float]) -> None:
    absence = Absence()
    assert absence.pause_seconds == 0.0
    pauses = []
    for _ in range(8):
        absence.begin("w", "away")
        now[0] += absence.pause_seconds
        pauses.append(absence.pause_seconds)
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    absence.end("w")
    assert absence.pause_seconds == 0.0
