"""Tools of Pydantic AI by a class of the user's own."""

from __future__ import annotations

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema


class Numbers(AbstractToolset[None]):
    """Tools by a class of the user's own."""

    def __init__(self) -> None:
        self.called: list[Any] = []

    @property
    def id(self) -> str:
        return "numbers"

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        schema = SchemaValidator(core_schema.dict_schema())
        double = ToolDefinition(name="double")
        return {"double": ToolsetTool(toolset=self, tool_def=double, max_retries=1, args_validator=schema)}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> int:
        self.called.append(tool_args["number"])
        return int(tool_args["number"]) * 2
