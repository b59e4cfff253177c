"""`PerdureDurability`: the capability by which an agent of Pydantic AI lives in a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, cast

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    conversation_id_from_run_id,
)
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset

import perdure
from perdure.adapters import calls
from perdure.adapters.calls import Declaration, Policy
from perdure.adapters.pydantic_ai import identity
from perdure.adapters.pydantic_ai.backend import METADATA_KEY, PerdureBackend, ToolPolicies
from perdure.errors import Signal, UnstorableValue, UsageError
from perdure.policy import ONCE, Retry

_SPEC: Final = DurabilityEngineSpec(
    engine_name="perdure",
    durable_unit_noun="step",
    durable_container_noun="run",
    codec=JSON_CODEC,
    serialization_failure=lambda error: UnstorableValue(
        f"The result cannot be stored: {error}", hint="return plain data, or a model of pydantic"
    ),
    wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
    unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    tool_config_key=METADATA_KEY,
    cancellation_error_types=(Signal,),
)


class PerdureDurability(BaseDurabilityCapability[AgentDepsT]):
    """Inside a run, every model request of the agent is a step, and every tool call an effect if not declared another.

    Outside a run it changes nothing. `tools` declares tools by name or pattern: "effect", "keyed", "step", "inline", or
    a dict with `kind` and the options of `perdure.effect` or `perdure.step`; a tool's own `metadata={"perdure": …}`
    counts first. `retry` repeats a model request that failed. `fixed` names fields of `deps` that tools only use, such
    as connections: all others are captured around each tool, and put back where it is not executed again. `models`,
    `event_stream_handler` and `name` are as Pydantic AI has them.
    """

    engine_spec = _SPEC

    def __init__(
        self,
        *,
        tools: Mapping[str, Declaration] | None = None,
        fixed: Collection[str] = (),
        retry: Retry = ONCE,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._tools = calls.checked_declarations(tools)
        self._fixed = frozenset(fixed)
        self._model = Policy("step", {"retry": retry})
        self._others: list[AbstractToolset[AgentDepsT]] = []

    @property
    def in_durable_context(self) -> bool:
        """Whether this is agent code of a run."""
        return calls.run_here() is not None

    def get_durable_operation_backend(self) -> DurableOperationBackend[Any]:
        """What performs the operations of this agent."""
        policies = ToolPolicies(self._tools, model=self._model)
        return PerdureBackend(agent=self.name, policies=policies, fixed=self._fixed)

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """The toolset with its calls recorded; inside a run, one that comes with a single call is refused."""
        if self.in_durable_context:
            toolset.apply(self._refuse_unknown)
        return super().get_wrapper_toolset(toolset)

    def get_default_run_id(self) -> str | None:
        """An id that a resume gives again."""
        return identity.new_run_id(self.name) if self.in_durable_context else None

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """An id that a resume gives again."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """When the run of the agent began, for its timeout: the same after a resume."""
        del run_id
        return perdure.now() if self.in_durable_context else None

    def _wrap_other_leaf_toolset(self, ts: AbstractToolset[AgentDepsT]) -> WrapperToolset[AgentDepsT] | None:
        """A toolset of the user's own class, whose calls are recorded like those of functions."""
        if _is_pydantic_ai(ts):
            return None
        self._others.append(ts)
        return self._build_function_toolset(cast("FunctionToolset[AgentDepsT]", ts))

    def _refuse_unknown(self, leaf: AbstractToolset[AgentDepsT]) -> None:
        if not _is_pydantic_ai(leaf) and all(leaf is not known for known in self._others):
            raise UsageError(
                f"The toolset {leaf.label} was not given to the agent when it was made: its calls cannot be recorded.",
                safe="nothing was sent.",
                hint="pass it to Agent(toolsets=[…]), with an id",
            )


def _is_pydantic_ai(toolset: AbstractToolset[Any]) -> bool:
    """Whether Pydantic AI itself knows how this toolset must be treated."""
    return isinstance(toolset, FunctionToolset) or type(toolset).__module__.startswith("pydantic_ai.")
