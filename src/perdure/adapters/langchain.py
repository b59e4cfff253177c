"""LangChain: `PerdureMiddleware` makes each model call of an agent a step of the run, and each tool call an effect.

A tool call is known by the id that the model gave it, and counted where an id comes again. A model call is known by its
place, and compared by what is asked: messages without their ids, tools, settings. What is recorded is plain data;
messages, commands and structured answers are built from it, at the first time as at every replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, messages_from_dict
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, Send
from pydantic import BaseModel, TypeAdapter

from perdure.adapters.calls import STEP, Declaration, Policy, checked_declarations, declared_policy
from perdure.adapters.performing import Named, is_recorded, own_strand, perform, perform_async
from perdure.engine.values import current
from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from langchain.agents.middleware.types import ModelRequest, ToolCallRequest
    from langchain_core.tools import BaseTool

_MESSAGE: Final = "langchain message"
_COMMAND: Final = "langchain command"
_SEND: Final = "langchain send"


class PerdureMiddleware(AgentMiddleware[Any, Any, Any]):
    """Records model and tool calls of an agent that is invoked inside a `@perdure.agent`; outside, it does nothing.

    Put it last, so that retries and fallbacks of other middleware are recorded one by one. `tools` says what tools are,
    by name or pattern: `{"search_*": "step"}` may run again after a crash, `{"colleague": "inline"}` only calls others.
    """

    def __init__(self, *, tools: Mapping[str, Declaration] | None = None) -> None:
        super().__init__()
        self._declared = checked_declarations(tools)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Ask the model, or give what it answered before."""
        if not is_recorded():
            return handler(request)

        def act() -> Any:
            return _answered(handler(request))

        with own_strand():
            return _answer(perform(act, _asked(request), policy=STEP), request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """The same, awaited."""
        if not is_recorded():
            return await handler(request)

        async def act() -> Any:
            return _answered(await handler(request))

        return _answer(await perform_async(act, _asked(request), policy=STEP), request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Perform the tool once, or give what it gave before."""
        policy = self._policy_of(request)
        if policy.is_inline or not is_recorded():
            with own_strand():
                return handler(request)

        def act() -> Any:
            try:
                return _told(handler(request), request)
            except GraphBubbleUp as raised:
                raise _interrupted(request) from raised

        with own_strand():
            return _result(perform(act, _called(request), policy=policy), request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """The same, awaited."""
        policy = self._policy_of(request)
        if policy.is_inline or not is_recorded():
            return await handler(request)

        async def act() -> Any:
            try:
                return _told(await handler(request), request)
            except GraphBubbleUp as raised:
                raise _interrupted(request) from raised

        return _result(await perform_async(act, _called(request), policy=policy), request)

    def _policy_of(self, request: ToolCallRequest) -> Policy:
        function = next(iter(_functions(request.tool)), None)
        return declared_policy(request.tool_call["name"], by_name=self._declared, function=function)


def _asked(request: ModelRequest[Any]) -> Named:
    """A model call. Ids of messages are left out: those that nobody gave are made anew in every process."""
    model = request.model
    name = getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__
    opening = [request.system_message] if request.system_message is not None else []
    options = {
        "tools": [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools],
        "tool_choice": _described(request.tool_choice),
        "settings": _described(request.model_settings),
        "response_format": _described(_schema(request)),
    }
    messages = [_message(message, without_id=True) for message in [*opening, *request.messages]]
    return Named(f"model {name}", {"messages": messages, "options": options}, sources=(model,))


def _called(request: ToolCallRequest) -> Named:
    call, tool = request.tool_call, request.tool
    return Named(call["name"], dict(call["args"]), identity=call["id"] or "-", sources=(tool, *_functions(tool)))


def _functions(tool: BaseTool | None) -> list[Any]:
    return [found for word in ("func", "coroutine") if (found := getattr(tool, word, None)) is not None]


def _answered(response: Any) -> Any:
    """What a model answered, as it is stored; and what it took."""
    if isinstance(response, ExtendedModelResponse):
        if response.command is not None:
            raise UsageError(
                "A middleware behind PerdureMiddleware gave a command with the model's answer.",
                safe="nothing was recorded of it.",
                hint="put PerdureMiddleware last in the list",
            )
        response = response.model_response
    if isinstance(response, AIMessage):
        response = ModelResponse(result=[response])
    used = [message.usage_metadata for message in response.result if isinstance(message, AIMessage)]
    current().spent(tokens=sum(each["total_tokens"] for each in used if each is not None))
    structured = response.structured_response
    if structured is not None:
        structured = TypeAdapter(type(structured)).dump_python(structured, mode="json")
    return {"messages": [_stored(message) for message in response.result], "structured": structured}


def _answer(stored: Any, request: ModelRequest[Any]) -> ModelResponse[Any]:
    structured, schema = stored["structured"], _schema(request)
    if structured is not None and schema is not None and not isinstance(schema, dict):
        structured = TypeAdapter(schema).validate_python(structured)
    return ModelResponse(result=[_rebuilt(each) for each in stored["messages"]], structured_response=structured)


def _schema(request: ModelRequest[Any]) -> Any:
    """What a structured answer is to be like."""
    return getattr(request.response_format, "schema", request.response_format)


def _told(result: Any, request: ToolCallRequest) -> Any:
    """What a tool gave, as it is stored: the text alone where there is nothing else to it."""
    if isinstance(result, ToolMessage) and _is_plain(result, request):
        return result.content
    return _stored(result)


def _is_plain(message: ToolMessage, request: ToolCallRequest) -> bool:
    bare = ToolMessage(message.text, name=request.tool_call["name"], tool_call_id=request.tool_call["id"] or "")
    return isinstance(message.content, str) and message.model_copy(update={"id": None}) == bare


def _result(stored: Any, request: ToolCallRequest) -> ToolMessage | Command[Any]:
    """What the tool gave; a person who settles a call may give its text, or data, alone."""
    rebuilt = _rebuilt(stored)
    parts = rebuilt if isinstance(rebuilt, list) and rebuilt else [rebuilt]  # a tool may give several of these
    if all(isinstance(part, (ToolMessage, Command)) for part in parts):
        return cast("ToolMessage", rebuilt)
    content = rebuilt if isinstance(rebuilt, str) else TypeAdapter(Any).dump_json(rebuilt).decode()
    return ToolMessage(content, name=request.tool_call["name"], tool_call_id=request.tool_call["id"] or "")


def _stored(value: Any) -> Any:
    """A value as plain data; what is none stays as it is, and the codec refuses it by name."""
    if isinstance(value, BaseMessage):
        return {_MESSAGE: _message(value)}
    if isinstance(value, Command):
        parts = {"graph": value.graph, "update": value.update, "resume": value.resume, "goto": value.goto}
        return {_COMMAND: {name: _stored(part) for name, part in parts.items()}}
    if isinstance(value, Send):
        return {_SEND: [value.node, _stored(value.arg)]}
    if isinstance(value, dict):
        return {name: _stored(each) for name, each in value.items()}
    return [_stored(each) for each in value] if isinstance(value, (list, tuple)) else value


def _rebuilt(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_rebuilt(each) for each in stored]
    if not isinstance(stored, dict):
        return stored
    if _MESSAGE in stored:
        return messages_from_dict([stored[_MESSAGE]])[0]
    if _COMMAND in stored:
        return Command(**{name: _rebuilt(part) for name, part in stored[_COMMAND].items()})
    if _SEND in stored:
        node, argument = stored[_SEND]
        return Send(node, _rebuilt(argument))
    return {name: _rebuilt(each) for name, each in stored.items()}


def _message(message: BaseMessage, *, without_id: bool = False) -> dict[str, Any]:
    """A message as data; where that is not possible, with the parts as they are."""
    try:
        data = message.model_dump(mode="json")
    except ValueError:
        data = message.model_dump()
    if without_id:
        data.pop("id", None)
    return {"type": message.type, "data": data}


def _described(value: Any) -> Any:
    """A setting by what it is: data as data, a class by its schema."""
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    if isinstance(value, dict):
        return {name: _described(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_described(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else getattr(value, "__name__", "")


def _interrupted(request: ToolCallRequest) -> UsageError:
    name = request.tool_call["name"]
    return UsageError(
        f"The tool {name} interrupts its graph, and a tool that is recorded as one call cannot.",
        safe="nothing was recorded of it but that.",
        hint=f'PerdureMiddleware(tools={{"{name}": "inline"}}), or perdure.ask() in the place of interrupt()',
    )
