"""perdure: crash recovery for AI agents, on by default.

A run is a function plus a journal. Decorate an agent, its steps and its effects; when the process dies, the same
command continues at the first step that had not completed.
"""

from perdure import errors, resources
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
from perdure.errors import PerdureError
from perdure.events import subscribe
from perdure.policy import Retry
from perdure.settings import configure
from perdure.version import VERSION as __version__  # noqa: N811 - the name Python tools look for

__all__ = [
    "Answer",
    "Artifact",
    "Current",
    "Effect",
    "Handle",
    "Intent",
    "Mapped",
    "PerdureError",
    "Retry",
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
