"""What a campaign counted, and the faults it found, each with the seed and the one command that replays it; pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable

FaultKind = Literal[
    "missed",
    "rerun",
    "repeated",
    "extra",
    "lost",
    "arguments",
    "result",
    "values",
    "files",
    "again",
    "hung",
    "stuck",
    "unsaved",
    "robbed",
    "stale",
    "unclear",
    "damage",
    "other",
]

WORDS: Final[dict[str, str]] = {
    "missed": "the kill did not land",
    "rerun": "a completed step ran again",
    "repeated": "an effect was repeated",
    "extra": "an effect happened that does not without a kill",
    "lost": "an effect was lost",
    "arguments": "an effect was performed with other arguments",
    "result": "the result differs from the uncrashed run",
    "values": "recorded values differ from the uncrashed run",
    "files": "a file differs from the uncrashed run",
    "again": "resumed once more, it did something",
    "hung": "a process did not end in time",
    "stuck": "the run did not come to its end",
    "unsaved": "something acknowledged was not saved",
    "robbed": "a run was taken from a process that lived",
    "stale": "a process went on with a run that it no longer held",
    "unclear": "a process did not say clearly what kept it from going on",
    "damage": "damage was not named",
    "other": "a promise was broken",
}
"""What each kind of fault means."""


class Fault(Struct, frozen=True):
    """Something that must not happen, in one trial."""

    kind: Annotated[FaultKind, Meta(description="which promise was broken")]
    what: Annotated[str, Meta(description="what happened, with names and values")]
    mode: Annotated[str, Meta(description="the mode of the campaign")] = ""
    points: Annotated[tuple[str, ...], Meta(description="where the processes of the trial were killed")] = ()
    seed: Annotated[int, Meta(description="the seed of the trial")] = 0
    folder: Annotated[str, Meta(description="where the trial's store and output are kept")] = ""
    replay: Annotated[str, Meta(description="the command that replays the trial")] = ""


class Tally(Struct):
    """What one trial counted, or many together."""

    points: int = 0
    """Points of the dry run that a trial begins at."""
    judged: int = 0
    """Of those, the ones that a run came by in at least one trial."""
    trials: int = 0
    planned: int = 0
    landed: int = 0
    in_effect: int = 0
    """Kills that landed between an intent and its receipt."""
    resumed: int = 0
    rerun: int = 0
    repeated: int = 0
    lost: int = 0
    in_doubt: int = 0
    settled: int = 0
    """Doubts that were settled by asking the oracle."""
    equal: int = 0
    """Trials whose result is that of the uncrashed run, in everything that two uncrashed runs agree on."""
    not_compared: int = 0
    """Trials whose result could not be compared with it."""
    varied: int = 0
    """Of those, the ones in which the body of a step gave another value than in the uncrashed run."""
    varies: str = ""
    """A call that the uncrashed run does not make, by a process that nobody had killed before."""
    swaying: list[str] = field(default_factory=list)
    """Effects that a process performed with other arguments, though nobody had killed one before."""
    unreached: int = 0
    """Kills that were planned where the run did not come by, for a reason that is no fault."""
    files_equal: int = 0
    """Trials that left every file that is compared as the uncrashed run does."""
    unjudged: int = 0
    """Effects that were killed in the middle of their bodies, and happened as their checks say: nobody else knows."""
    again: int = 0
    """Trials that were resumed once more after their end, and did nothing."""
    slowest_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    """What a mode counts besides: bits flipped, processes frozen."""
    strays: list[str] = field(default_factory=list)
    """What the processes were started as that bodies left behind."""
    faults: list[Fault] = field(default_factory=list)

    @property
    def is_fine(self) -> bool:
        """Whether every promise was kept, and at least one kill landed."""
        return not self.faults and self.landed > 0

    @property
    def compared(self) -> int:
        """Trials whose result was compared."""
        return self.resumed - self.not_compared

    def count(self, name: str, number: int = 1) -> None:
        """Count something only this mode knows."""
        self.counts[name] = self.counts.get(name, 0) + number


def summed(tallies: Iterable[Tally]) -> Tally:
    """Many trials as one."""
    whole = Tally()
    for tally in tallies:
        for name in _ADDED:
            setattr(whole, name, getattr(whole, name) + getattr(tally, name))
        for name, number in tally.counts.items():
            whole.count(name, number)
        whole.slowest_seconds = max(whole.slowest_seconds, tally.slowest_seconds)
        whole.varies = whole.varies or tally.varies
        whole.swaying += tally.swaying
        whole.strays += tally.strays
        whole.faults += tally.faults
    return whole


def forgiven(tally: Tally) -> Tally:
    """The tally of an agent that itself varies: what was held against it by comparing is nobody's fault."""
    swaying = tuple(f"{effect} " for effect in tally.swaying)
    tally.faults = [each for each in tally.faults if each.kind != "arguments" or not each.what.startswith(swaying)]
    if not tally.varies:
        return tally
    found = Counter(fault.kind for fault in tally.faults)
    tally.faults = [fault for fault in tally.faults if fault.kind not in _BY_COMPARING]
    tally.lost = 0
    tally.repeated -= found["extra"]
    tally.planned -= found["missed"]
    tally.unreached += found["missed"]
    tally.equal, tally.not_compared = 0, tally.resumed
    return tally


_BY_COMPARING: Final = frozenset({"missed", "extra", "lost", "arguments", "result", "values", "files"})

_ADDED: Final = (
    "points",
    "trials",
    "planned",
    "landed",
    "in_effect",
    "resumed",
    "rerun",
    "repeated",
    "lost",
    "in_doubt",
    "settled",
    "equal",
    "not_compared",
    "varied",
    "unreached",
    "files_equal",
    "unjudged",
    "again",
)
