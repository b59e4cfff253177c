"""MCP: `protected(session)` makes each tool call of a client session an effect of the run, or a step where it may be.

The protocol gives a tool call no id, so a call is known by its place in the agent, as any other effect is. What a crash
means is read from the tool's annotations: `readOnlyHint` and `idempotentHint` make it a step. They are hints, and those
of a server that is not trusted can be left unread.
"""

from __future__ import annotations

import inspect
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, cast

import mcp
import msgspec
from mcp import types
from mcp.shared import exceptions

from perdure.adapters.calls import Declaration, Policy, checked_declarations, declared_policy, matches
from perdure.adapters.performing import Named, is_recorded, perform_async, release_servants
from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp import ClientSession

_KNOWN_MAJORS: Final = ("1", "2")
_REFUSALS: Final = frozenset({-32700, -32600, -32601, -32602})
"""Not read, no request, no such method, no such parameters: the tool did not begin."""


def protected(
    session: ClientSession,
    *,
    server: str = "",
    tools: Mapping[str, Declaration] | None = None,
    trust_annotations: bool = True,
) -> ClientSession:
    """The session, with a `call_tool` that is recorded in a run; everything else is passed through.

    `server` names it in the journal, where it does not name itself. `tools` says what tools are, by name or pattern
    (`{"search_*": "step"}`), and counts for more than what the server says, which `trust_annotations=False` ignores.
    """
    _refuse_unknown(session)
    given = checked_declarations(tools)
    return cast("ClientSession", Protected(session, server=server, given=given, trusted=trust_annotations))


class Protected:
    """Stands before a session; `mcp.Client` will do as well."""

    def __init__(self, session: Any, *, server: str, given: dict[str, Declaration], trusted: bool) -> None:
        self._session = session
        self._server = server
        self._declared = given
        self._trusted = trusted
        self._annotations: dict[str, dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # what asks for a session finds one
        return type(self._session)

    async def __aenter__(self) -> Any:
        await self._session.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> Any:
        return await self._session.__aexit__(*raised)

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None, *rest: Any, **options: Any) -> Any:
        """Call a tool once, whatever dies in between; or again until its result is recorded, where it is a step."""
        if not is_recorded():
            return await self._session.call_tool(name, arguments, *rest, **options)
        if options.get("allow_claimed"):
            raise UsageError(
                f"The result of {name} may be of a kind that only an extension knows (allow_claimed=True).",
                safe="nothing was performed.",
                hint="call such a tool on the session itself, inside a @perdure.effect of your own",
            )

        async def act() -> Any:
            return await _answered(self._session.call_tool(name, arguments, *rest, **options))

        named = Named(
            name=f"{self._own_name()}{name}",
            arguments=_arguments(arguments, options),
            sources=(self._session, _error_class()),
        )
        policy = await self._policy_of(name)
        if policy.is_inline:
            return await self._session.call_tool(name, arguments, *rest, **options)
        release_servants(mcp)
        return _result(await perform_async(act, named, policy=policy))

    async def list_tools(self, *rest: Any, **options: Any) -> Any:
        """What the session says; and what it says of each tool is remembered."""
        listed = await self._session.list_tools(*rest, **options)
        self._annotations.update({tool.name: _plain(tool.annotations) or {} for tool in listed.tools})
        return listed

    async def _policy_of(self, tool: str) -> Policy:
        is_declared = any(matches(tool, pattern) for pattern in self._declared)
        if self._trusted and not is_declared and tool not in self._annotations:
            await self._list_every_tool()
        said = self._annotations.get(tool) if self._trusted else None
        return declared_policy(tool, by_name=self._declared, annotations=said)

    async def _list_every_tool(self) -> None:
        listed = await self.list_tools()
        while cursor := _cursor(listed):
            listed = await self.list_tools(**_from(cursor, self._session))

    def _own_name(self) -> str:
        """Two servers may have tools of one name."""
        info = getattr(self._session, "server_info", None)
        name = self._server or getattr(info, "name", "")
        return f"{name}." if name else ""


def _cursor(listed: Any) -> Any:
    """Where the next page of a list begins; version 1 has another name for it, and one may warn of the other's."""
    return listed.next_cursor if hasattr(listed, "next_cursor") else getattr(listed, "nextCursor", None)


def _arguments(arguments: dict[str, Any] | None, options: dict[str, Any]) -> dict[str, Any]:
    """What makes a call another one; how long it is waited for does not."""
    rounds = {name: options[name] for name in ("input_responses", "request_state") if options.get(name) is not None}
    given = dict(arguments or {})
    return {"arguments": given, "round": _plain(rounds)} if rounds else given


async def _answered(answer: Any) -> Any:
    """A result as it is stored; so is a refusal, after which nothing can have happened."""
    try:
        return _plain(await answer)
    except _error_class() as refused:
        if refused.error.code not in _REFUSALS:
            raise
        return {"refused": _plain(refused.error)}


def _result(stored: Any) -> Any:
    """What the session gave; a person who settles a call may give its text or its data alone."""
    if not isinstance(stored, dict) or not {"content", "refused", "resultType"} & {*stored}:
        text = stored if isinstance(stored, str) else msgspec.json.encode(stored).decode()
        told = types.TextContent(type="text", text=text)
        return types.CallToolResult.model_validate({"content": [told], "structuredContent": _structured(stored)})
    if "refused" in stored:
        raise _error_of(types.ErrorData.model_validate(stored["refused"]))
    if stored.get("resultType") == "input_required":
        return types.InputRequiredResult.model_validate(stored)
    return types.CallToolResult.model_validate(stored)


def _structured(stored: Any) -> Any:
    return stored if isinstance(stored, dict) else None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", by_alias=True, exclude_none=True)


def _from(cursor: str, session: Any) -> dict[str, Any]:
    """How the next page is asked for, which differs from release to release."""
    if "params" not in inspect.signature(session.list_tools).parameters:
        return {"cursor": cursor}
    return {"params": types.PaginatedRequestParams(cursor=cursor)}


def _error_class() -> Any:
    return getattr(exceptions, "MCPError", None) or getattr(exceptions, "McpError")  # noqa: B009 - of mcp 1


def _error_of(data: Any) -> Exception:
    kind = _error_class()
    made: Exception = kind.from_error_data(data) if hasattr(kind, "from_error_data") else kind(data)
    return made


def _refuse_unknown(session: Any) -> None:
    """A session that is called in another way than we do it would be unprotected without a word."""
    version = metadata.version("mcp")
    call_tool = getattr(session, "call_tool", None)
    names = [*inspect.signature(call_tool).parameters][:2] if callable(call_tool) else []
    if version.split(".")[0] not in _KNOWN_MAJORS or names != ["name", "arguments"]:
        raise UsageError(
            f"protected() does not know {type(session).__name__} of mcp {version}.",
            safe="nothing was performed.",
            hint="give it a ClientSession or a Client of mcp 1 or 2: pip install 'perdure[mcp]'",
        )
