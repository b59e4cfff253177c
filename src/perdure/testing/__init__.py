"""For tests of agents: what the fixtures of the pytest plugin are, for annotations and for use without pytest."""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from perdure.testing.clock import ManualClock
    from perdure.testing.crashing import Campaign, Crash, CrashFailed
    from perdure.testing.outcomes import Outcomes, Script
    from perdure.testing.people import People
    from perdure.testing.stores import StoreInUse, temporary_store
    from perdure.testing.upgrade import Checked, replay_check
    from perdure.testing.verdict import Rehearsed

__all__ = [
    "Campaign",
    "Checked",
    "Crash",
    "CrashFailed",
    "ManualClock",
    "Outcomes",
    "People",
    "Rehearsed",
    "Script",
    "StoreInUse",
    "replay_check",
    "temporary_store",
]

_HOMES: Final = {
    "Campaign": "crashing",
    "Checked": "upgrade",
    "Crash": "crashing",
    "CrashFailed": "crashing",
    "ManualClock": "clock",
    "Outcomes": "outcomes",
    "People": "people",
    "Rehearsed": "verdict",
    "Script": "outcomes",
    "StoreInUse": "stores",
    "replay_check": "upgrade",
    "temporary_store": "stores",
}

if not TYPE_CHECKING:  # a checker sees the imports above

    def __getattr__(name: str) -> object:
        """Each name loads what it needs and no more: the plugin is loaded by every run of pytest."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
