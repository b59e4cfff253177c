"""Model calls by requests and urllib3: recorded before their end is seen, and replayed as the library has answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.run.conftest import Place
from tests.adapters.run.speaking import Speaking, speaking
from tests.adapters.run.walks import DYING, judge_dying, judge_reading, kept

BEGINNING = (
    DYING
    + """
import io, json, os
import requests, urllib3

URL = os.environ["SPEAKING_URL"] + "/v1/chat/completions"
KEY = {"Authorization": "Bearer the-secret-of-the-test"}

def body(words, stream=False):
    return {"model": "m", "messages": [{"role": "user", "content": words}], "stream": stream}

def post(words, stream=False):
    return requests.post(URL, json=body(words, stream), headers=KEY, stream=stream, timeout=30)
"""
)

READING = (
    BEGINNING
    + """
answer = post("whole")
show(answer.status_code, answer.reason, answer.ok, answer.url == URL, answer.encoding, answer.text, answer.elapsed.days)
show(answer.json()["choices"][0]["message"], answer.headers["content-type"], answer.headers["X-Request-Id"])
show(answer.raw.closed, answer.raw.version, isinstance(answer.raw, urllib3.HTTPResponse), answer.raise_for_status())
show(post("packed: gzip").json(), list(post("lines").iter_lines()))
show(post("refused, echo").status_code)
refused = post("refused")
show(refused.status_code, refused.ok, refused.json(), refused.headers["Content-Length"])
try:
    refused.raise_for_status()
except requests.HTTPError as error:
    show(str(error).partition(" for")[0], error.response.status_code)

for words in ("events", "packed events: gzip"):
    with post(words, True) as answer:
        show(answer.status_code, answer.headers["content-type"], answer.headers.get("transfer-encoding"))
        show(*answer.iter_lines())
    show(answer.raw.closed, answer.raw.isclosed())
    show(b"".join(post(words, True).iter_content(chunk_size=7)))
    show(b"".join(post(words, True).iter_content(chunk_size=None)), post(words, True).text)
    show(*post(words, True).iter_lines(chunk_size=1, decode_unicode=True))
    show(list(post(words, True).raw), post(words, True).raw.read(decode_content=True))

pool = urllib3.PoolManager()
def direct(words, stream, **options):
    sent = json.dumps(body(words, stream))
    return pool.request("POST", URL, body=options.pop("sent", sent), headers=KEY, **options)
answer = direct("pool", False)
show(answer.status, answer.json(), answer.headers["content-type"], answer.data == answer.data, type(answer).__module__)
show(direct("pool: gzip", False).data, direct("pool events", True).data)
for options in ({"preload_content": False}, {"preload_content": False, "decode_content": False}):
    show(b"".join(direct("pool events", True, **options).stream(5)))
    answer = direct("read piece by piece", True, **options)
    show(answer.read(11), answer.chunked, answer.read(2), answer.readline(), bool(answer.read1()), bool(answer.read()))
    answer.release_conn()
    show(answer.read(), direct("whole", False, **options).read())
text = json.dumps(body("file", False))
show(direct("", False, sent=io.BytesIO(text.encode())).json(), direct("", False, sent=io.StringIO(text)).json())
show(direct("", False, sent=iter([text[:9].encode(), text[9:].encode()])).json()["id"])

def dropped():
    for line in post("dropped", True).iter_lines():
        if b"three" in line:
            return line
show("dropped", dropped())
with post("left in a block", True) as answer:
    show("in a block", next(answer.iter_lines()))
answer = post("closed", True)
show("closed", next(answer.iter_lines()))
answer.close()
show(post("the last").json()["id"])
die_once("die")

for ask in (lambda: requests.post("http://127.0.0.1:9/v1/chat/completions", json=body("x")),
            lambda: urllib3.PoolManager(retries=False).request("POST", "http://127.0.0.1:9/v1/chat/completions"),
            lambda: post("cut"), lambda: list(post("cut", True).iter_content()),
            lambda: direct("cut", True), lambda: direct("cut", False, retries=False)):
    try:
        show(ask())
    except Exception as error:
        show(type(error).__module__, type(error).__qualname__)
"""
)

STREAM_DYING = (
    BEGINNING
    + """
for number, line in enumerate(post("hold", True).iter_lines(chunk_size=512)):
    show("ready" if number == 0 else line)
for line in post("ends", True).iter_lines():
    show(line)
    if b'"stop"' in line:
        die_once("die at the end of it")
show(post("whole").json())
try:
    list(post("cut", True).iter_lines())
except requests.RequestException as error:
    show(type(error).__name__)
die_once("die behind it")
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
