"""Model calls by aiohttp: recorded before their end is seen, and replayed as answers of its own class."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.run.conftest import Place
from tests.adapters.run.speaking import Speaking, speaking
from tests.adapters.run.walks import DYING, judge_dying, judge_reading, kept

BEGINNING = (
    DYING
    + """
import asyncio, io, json, os
import aiohttp

BASE = os.environ["SPEAKING_URL"]
URL = BASE + "/v1/chat/completions"
KEY = {"Authorization": "Bearer the-secret-of-the-test"}

def body(words, stream=False):
    return {"model": "m", "messages": [{"role": "user", "content": words}], "stream": stream}

async def asked(session, words, stream=False, **options):
    return await session.post(URL, json=body(words, stream), **options)
"""
)

READING = (
    BEGINNING
    + """
class Own(aiohttp.ClientResponse):
    pass

async def wholes(session):
    answer = await asked(session, "whole")
    show(answer.status, answer.reason, answer.ok, str(answer.url) == URL, answer.method)
    show(answer.content_type, answer.charset, answer.get_encoding(), answer.content_disposition, answer.links)
    show(await answer.text(), await answer.json(), await answer.read(), answer.headers["x-request-id"], answer.version)
    show(isinstance(answer, Own), answer.closed, answer.history, answer.cookies, answer.raise_for_status())
    show(answer.request_info.method, str(answer.request_info.url) == URL, answer.real_url == answer.url, answer.host)
    sent = {"data": json.dumps(body("relative: gzip")), "params": {"a": "b"}}
    async with session.post("/v1/chat/completions", **sent) as answer:
        show(answer.url.query_string, await answer.json())
    show(answer.closed)
    show(b"".join([piece async for piece in (await asked(session, "whole by pieces")).content.iter_chunked(9)]))
    for data in (json.dumps(body("bytes")).encode(), io.BytesIO(json.dumps(body("file")).encode()), pieces("pieces")):
        show((await (await session.post(URL, data=data)).json())["id"])

async def pieces(words):
    text = json.dumps(body(words)).encode()
    yield text[:9]
    yield text[9:]

async def errors(session):
    show((await asked(session, "refused, echo")).status)
    answer = await asked(session, "refused")
    show(answer.status, answer.ok, await answer.json())
    for wish in (True, raising):
        try:
            await asked(session, f"refused {wish is True}", raise_for_status=wish)
        except (aiohttp.ClientResponseError, KeyError) as error:
            show(type(error).__name__, getattr(error, "status", 0), getattr(error, "message", error))

async def raising(answer):
    if not answer.ok:
        raise KeyError((await answer.json())["message"])

async def streams(session):
    for words in ("events", "packed events: gzip"):
        async with await asked(session, words, True) as answer:
            show(answer.status, answer.content_type, [line async for line in answer.content])
        show(answer.closed)
        content = (await asked(session, words, True)).content
        show(await content.readline(), await content.read(1), await content.readexactly(5))
        show(await content.readuntil(b"}"))
        show(content.at_eof(), b"".join([piece async for piece in content.iter_any()]), content.at_eof())
        show(await content.read(), await content.readline())
        content = (await asked(session, words, True)).content
        show([len(piece) < 8 async for piece in content.iter_chunked(7)].count(False))
        show(await (await asked(session, words, True)).text(), await (await asked(session, words, True)).read())
    show([each async for each in (await asked(session, "by chunk", True)).content.iter_chunks()])
    async with aiohttp.ClientSession(auto_decompress=False) as packed:
        show((await (await asked(packed, "as it is")).json())["id"])

async def left(session):
    async with await asked(session, "left in a block", True) as answer:
        show("in a block", await answer.content.readline())
    for verb in ("close", "release"):
        answer = await asked(session, verb, True)
        show(verb, await answer.content.readline())
        getattr(answer, verb)()
    await dropped(session)
    show((await (await asked(session, "the last")).json())["id"])

async def dropped(session):
    answer = await asked(session, "dropped", True)
    show("dropped", await answer.content.readline())
    for _ in range(30):  # what is still to come would hold on to it
        if not answer.content.is_eof():
            await asyncio.sleep(0.01)

async def failing(session):
    for ask in (lambda: session.post("http://127.0.0.1:9/v1/chat/completions", json=body("x")),
                lambda: session.post(URL, json=body("cut")), lambda: session.post(URL, json=body("cut", True))):
        try:
            async with ask() as answer:
                show(await answer.text())
        except Exception as error:
            show(type(error).__module__, type(error).__qualname__)

async def main():
    async with aiohttp.ClientSession(BASE, headers=KEY, response_class=Own) as session:
        for part in (wholes, errors, streams, left):
            await part(session)
        die_once("die")
        await failing(session)
    try:
        await asked(session, "closed")
    except RuntimeError as error:
        show(error)

asyncio.run(main())
"""
)

STREAM_DYING = (
    BEGINNING
    + """
async def main():
    async with aiohttp.ClientSession(headers=KEY) as session:
        number = 0
        async for line in (await asked(session, "hold", True)).content:
            show("ready" if number == 0 else line)
            number += 1
        async for line in (await asked(session, "ends", True)).content:
            show(line)
            if b'"stop"' in line:
                die_once("die at the end of it")
        show(await (await asked(session, "whole")).json())
        try:
            await (await asked(session, "cut", True)).read()
        except aiohttp.ClientError as error:
            show(type(error).__name__)
        die_once("die behind it")

asyncio.run(main())
"""
)

HTTPX_OVER_AIOHTTP = (
    BEGINNING
    + """
import httpx

class Body(httpx.AsyncByteStream):
    def __init__(self, answer):
        self.answer = answer
    async def __aiter__(self):
        async for piece in self.answer.content.iter_any():
            yield piece

class Transport(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request):
        sent = {"data": request.content, "headers": request.headers}
        answer = await self.session.request(request.method, str(request.url), **sent)
        return httpx.Response(answer.status, headers=answer.headers, stream=Body(answer), request=request)

async def main():
    transport = Transport()
    async with aiohttp.ClientSession() as transport.session, httpx.AsyncClient(transport=transport) as client:
        show((await client.post(URL, json=body("whole"))).json()["id"])
        async with client.stream("POST", URL, json=body("events", True)) as answer:
            show([line async for line in answer.aiter_lines()])
        die_once("die")

asyncio.run(main())
"""
)


@pytest.fixture
def model() -> Iterator[Speaking]:
    with speaking() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, model: Speaking) -> Place:
    return Place(tmp_path, model.environment())


def test_an_answer_from_the_journal_reads_like_one_from_the_wire(place: Place, model: Speaking) -> None:
    judge_reading(place, model, READING)
    assert "the-secret-of-the-test" not in kept(place)


def test_what_comes_is_handed_on_at_once_but_the_end_only_when_it_is_recorded(place: Place, model: Speaking) -> None:
    judge_dying(place, model, STREAM_DYING)


def test_a_call_of_httpx_that_goes_through_aiohttp_is_recorded_once(place: Place, model: Speaking) -> None:
    judge_reading(place, model, HTTPX_OVER_AIOHTTP)
    shown = json.loads(place.perdure("ls", "--json").out)
    assert shown["runs"][0]["steps"] == 2, shown
