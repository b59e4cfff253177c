"""The operations of Pydantic AI as calls of the run: a model request is a step, a tool what it was declared to be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic_ai.durable_exec import (
    JSON_CODEC,
    CallableOperationBackend,
    DurableOperationId,
    JournalOperationNamer,
    ModelCompactMessagesId,
    ModelRequestId,
    OperationConfigRole,
    ToolsetCallToolId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.exceptions import (  # noqa: F401 - by these names a recorded failure finds its class
    ContentFilterError,
    IncompleteToolCall,
    ModelAPIError,
    RunCancelled,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import ModelResponse

import perdure
from perdure.adapters import calls, state
from perdure.adapters.calls import EFFECT, STEP, Declaration, Policy
from perdure.adapters.pydantic_ai import identity
from perdure.adapters.pydantic_ai.failures import ModelFailed, as_data, as_error

if TYPE_CHECKING:
    from collections.abc import Collection

METADATA_KEY: Final = "perdure"
_RETURNED: Final = "tool_return"
_KINDS: Final = frozenset(
    {
        "approval_required",
        "call_deferred",
        "model_retry",
        "run_cancelled",
        "tool_content_result",
        "tool_failed",
        _RETURNED,
        "validation_error",
    }
)
"""The forms in which Pydantic AI records how a tool ended."""

_CHANGED: Final = "changed"


class ToolPolicies:
    """How each tool is performed, by what it says itself, by its name, or by what an MCP server says of it."""

    def __init__(self, by_name: Mapping[str, Declaration], *, model: Policy) -> None:
        self._by_name = by_name
        self._model = model

    def base(self, role: OperationConfigRole, *, operation_id: DurableOperationId) -> Policy:
        """The policy of everything that is not a certain tool: reading, which may be repeated until it is recorded."""
        del operation_id
        return self._model if role == "model" else STEP

    def for_tool(
        self, role: OperationConfigRole, *, operation_id: DurableOperationId, tool: object | None, tool_name: str
    ) -> Policy | Literal[False]:
        """The policy of a tool; False where it is called in the agent itself."""
        del role
        if isinstance(operation_id, ToolsetValidateToolArgumentsId):
            return STEP
        metadata = getattr(getattr(tool, "tool_def", None), "metadata", None) or {}
        schema = getattr(getattr(tool, "call_func", None), "__self__", None)
        policy = calls.declared_policy(
            tool_name,
            own=metadata.get(METADATA_KEY),
            by_name=self._by_name,
            function=getattr(schema, "function", None),
            annotations=metadata.get("annotations"),
        )
        return False if policy.is_inline else policy


class PerdureBackend(CallableOperationBackend[Policy]):
    """Performs each operation as one step or effect of the run around it."""

    def __init__(self, *, agent: str, policies: ToolPolicies, fixed: Collection[str]) -> None:
        super().__init__(namer=JournalOperationNamer(agent), config=policies)
        self._agent = agent
        self._fixed = fixed

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Policy | None,
    ) -> object:
        """Do this once in the run, or read what was recorded of it."""
        if isinstance(operation_id, ToolsetCallToolId):
            return await self._call_tool(operation_id, body, cache_key, config or EFFECT)
        is_model = isinstance(operation_id, (ModelRequestId, ModelCompactMessagesId))

        async def unit(**_: Any) -> Any:
            try:
                payload = await body()
            except ModelAPIError as error:
                raise as_data(error) from error
            if is_model:
                _note_usage(payload)
            return payload

        try:
            return await calls.perform(
                unit,
                name=f"{self._agent}.model" if isinstance(operation_id, ModelRequestId) else name[-200:],
                key=calls.numbered(identity.key_text(operation_id, name, cache_key, agent=self._agent)),
                arguments=identity.arguments_of(operation_id, cache_key),
                policy=config or STEP,
            )
        except ModelFailed as failed:
            raise as_error(failed) from failed

    async def _call_tool(
        self,
        operation_id: ToolsetCallToolId,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        policy: Policy,
    ) -> object:
        tool, context = str(cache_key[0]), identity.context_in(cache_key)
        deps = context.deps if context is not None else None
        watch = state.Watch(deps, active=calls.run_here(), fixed=self._fixed)

        async def unit(**_: Any) -> Any:
            watch.begin()
            return _told(await body(), watch.end())

        recorded = await calls.perform(
            unit,
            name=tool,
            key=calls.numbered(identity.key_text(operation_id, tool, cache_key, agent=self._agent)),
            arguments=identity.arguments_of(operation_id, cache_key),
            policy=policy,
        )
        if not _is_form(recorded):  # as the tool returned it, or as a person settled it
            return {"result": recorded, "kind": _RETURNED}
        watch.put_back(recorded.pop(_CHANGED, None))
        return recorded


def _told(payload: Any, changed: Any) -> Any:
    """What is recorded of a tool: what it returned, as it returned it, wherever that is all there is to say."""
    if changed is not None:
        return {**payload, _CHANGED: changed}
    is_plain = payload.keys() == {"result", "kind"} and payload["kind"] == _RETURNED
    return payload["result"] if is_plain and not _is_form(payload["result"]) else payload


def _is_form(recorded: object) -> bool:
    return isinstance(recorded, dict) and recorded.get("kind") in _KINDS


def _note_usage(payload: Any) -> None:
    """Keep what a request took with its step; a price only where one is known."""
    response: ModelResponse = JSON_CODEC.load(ModelResponse, payload)
    dollars = 0.0
    try:
        dollars = float(response.cost().total_price)
    except (AssertionError, LookupError, ValueError):
        dollars = 0.0
    perdure.current().spent(tokens=response.usage.total_tokens, dollars=dollars)
