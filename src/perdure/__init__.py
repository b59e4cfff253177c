"""perdure: crash recovery for AI agents, on by default.

A run is a function plus a journal. Decorate an agent, its steps and its effects; when the process dies, the same
command continues at the first step that had not completed.
"""

from __future__ import annotations

import gc
import importlib

from perdure import errors
from perdure.errors import PerdureError
from perdure.version import VERSION as __version__  # noqa: N811 - the name Python tools look for

TYPE_CHECKING = False  # as a checker knows it: `typing` takes most of the time until a command can heed a signal
if TYPE_CHECKING:
    from typing import Final

    from perdure import resources
    from perdure.engine.agent import agent, run, start
    from perdure.engine.ask import Answer, ask
    from perdure.engine.control import answer, cancel, pause, progress, restart_with, signal, unpause
    from perdure.engine.effect import Effect, effect
    from perdure.engine.handle import Handle
    from perdure.engine.mapping import Mapped
    from perdure.engine.mapping import map_items as map  # noqa: A004 - used as perdure.map
    from perdure.engine.resource import Artifact, artifact, artifacts, track
    from perdure.engine.settle import Intent, Verdict, cannot_tell, did_not_happen, happened
    from perdure.engine.signals import wait_for
    from perdure.engine.step import step
    from perdure.engine.timer import sleep, sleep_until
    from perdure.engine.values import Current, current, now, patched, random, uuid
    from perdure.engine.workdir import workdir
    from perdure.events import subscribe
    from perdure.policy import Retry
    from perdure.queues import Queue, Rate
    from perdure.schedules import Schedule
    from perdure.settings import configure

__all__ = [
    "Answer",
    "Artifact",
    "Current",
    "Effect",
    "Handle",
    "Intent",
    "Mapped",
    "PerdureError",
    "Queue",
    "Rate",
    "Retry",
    "Schedule",
    "Verdict",
    "__version__",
    "agent",
    "answer",
    "artifact",
    "artifacts",
    "ask",
    "cancel",
    "cannot_tell",
    "configure",
    "current",
    "did_not_happen",
    "effect",
    "errors",
    "happened",
    "map",
    "now",
    "patched",
    "pause",
    "progress",
    "random",
    "resources",
    "restart_with",
    "run",
    "signal",
    "sleep",
    "sleep_until",
    "start",
    "step",
    "subscribe",
    "track",
    "unpause",
    "uuid",
    "wait_for",
    "workdir",
]

_HOMES: Final = {
    "perdure.engine.agent": ("agent", "run", "start"),
    "perdure.engine.ask": ("Answer", "ask"),
    "perdure.engine.control": ("answer", "cancel", "pause", "progress", "restart_with", "signal", "unpause"),
    "perdure.engine.effect": ("Effect", "effect"),
    "perdure.engine.handle": ("Handle",),
    "perdure.engine.mapping": ("Mapped",),
    "perdure.engine.resource": ("Artifact", "artifact", "artifacts", "track"),
    "perdure.engine.settle": ("Intent", "Verdict", "cannot_tell", "did_not_happen", "happened"),
    "perdure.engine.signals": ("wait_for",),
    "perdure.engine.step": ("step",),
    "perdure.engine.timer": ("sleep", "sleep_until"),
    "perdure.engine.values": ("Current", "current", "now", "patched", "random", "uuid"),
    "perdure.engine.workdir": ("workdir",),
    "perdure.events": ("subscribe",),
    "perdure.policy": ("Retry",),
    "perdure.queues": ("Queue", "Rate"),
    "perdure.schedules": ("Schedule",),
    "perdure.settings": ("configure",),
}
"""Where the public names are defined, those apart that are there at once."""

if not TYPE_CHECKING:  # a checker sees the imports above, and must find a name that is mistyped

    def __getattr__(name: str) -> object:
        """The first name that is asked for loads them all: nothing is imported in the middle of a run.

        Commands that only look ask for none, and come without the engine.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        was_collecting = gc.isenabled()
        gc.disable()  # what is imported stays, and looking through it for garbage would take an eighth of the time
        try:
            for home, names in _HOMES.items():
                module = importlib.import_module(home)
                globals().update({each: getattr(module, each) for each in names})
            globals().update(map=importlib.import_module("perdure.engine.mapping").map_items)
        finally:
            if was_collecting:
                gc.enable()
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted(__all__)
