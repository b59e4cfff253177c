"""Many trials at once: each takes a nursery, a folder and a world of its own; one tally sums them up."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from tests.crash.nursery import Nursery
from tests.crash.outside import World
from tests.crash.trial import Reference, Tally, Trial, uninterrupted

P = TypeVar("P")
AT_ONCE: Final = 4


class Laboratory:
    """Where the campaigns of one test process take place."""

    def __init__(self, folder: Path, port: int, nurseries: list[Nursery]) -> None:
        self.folder = folder
        self.port = port
        self._nurseries: queue.SimpleQueue[Nursery] = queue.SimpleQueue()
        for nursery in nurseries:
            self._nurseries.put(nursery)
        self._numbers = itertools.count()
        self._reference: Reference | None = None

    @property
    def reference(self) -> Reference:
        """The run that nobody interrupts, made when first asked for."""
        if self._reference is None:
            nursery = self._nurseries.get()
            try:
                self._reference = uninterrupted(self.folder / "uninterrupted", nursery, self.world())
            finally:
                self._nurseries.put(nursery)
        return self._reference

    def world(self) -> World:
        """A part of the outside that nobody else uses."""
        return World(self.port, f"world-{next(self._numbers)}")

    def campaign(
        self,
        name: str,
        points: Iterable[P],
        play: Callable[[Trial, P], None],
        *,
        settings: Mapping[str, str] | None = None,
    ) -> Tally:
        """Play a trial for each point, several at once."""
        reference = self.reference

        def trial(numbered: tuple[int, P]) -> Tally:
            number, point = numbered
            nursery = self._nurseries.get()
            try:
                folder = self.folder / name.replace(" ", "-") / f"{number:04}-{point!s}".replace("/", "_")
                played = Trial(folder, nursery, self.world(), reference, settings or {})
                play(played, point)
                return played.tally
            finally:
                self._nurseries.put(nursery)

        summed = Tally(name)
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            for tally in pool.map(trial, enumerate(points)):
                summed.add(tally)
        return summed
