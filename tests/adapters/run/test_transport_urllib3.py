"""Model calls by requests and urllib3: recorded before their end is seen, and replayed as the library has answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.testing.model_server import ModelServer
from tests.adapters.run.conftest import Place
from tests.adapters.run.speaking import Speaking, differing, speaking

BEGINNING = """
import io, json, os, pathlib, signal, sys
import requests, urllib3

URL = os.environ.get("SPEAKING_URL", os.environ["OPENAI_BASE_URL"][:-3]) + "/v1/chat/completions"
KEY = {"Authorization": "Bearer the-secret-of-the-test"}

def body(words, stream=False):
    return {"model": "m", "messages": [{"role": "user", "content": words}], "stream": stream}

def post(words, stream=False, **options):
    return requests.post(URL, json=body(words, stream), headers=KEY, stream=stream, timeout=30, **options)

def die_once(name):
    mark = pathlib.Path(name)
    if mark.exists():
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

def show(*seen):
    print(*seen, flush=True)
"""

EVERY_WAY_TO_READ = BEGINNING + """
answer = post("whole")
show(answer.status_code, answer.reason, answer.ok, answer.url == URL, answer.encoding, answer.text, answer.elapsed.days)
show(answer.json()["choices"][0]["message"], answer.headers["content-type"], answer.headers["X-Request-Id"])
show(answer.raw.closed, answer.raw.version, isinstance(answer.raw, urllib3.HTTPResponse), answer.raise_for_status())
show(post("packed: gzip").json(), list(post("lines").iter_lines()))
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
    return pool.request("POST", URL, body=options.pop("sent", sent), headers={**KEY, "A": "b"}, **options)
answer = direct("pool", False)
show(answer.status, answer.json(), answer.headers["content-type"], answer.data == answer.data, type(answer).__module__)
show(direct("pool: gzip", False).data, direct("raw: gzip", False, decode_content=False).headers.get("content-encoding"))
show(direct("pool events", True).data)
for options in ({"preload_content": False}, {"preload_content": False, "decode_content": False}):
    show(b"".join(direct("pool events", True, **options).stream(5)))
    answer = direct("read piece by piece", True, **options)
    show(answer.read(11), answer.chunked, answer.read(2), answer.readline(), bool(answer.read1()), bool(answer.read()))
    answer.release_conn()
    show(answer.read(), direct("whole", False, **options).read())
text = json.dumps(body("file", False))
show(direct("", False, sent=io.BytesIO(text.encode())).json(), direct("", False, sent=io.StringIO(text)).json())
show(direct("", False, sent=iter([text[:9].encode(), text[9:].encode()])).json()["id"])
die_once("die")
show("the end")
"""

LEFT = BEGINNING + """
def left(words):
    for line in post(words, True).iter_lines():
        if b"three" in line:
            return line
show("dropped", left("dropped"))
with post("in a block", True) as answer:
    show("in a block", next(answer.iter_lines()))
answer = post("closed", True)
show("closed", next(answer.iter_lines()))
answer.close()
try:
    with post("raising", True) as answer:
        raise KeyError(next(answer.iter_lines()))
except KeyError as error:
    show("raised", error)
answer = post("cut: cut", True)
try:
    show(*answer.iter_lines())
except requests.RequestException as error:
    show(type(error).__name__)
show(post("the last").json()["id"])
die_once("die")
"""

DEATHS = BEGINNING + """
stage = sys.argv[1]
text = ""
for line in post("one", True).iter_lines():
    show(line)
    if stage == "first" and line:
        die_once("first")
    if stage == "finish" and b'"stop"' in line:
        die_once("finish")
    if stage == "done" and b"[DONE]" in line:
        die_once("done")
try:
    show(post("two").json()["choices"][0]["message"]["content"])
except requests.ConnectionError as error:
    show(type(error).__name__)
if stage == "whole":
    die_once("whole")
show("the end")
"""

LIVE = BEGINNING + """
for number, line in enumerate(post("live", True).iter_lines(chunk_size=512)):
    if number == 0:
        print("ready", flush=True)
    print(line.decode())
"""

NOBODY = BEGINNING + """
for ask in (lambda: requests.post("http://127.0.0.1:9/v1/chat/completions", json=body("x")),
            lambda: urllib3.PoolManager(retries=False).request("POST", "http://127.0.0.1:9/v1/chat/completions"),
            lambda: post("cut: cut"), lambda: list(post("cut: cut", True).iter_content())):
    try:
        show(ask())
    except Exception as error:
        show(type(error).__module__, type(error).__qualname__)
"""


@pytest.fixture
def model() -> Iterator[Speaking]:
    with speaking() as running:
        yield running


@pytest.fixture
def spoken(tmp_path: Path, model: Speaking, server: ModelServer) -> Place:
    return Place(tmp_path, {**server.environment(), **model.environment()})


def test_an_answer_from_the_journal_reads_like_one_from_the_wire(spoken: Any, model: Speaking) -> None:
    spoken.write(EVERY_WAY_TO_READ)
    plain = spoken.plain("agent.py")
    assert plain.code == 0, plain
    asked = len(model.asked)
    spoken.touch("die")
    killed = spoken.run("--no-resume", "agent.py")
    assert (killed.code, differing(killed.out, plain.out)) == (-9, []), killed
    assert len(model.asked) == 2 * asked
    resumed = spoken.run("agent.py")
    assert (resumed.code, differing(resumed.out, plain.out), resumed.out) == (0, [], plain.out), resumed
    assert len(model.asked) == 2 * asked
    assert "the-secret-of-the-test" not in kept(spoken)


def test_a_stream_that_the_script_left_is_left_again_and_a_cut_one_is_asked_for_again(
    spoken: Any, model: Speaking
) -> None:
    spoken.write(LEFT)
    spoken.touch("die")
    killed = spoken.run("--no-resume", "agent.py")
    assert killed.code == -9, killed
    resumed = spoken.run("agent.py")
    assert (resumed.code, resumed.out) == (0, killed.out), resumed
    assert model.asked.count("cut: cut") == model.asked.count("raising") == 2
    assert {words: model.asked.count(words) for words in ("dropped", "in a block", "closed", "the last")} == {
        "dropped": 1,
        "in a block": 1,
        "closed": 1,
        "the last": 1,
    }


@pytest.mark.parametrize(("stage", "again"), [("first", 1), ("finish", 0), ("done", 0), ("whole", 0)])
def test_once_the_script_can_know_the_answer_it_is_never_asked_for_again(
    spoken: Any, model: Speaking, stage: str, again: int
) -> None:
    spoken.write(DEATHS)
    spoken.touch(stage)
    killed = spoken.run("--no-resume", "agent.py", stage)
    assert killed.code == -9, killed
    resumed = spoken.run("agent.py", stage)
    assert resumed.code == 0, resumed
    assert resumed.out.startswith(killed.out)
    assert resumed.out.endswith("great Grüße five.\nthe end\n".replace("great", "große"))
    assert (model.asked.count("one"), model.asked.count("two")) == (1 + again, 1)


def test_a_stream_is_handed_on_while_it_comes(place: Any, server: ModelServer) -> None:
    server.holds(server.gate(), after=2).says(["One", " two", " three"])
    place.write(LIVE)
    process = place.start("-m", "perdure", "run", "agent.py")
    process.kill()
    process.communicate()
    server.gate().open()
    server.settled()
    resumed = place.run("agent.py")
    assert resumed.code == 0, resumed
    assert "three" in resumed.out
    assert [each.state for each in server.requests] == ["abandoned", "answered"]


def test_what_fails_on_the_way_fails_as_it_does_without_perdure(spoken: Any) -> None:
    spoken.write(NOBODY)
    assert spoken.run("agent.py").out == spoken.plain("agent.py").out


def kept(place: Place) -> str:
    """Everything in the store."""
    files = (path for path in (place.folder / ".perdure").rglob("*") if path.is_file())
    return "".join(path.read_bytes().decode("latin-1") for path in files)
