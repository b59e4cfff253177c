from __future__ import annotations

from tests.engine.conftest import manual_clock, seen, store

__all__ = ["manual_clock", "seen", "store"]
