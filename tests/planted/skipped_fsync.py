"""Bug: commits are acknowledged before they are on the device."""

from __future__ import annotations

from perdure.store.sqlite.transaction import Pen
from tests.planted.soil import replace


def never_sync(self: Pen, power: bool) -> None:
    self.connection.pragma("synchronous", "off")


replace(Pen, "sync_on_commit", never_sync)
