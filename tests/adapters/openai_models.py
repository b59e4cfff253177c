"""Models of the OpenAI Agents SDK that do what a server cannot be made to do."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Lingering(Model):
    """A model whose stream has said all, and does not end yet."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner

    async def get_response(self, *given: Any, **named_: Any) -> ModelResponse:
        return await self._inner.get_response(*given, **named_)

    async def stream_response(self, *given: Any, **named_: Any) -> AsyncIterator[Any]:
        async for event in self._inner.stream_response(*given, **named_):
            yield event
        await asyncio.sleep(0.05)


class Inventive(Model):
    """A model that makes an id for each call, another one each time."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_response(self, *given: Any, **named_: Any) -> ModelResponse:
        self.asked += 1
        asked = given[1] if len(given) > 1 else named_["input"]
        if isinstance(asked, list) and len(asked) > 1:
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            message = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse(output=[message], usage=Usage(), response_id=None)
        made = [
            ResponseFunctionToolCall(
                arguments='{"number":1}', call_id=str(uuid.uuid4()), name="add", type="function_call"
            )
            for _ in range(2)
        ]
        return ModelResponse(output=[*made], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **named_: Any) -> Any:
        raise NotImplementedError
