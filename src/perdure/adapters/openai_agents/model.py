"""Models of the SDK whose requests are steps of the run: each is sent once, and answered from its record after that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import openai
from agents.models.interface import Model, ModelProvider

import perdure
from perdure.adapters import calls
from perdure.adapters.calls import STEP
from perdure.adapters.openai_agents import journaling as here
from perdure.adapters.openai_agents import records
from perdure.adapters.openai_agents.failures import ModelFailed, as_data, as_error

if TYPE_CHECKING:
    from agents.items import ModelResponse

    from perdure.adapters.openai_agents.journaling import Journaling

_END: Final = object()


class JournaledModel(Model):
    """A model whose requests are steps inside a `run`; elsewhere it is the model itself."""

    def __init__(self, inner: Model, *, name: str | None = None) -> None:
        self._inner = inner
        self._name = name or str(getattr(inner, "model", None) or type(inner).__name__)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a model of this kind has."""
        if name.startswith("__") or name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    async def close(self) -> None:
        """Release what the model holds."""
        await self._inner.close()

    def get_retry_advice(self, request: Any) -> Any:
        """What the model itself says of a failed request."""
        return self._inner.get_retry_advice(request)

    async def get_response(  # noqa: PLR0917 - as the SDK has it
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 - as the SDK names it
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **more: Any,
    ) -> ModelResponse:
        """One request, or the record of its answer."""
        given = (system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        journaling = here.journaling_here()
        if journaling is None:
            return await self._inner.get_response(*given, **more)

        async def unit(**_: Any) -> Any:
            try:
                response = await self._inner.get_response(*given, **more)
            except openai.OpenAIError as error:
                raise as_data(error) from error
            perdure.current().spent(tokens=response.usage.total_tokens)
            return records.dump_response(response)

        recorded = await self._asked(unit, self._key(journaling), self._visible(given, more))
        here.note_asked(records.call_ids(recorded["output"]))
        return records.load_response(recorded)

    async def stream_response(  # noqa: PLR0917 - as the SDK has it
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 - as the SDK names it
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **more: Any,
    ) -> AsyncIterator[Any]:
        """One request, its pieces as they come and its end once that is on record; or the stream from its record."""
        given = (system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        journaling = here.journaling_here()
        if journaling is None:
            async for event in self._inner.stream_response(*given, **more):
                yield event
            return
        pieces: asyncio.Queue[Any] = asyncio.Queue()

        async def unit(**_: Any) -> Any:
            whole: list[Any] = []
            ended = False
            try:
                async for event in self._inner.stream_response(*given, **more):
                    whole.append(event)
                    ended = ended or event.type in records.TERMINAL
                    if not ended:
                        pieces.put_nowait(event)
            except openai.OpenAIError as error:
                raise as_data(error) from error
            _note_usage(whole)
            return records.dump_events(whole)

        async for event in self._streamed(unit, pieces, journaling, self._visible(given, more)):
            yield event

    async def _streamed(self, unit: Any, pieces: Any, journaling: Journaling, visible: Any) -> AsyncIterator[Any]:
        key = self._key(journaling)

        async def asked() -> Any:
            try:
                return await self._asked(unit, key, visible)
            finally:
                pieces.put_nowait(_END)

        task = asyncio.create_task(asked())
        seen = 0
        try:
            while (event := await pieces.get()) is not _END:
                seen += 1
                yield event
            recorded = await task
        finally:
            task.cancel()
        terminal = next((at for at, each in enumerate(recorded) if each["type"] in records.TERMINAL), len(recorded))
        for each in recorded[terminal:]:
            here.note_asked(records.call_ids(each.get("response", {}).get("output", ())))
        for each in recorded[terminal:] if seen else recorded:
            yield records.load_event(each)

    async def _asked(self, unit: Any, key: str, visible: dict[str, Any]) -> Any:
        try:
            return await calls.perform(unit, name=self._name, key=key, arguments=visible, policy=STEP)
        except ModelFailed as failed:
            raise as_error(failed) from failed

    def _key(self, journaling: Journaling) -> str:
        return calls.numbered(f"{journaling.place}/model")

    def _visible(self, given: tuple[Any, ...], more: dict[str, Any]) -> dict[str, Any]:
        instructions, asked, settings, tools, output_schema, handoffs, _ = given
        named = None if output_schema is None or output_schema.is_plain_text() else output_schema.json_schema()
        return records.visible(
            instructions=instructions,
            input=asked,
            settings=settings,
            tools=tools,
            output=named,
            handoffs=handoffs,
            previous=more.get("previous_response_id"),
            conversation=more.get("conversation_id"),
            prompt=more.get("prompt"),
        )


class JournaledProvider(ModelProvider):
    """A provider whose models are journaled."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner
        self._models: dict[int, JournaledModel] = {}

    def get_model(self, model_name: str | None) -> Model:
        """The model of this name."""
        found = self._inner.get_model(model_name)
        if isinstance(found, JournaledModel):
            return found
        return self._models.setdefault(id(found), JournaledModel(found, name=model_name))

    async def aclose(self) -> None:
        """Release what the provider holds."""
        await self._inner.aclose()


def _note_usage(events: list[Any]) -> None:
    for event in events:
        usage = getattr(getattr(event, "response", None), "usage", None)
        if event.type in records.TERMINAL and usage is not None:
            perdure.current().spent(tokens=usage.total_tokens or 0)
