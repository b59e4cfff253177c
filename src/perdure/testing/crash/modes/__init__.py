"""The modes of a campaign: one module each, with a `plan` of trials and how one is to `play`."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from msgspec import Struct

from perdure.errors import UsageError
from perdure.testing.crash.points import Point, find_point

if TYPE_CHECKING:
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.trial import Reference, Trial

MODES: Final = {
    "every": "every",
    "random": "random",
    "during-recovery": "recovery",
    "racers": "racers",
    "zombie": "zombie",
    "disk-full": "disk_full",
    "flip": "flip",
    "power": "power",
    "kill-database": "database",
    "clock-jump": "clock_jump",
}
"""The modes as the command line names them, and the module of each."""


FAULTS: Final = {
    "zombie": ("freezes", "frozen"),
    "disk-full": ("full disks", "disk full"),
    "flip": ("damages", "killed and damaged"),
    "power": ("power cuts", "power cut"),
    "kill-database": ("server kills", "server killed"),
    "clock-jump": ("clock jumps", "clock jumped"),
}
"""What a mode plans and lands where that is no kill, and how a report says where."""


class Plan(Struct, frozen=True):
    """One trial: where its processes are killed, one after the other, and whatever else its mode wants to know."""

    mode: str
    points: tuple[Point, ...] = ()
    seed: int = 0
    details: dict[str, Any] = {}
    words: tuple[str, ...] = ()
    """What replays it besides `--at` for each point, such as ("--racers", "8"), or ("--seed", "7")."""

    @property
    def text(self) -> str:
        """The plan in a few words."""
        return " then ".join([point.text for point in self.points] or [" ".join(self.words) or self.mode])


class Mode(Protocol):
    """A module of this package."""

    NAME: str
    SUMMARY: str

    def plan(self, reference: Reference, options: Options) -> list[Plan]:
        """The trials, decided before any is played."""

    def play(self, trial: Trial, plan: Plan) -> None:
        """Play one of them; faults are reported to the trial, and an error of ours ends the campaign.

        A mode whose trials must not be played side by side, or mostly wait, says how many at once: `at_once(jobs)`. One
        that cannot be played everywhere says so in `refuse(options)`.
        """


def load_mode(name: str) -> Mode:
    """The module of a mode, loaded when it is asked for."""
    if name not in MODES:
        near = difflib.get_close_matches(name, MODES, n=1)
        raise UsageError(
            f"{name!r} is no mode of a campaign.",
            safe="nothing was started.",
            hint=f"{f'did you mean {near[0]}? ' if near else ''}one of: {', '.join(MODES)}",
        )
    return cast("Mode", importlib.import_module(f"{__name__}.{MODES[name]}"))


def fault_words(mode: str) -> tuple[str, str]:
    """What a mode plans and lands, and what was done at a point."""
    return FAULTS.get(mode, ("kills", "killed"))


def refuse_mode(name: str, options: Options) -> None:
    """Say at once, before anything is started, that a mode cannot be played here or with these options."""
    refuse = getattr(load_mode(name), "refuse", None)
    if refuse is not None:
        refuse(options)


def chosen_points(reference: Reference, options: Options) -> list[Point]:
    """The points at which trials begin: the one that `--at` names first, else all, or every so many of them."""
    if options.at:
        return [find_point(reference.points, options.at[0])]
    last = len(reference.points) - 1
    return [point for number, point in enumerate(reference.points) if number % options.sample == 0 or number == last]
