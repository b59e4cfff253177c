"""The simulation that is being played; one at a time in a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.play import Play
    from tests.simulation.process import Process
    from tests.simulation.scheduler import Scheduler

_playing: Final[list[Play]] = []


def play() -> Play:
    """The one that is played now."""
    return _playing[-1]


def scheduler() -> Scheduler:
    """Its scheduler."""
    return _playing[-1].scheduler


def process() -> Process:
    """The simulated process of whoever moves."""
    from tests.simulation.process import Process

    household = _playing[-1].scheduler.current.household
    if not isinstance(household, Process):
        raise TypeError(household.name)
    return household


def enter(entered: Play) -> None:
    """Play this one from now on."""
    _playing.append(entered)


def leave() -> None:
    """It is over."""
    _playing.pop()
