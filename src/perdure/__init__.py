"""perdure: crash recovery for AI agents, on by default.

A run is a function plus a journal. Decorate an agent, its steps and its effects; when the process dies, the same
command continues at the first step that had not completed.
"""

from perdure import errors
from perdure.engine.agent import Handle, agent, run, start
from perdure.engine.effect import Effect, effect
from perdure.engine.settle import Intent, Verdict, cannot_tell, did_not_happen, happened
from perdure.engine.step import step
from perdure.engine.values import Current, current, now, patched, random, uuid
from perdure.errors import PerdureError
from perdure.events import subscribe
from perdure.policy import Retry
from perdure.settings import configure
from perdure.version import VERSION as __version__  # noqa: N811 - the name Python tools look for

__all__ = [
    "Current",
    "Effect",
    "Handle",
    "Intent",
    "PerdureError",
    "Retry",
    "Verdict",
    "__version__",
    "agent",
    "cannot_tell",
    "configure",
    "current",
    "did_not_happen",
    "effect",
    "errors",
    "happened",
    "now",
    "patched",
    "random",
    "run",
    "start",
    "step",
    "subscribe",
    "uuid",
]
