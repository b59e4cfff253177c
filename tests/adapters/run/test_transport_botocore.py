"""Model calls by boto3 to Bedrock, whole and in frames: recorded before their end is seen, without any credential."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.eventstream import EventStreamBuffer  # type: ignore[import-untyped]

from perdure.adapters.http.botocore import storable
from perdure.adapters.http.redact import Redactor
from tests.adapters.run.conftest import Place
from tests.adapters.run.speaking import Speaking, frame, speaking
from tests.adapters.run.walks import DYING, judge_dying, judge_reading, kept

BEGINNING = (
    DYING
    + """
import json, os
import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

MODEL = "anthropic.claude-3-haiku-20240307-v1:0"

def client(url=os.environ["SPEAKING_URL"]):
    config = Config(retries={"total_max_attempts": 1}, read_timeout=30)
    return boto3.client("bedrock-runtime", endpoint_url=url, config=config)

bedrock = client()

def said(words):
    return {"modelId": MODEL, "messages": [{"role": "user", "content": [{"text": words}]}]}

def raw(words):
    return {"modelId": MODEL, "body": json.dumps({"messages": [{"role": "user", "content": words}]})}
"""
)

READING = (
    BEGINNING
    + """
answer = bedrock.converse(**said("converse"))
show(answer["output"], answer["stopReason"], answer["usage"], answer["ResponseMetadata"]["HTTPStatusCode"])
answer = bedrock.converse_stream(**said("converse"))
show(answer["ResponseMetadata"]["HTTPStatusCode"], list(answer["stream"]))
answer = bedrock.invoke_model(**raw("invoke"))
show(answer["contentType"], json.loads(answer["body"].read()))
body = bedrock.invoke_model(**raw("invoke"))["body"]
show(body.read(5), list(body.iter_chunks(20)), body.read())
show(list(bedrock.invoke_model(**raw("invoke"))["body"].iter_lines()))
show(list(bedrock.invoke_model_with_response_stream(**raw("invoke"))["body"]))
try:
    bedrock.converse(**said("refused"))
except ClientError as error:
    show(type(error).__name__, error, error.response["Error"], error.response["ResponseMetadata"]["HTTPStatusCode"])

stream = bedrock.converse_stream(**said("left"))["stream"]
for event in stream:
    show(event)
    if "contentBlockDelta" in event:
        break
stream.close()
def dropped():
    for event in bedrock.converse_stream(**said("dropped"))["stream"]:
        return event
show(dropped())
show(bedrock.converse(**said("the last"))["stopReason"])
die_once("die")

for ask in (lambda: client("http://127.0.0.1:9").converse(**said("x")), lambda: bedrock.converse(**said("refused")),
            lambda: list(bedrock.converse_stream(**said("cut"))["stream"])):
    try:
        show(ask())
    except Exception as error:
        show(type(error).__module__, type(error).__qualname__)
"""
)

STREAM_DYING = (
    BEGINNING
    + """
for number, event in enumerate(bedrock.converse_stream(**said("hold"))["stream"]):
    show("ready" if number == 0 else event)
for event in bedrock.converse_stream(**said("ends"))["stream"]:
    show(event)
    if "messageStop" in event:
        die_once("die at the end of it")
show(bedrock.converse(**said("whole"))["output"])
try:
    list(bedrock.converse_stream(**said("cut"))["stream"])
except Exception as error:
    show(type(error).__name__)
die_once("die behind it")
"""
)

ECHOES = (
    BEGINNING
    + """
show([len(str(event)) > 10 for event in bedrock.converse_stream(**said("echo"))["stream"]])
for event in bedrock.invoke_model_with_response_stream(**raw("echo"))["body"]:
    show(len(json.loads(event["chunk"]["bytes"])) > 0)
show(len(bedrock.converse(**said("echo"))["output"]))
try:
    bedrock.converse(**said("refused, echo"))
except ClientError as error:
    show(error.response["Error"]["Code"])
show(bedrock.converse(**said("the last"))["stopReason"])
die_once("die")
"""
)


SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@pytest.fixture
def model() -> Iterator[Speaking]:
    with speaking() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, model: Speaking) -> Place:
    return Place(tmp_path, model.environment())


def test_an_answer_from_the_journal_reads_like_one_from_the_wire(place: Place, model: Speaking) -> None:
    judge_reading(place, model, READING)


def test_what_comes_is_handed_on_at_once_but_the_end_only_when_it_is_recorded(place: Place, model: Speaking) -> None:
    judge_dying(place, model, STREAM_DYING)


def test_no_credential_is_stored_not_even_one_that_an_answer_repeats(place: Place, model: Speaking) -> None:
    judge_reading(place, model, ECHOES)
    stored = kept(place)
    assert not [secret for name, secret in model.environment().items() if name in SECRETS and secret in stored]
    assert re.findall(r"Signature=\w+", stored) == []


def test_a_secret_in_a_frame_is_taken_out_and_the_frame_stays_sound() -> None:
    told = [{"bytes": base64.b64encode(b'{"text": "the-session-token"}').decode()}, {"text": "the-session-token"}, {}]
    stream = b"".join(frame("chunk", each) for each in told)
    redactor = Redactor({"AWS_SESSION_TOKEN": "the-session-token"})
    stored = storable(stream, redactor, signature=b"")
    buffer = EventStreamBuffer()
    buffer.add_data(stored)
    inner, outer, empty = (json.loads(message.payload) for message in buffer)  # it raises where a checksum is wrong
    assert json.loads(base64.b64decode(inner["bytes"])) == {"text": "[redacted]"}
    assert (outer, empty) == ({"text": "[redacted]"}, {})
    assert storable(stream, Redactor({}), signature=b"") == stream
    assert storable(stream[:-3], redactor, signature=b"")[: len(stored) - 40] == stored[:-40]
