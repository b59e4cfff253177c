"""When a streamed answer is whole: the same however its bytes arrive, and never before they are all there."""

from __future__ import annotations

import itertools
import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.http.endpoints import Dialect
from perdure.adapters.http.frames import Frames
from perdure.adapters.http.stream import Terminal, events_in
from perdure.testing.model_server import ModelServer, tool
from tests.adapters.asking import ask, question
from tests.adapters.http.capture import CALLERS, Watch, exchange, first
from tests.adapters.lazily import Lazily

if TYPE_CHECKING:
    import openai
else:
    openai = Lazily("openai")

CHAT = (
    b": OPENROUTER PROCESSING\n\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"h\xc3\xa9 [DONE]"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'
)
DONE = b"data: [DONE]\n\n"
ANTHROPIC = (
    b'event: message_start\ndata: {"type":"message_start","message":{"stop_reason":null}}\n\n'
    b'event: ping\ndata: {"type":"ping"}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"event: message_stop"}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
)
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
RESPONSES = (
    b'event: response.created\ndata: {"type":"response.created","response":{"status":"in_progress","error":null}}\n\n'
    b'data: {"type":"response.output_text.delta","delta":"response.completed"}\n\n'
)
COMPLETED = b'event: response.completed\ndata: {"type":"response.completed","response":{"output":[]}}\n\n'
GEMINI = (
    b'data: {"candidates":[{"index":0,"content":{"parts":[{"text":"a"}]}}]}\r\n\r\n'
    b'data: {"candidates":[{"index":0,"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}\r\n\r\n'
)
ENDED = [
    (Dialect.OPENAI_CHAT, CHAT, DONE),
    (Dialect.ANTHROPIC, ANTHROPIC, STOP),
    (Dialect.OPENAI_RESPONSES, RESPONSES, COMPLETED),
]


def split(body: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[one:other] for one, other in itertools.pairwise(places)]


def verdict(dialect: Dialect, chunks: list[bytes]) -> tuple[int | None, int | None, bool, bool]:
    """Where in the whole stream the terminal event begins, and all else that is said of it."""
    terminal, at, begins = Terminal(dialect), 0, None
    for chunk in chunks:
        offset = terminal.feed(chunk)
        if offset is not None and begins is None:
            assert 0 <= offset <= len(chunk)
            begins = at + offset
        at += len(chunk)
    return begins, terminal.finish_at, terminal.end(), terminal.has_failed


@pytest.mark.parametrize(("dialect", "body", "last"), ENDED)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_a_stream_is_whole_when_its_terminal_event_has_come(
    dialect: Dialect, body: bytes, last: bytes, ending: bytes
) -> None:
    body, last = body.replace(b"\n", ending), last.replace(b"\n", ending)
    terminal = Terminal(dialect)
    assert terminal.feed(body) is None
    assert not terminal.is_complete
    assert terminal.feed(b"" + last) == 0
    assert (terminal.is_complete, terminal.end(), terminal.has_failed, terminal.missing) == (True, True, False, b"")
    assert Terminal(dialect).feed(body + last) == len(body)


@pytest.mark.parametrize(("dialect", "body", "last"), ENDED)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_every_single_cut_gives_the_same_verdict(dialect: Dialect, body: bytes, last: bytes, ending: bytes) -> None:
    whole = (body + last).replace(b"\n", ending)
    begins = len(body.replace(b"\n", ending))
    expected = verdict(dialect, [whole])
    for cut in range(len(whole) + 1):
        terminal = Terminal(dialect)
        first, second = terminal.feed(whole[:cut]), terminal.feed(whole[cut:])
        if first is None:
            assert second == max(0, begins - cut)
        else:
            assert first == begins
        assert (terminal.finish_at, terminal.end(), terminal.has_failed) == expected[1:]
    assert verdict(dialect, [bytes([byte]) for byte in whole])[1:] == expected[1:]


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from([*ENDED, (Dialect.GEMINI, GEMINI, b""), (Dialect.OPENAI_CHAT, CHAT, b"")]),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 2000), max_size=12),
    st.integers(0, 60),
)
def test_every_split_of_a_stream_gives_the_same_verdict(
    stream: tuple[Dialect, bytes, bytes], ending: bytes, cuts: list[int], lost: int
) -> None:
    dialect, body, last = stream
    whole = (body + last).replace(b"\r\n", b"\n").replace(b"\n", ending)
    whole = whole[: len(whole) - lost]
    in_pieces, at_once = verdict(dialect, split(whole, cuts)), verdict(dialect, [whole])
    assert in_pieces[1:] == at_once[1:]
    assert (in_pieces[0] is None) == (at_once[0] is None)
    assert in_pieces[0] is None or in_pieces[0] >= (at_once[0] or 0)


@pytest.mark.parametrize(("dialect", "body", "last"), ENDED)
def test_a_stream_that_was_cut_off_is_not_whole(dialect: Dialect, body: bytes, last: bytes) -> None:
    needed = body.index(b'"stop"') if dialect is Dialect.OPENAI_CHAT else len(body)
    for cut in range(needed):
        assert verdict(dialect, [(body + last)[:cut]])[::2] == (None, False)


def test_a_server_that_ends_without_done_is_whole_at_the_end_of_the_body() -> None:
    assert verdict(Dialect.OPENAI_CHAT, [CHAT]) == (
        None,
        CHAT.index(b'data: {"choices":[{"index":0,"delta":{},'),
        True,
        False,
    )
    assert verdict(Dialect.OPENAI_CHAT, [CHAT, b"data: [DONE]"])[2] is True


def test_an_answer_with_alternatives_is_whole_when_all_of_them_are() -> None:
    def chunk(index: int, reason: str | None) -> bytes:
        return b"data: %s\n\n" % json.dumps({"choices": [{"index": index, "finish_reason": reason}]}).encode()

    begun = [chunk(0, None), chunk(1, None), chunk(0, "stop")]
    assert verdict(Dialect.OPENAI_CHAT, begun)[2] is False
    assert verdict(Dialect.OPENAI_CHAT, [*begun, chunk(1, "stop")])[2] is True


def test_data_over_several_lines_is_one_event() -> None:
    last = b'data: {"type":\ndata: "message_stop"}\n\n'
    assert Terminal(Dialect.ANTHROPIC).feed(ANTHROPIC + last) == len(ANTHROPIC)


def test_who_reads_line_by_line_gets_no_line_before_its_answer_is_known_to_be_whole() -> None:
    terminal = Terminal(Dialect.OPENAI_CHAT)
    terminal.feed(CHAT)
    assert terminal.feed(b"data: [DONE]") is None
    assert terminal.feed(b"\n") == 0
    assert terminal.missing == b"\n"
    assert terminal.feed(b"\n") == 0


def test_a_byte_order_mark_and_fields_without_a_space_are_understood() -> None:
    assert Terminal(Dialect.OPENAI_CHAT).feed(b"\xef\xbb\xbfdata:[DONE]\n\n") == 0


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        (Dialect.OPENAI_CHAT, b'data: {"error":{"message":"overloaded"}}\n\n'),
        (Dialect.ANTHROPIC, b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'),
        (Dialect.OPENAI_RESPONSES, b'event: response.failed\ndata: {"type":"response.failed"}\n\n'),
        (Dialect.OPENAI_RESPONSES, b'event: error\ndata: {"type":"error","message":"x"}\n\n'),
        (Dialect.GEMINI, b'data: {"error":{"code":503}}\r\n\r\n'),
    ],
)
def test_a_model_that_fails_in_the_middle_is_told_apart(dialect: Dialect, event: bytes) -> None:
    assert verdict(dialect, [event]) == (0, 0, True, True)


def test_a_response_that_ran_out_of_tokens_is_whole() -> None:
    event = b'event: response.incomplete\ndata: {"type":"response.incomplete","response":{}}\n\n'
    assert verdict(Dialect.OPENAI_RESPONSES, [event]) == (0, 0, True, False)


def test_gemini_is_whole_at_the_end_of_the_body_only() -> None:
    assert verdict(Dialect.GEMINI, [GEMINI]) == (None, GEMINI.rindex(b"data:"), True, False)
    assert verdict(Dialect.GEMINI, [GEMINI[: GEMINI.rindex(b"data:")]])[2] is False
    blocked = b'data: {"promptFeedback":{"blockReason":"SAFETY"}}\r\n\r\n'
    assert verdict(Dialect.GEMINI, [blocked])[2] is True


def test_gemini_without_events_is_a_list_that_must_be_closed(model: ModelServer) -> None:
    path = "/v1beta/models/gemini-x:streamGenerateContent"
    body = ask(model.url, path, question(path, "hello")).text.encode()
    for cut in range(len(body)):
        assert verdict(Dialect.GEMINI, [body[:1], body[1:cut]])[2] is False
    assert verdict(Dialect.GEMINI, [body[:1], body[1:]])[2] is True
    assert len(list(events_in(body))) > 1


def test_a_server_that_ignores_the_wish_for_a_stream_is_whole_when_its_json_is() -> None:
    assert verdict(Dialect.OPENAI_CHAT, [b' {"choices":', b"[]}"])[2] is True
    assert verdict(Dialect.OPENAI_CHAT, [b' {"choices":', b"[]"])[2] is False


def header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()


def frame(kind: str, payload: Any, *, name: str = ":event-type") -> bytes:
    headers = header(name, kind) + header(":message-type", "event")
    content = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(content), len(headers))
    checked = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + content
    return checked + struct.pack(">I", zlib.crc32(checked))


def test_the_frames_of_amazon_are_whole_at_the_end_of_the_body() -> None:
    frames = [
        frame("messageStart", {"role": "assistant"}),
        frame("messageStop", {"stopReason": "end_turn"}),
        frame("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2}}),
    ]
    whole = b"".join(frames)
    assert verdict(Dialect.BEDROCK, [whole]) == (None, len(frames[0]), True, False)
    assert verdict(Dialect.BEDROCK, split(whole, [1, 9, 13, 60, 100])) == (None, len(frames[0]), True, False)
    assert verdict(Dialect.BEDROCK, [whole[:-1]])[2] is False
    assert verdict(Dialect.BEDROCK, [frames[0]])[2] is False
    assert [name for name, _ in events_in(whole)] == ["messageStart", "messageStop", "metadata"]
    failed = frame("throttlingException", {"message": "x"}, name=":exception-type")
    assert verdict(Dialect.BEDROCK, [frames[0], failed]) == (len(frames[0]), len(frames[0]), True, True)


def test_a_damaged_frame_never_makes_an_answer_whole() -> None:
    stop = frame("messageStop", {"stopReason": "end_turn"})
    for at in range(len(stop)):
        damaged = stop[:at] + bytes([stop[at] ^ 1]) + stop[at + 1 :]
        assert verdict(Dialect.BEDROCK, [frame("messageStart", {}), damaged, stop])[2] is False


def test_a_size_that_its_checksum_does_not_confirm_is_not_waited_for() -> None:
    stop = frame("messageStop", {"stopReason": "end_turn"})
    frames = Frames()
    assert list(frames.feed(b"\x00\x01" + stop[2:])) == []
    assert frames.is_damaged


@pytest.mark.parametrize("caller", CALLERS)
def test_genuine_streams_are_whole_with_their_last_event_and_not_before(model: ModelServer, caller: str) -> None:
    model.says(["It ", "is."], tool("search", q="a long question"), tool("search", q="y"))
    made = exchange(model, caller, stream=True)
    begins, finish, is_whole, has_failed = verdict(made.dialect, made.chunks)
    assert (is_whole, has_failed) == (True, False)
    assert finish is not None
    body = made.answer
    assert (begins is None) == (caller == "gemini")
    for cut in range(0, finish, 31):
        assert verdict(made.dialect, [body[:cut]])[2] is False
    if begins is not None:
        assert body[begins:].count(b"data: ") == 1


@pytest.mark.parametrize("caller", [name for name in CALLERS if name != "gemini"])
def test_a_genuine_stream_that_breaks_off_is_not_whole(model: ModelServer, caller: str) -> None:
    model.cuts(after=3).says(["a", "b", "c", "d"])
    watch = Watch()
    with pytest.raises((httpx2.RemoteProtocolError, openai.APIConnectionError)):
        CALLERS[caller](model, watch, first(caller), stream=True)
    (made,) = watch.exchanges
    assert len(list(events_in(made.answer))) == 3
    assert verdict(made.dialect, made.chunks) == (None, None, False, False)
