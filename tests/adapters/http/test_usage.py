"""What an answer took: the tokens that the provider says, in every dialect, and dollars only where a price is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.http.endpoints import Dialect
from perdure.adapters.http.prices import Price, Prices, current_prices, family
from perdure.adapters.http.usage import Usage, dollars, usage_of
from perdure.errors import InvalidSettings
from perdure.settings import current_settings
from perdure.testing.model_server import ModelServer
from perdure.testing.model_server import Usage as Scripted
from tests.adapters.http.capture import CALLERS, exchange
from tests.adapters.http.test_stream import frame


def said(body: dict[str, Any], dialect: Dialect = Dialect.OPENAI_CHAT) -> Usage:
    return usage_of(dialect, 200, json.dumps(body).encode(), is_stream=False)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_tokens_of_a_genuine_answer_are_read(model: ModelServer, caller: str, stream: bool) -> None:
    model.says("It is so.", usage=Scripted(input_tokens=100, output_tokens=20, cached_tokens=60))
    made = exchange(model, caller, stream=stream)
    used = usage_of(made.dialect, made.status, made.answer, is_stream=stream)
    assert (used.tokens_in, used.tokens_out, used.cached, used.tokens) == (100, 20, 60, 120)
    assert used.model == json.loads(made.body).get("model", "gemini-x")


def test_what_anthropic_says_beside_its_input_is_part_of_it() -> None:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 11, "output_tokens": 2}
    used = said({"model": "c", "usage": usage}, Dialect.ANTHROPIC)
    assert used == Usage(tokens_in=23, tokens_out=2, cached=11, cache_written=7, model="c")


def test_thoughts_are_written_too() -> None:
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 40}
    assert said({"usageMetadata": usage}, Dialect.GEMINI).tokens_out == 42


def test_the_usage_of_amazon_is_read_whole_and_in_frames() -> None:
    usage = {"usage": {"inputTokens": 3, "outputTokens": 4, "cacheReadInputTokens": 5}}
    assert said(usage, Dialect.BEDROCK) == Usage(tokens_in=8, tokens_out=4, cached=5)
    body = frame("messageStop", {"stopReason": "end_turn"}) + frame("metadata", usage)
    assert usage_of(Dialect.BEDROCK, 200, body, is_stream=True) == Usage(tokens_in=8, tokens_out=4, cached=5)


def test_a_stream_that_tells_its_usage_more_than_once_took_what_it_said_last() -> None:
    events = [
        {"type": "message_start", "message": {"model": "c", "usage": {"input_tokens": 9, "output_tokens": 1}}},
        {"type": "message_delta", "usage": {"output_tokens": 5}},
        {"type": "message_delta", "usage": {"output_tokens": 30}},
    ]
    body = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
    assert usage_of(Dialect.ANTHROPIC, 200, body, is_stream=True) == Usage(tokens_in=9, tokens_out=30, model="c")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"usage": 3}', b'{"usage": {"prompt_tokens": "many"}}', b"\xff\x00"]
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_does_not_say_took_nothing_that_is_known(body: bytes, stream: bool) -> None:
    assert usage_of(Dialect.OPENAI_CHAT, 200, body, is_stream=stream).tokens == 0


def test_an_error_took_nothing() -> None:
    body = b'{"usage": {"prompt_tokens": 4}}'
    assert usage_of(Dialect.OPENAI_CHAT, 429, body, is_stream=False) == Usage()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-4o-mini", "gpt-4o-mini"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("gemini-2.5-pro-001", "gemini-2.5-pro"),
    ],
)
def test_a_model_has_the_price_of_its_family(model: str, name: str) -> None:
    assert family(model) == name
    assert Prices().of(model) == Prices().of(name) is not None


@pytest.mark.parametrize(
    "model", ["", "llama", "gpt-4o-audio-preview", "gpt-5-pro", "gpt-5.5-pro", "gpt-55", "claude-opus-9"]
)
def test_a_model_that_nobody_priced_costs_nothing_and_it_is_said(model: str) -> None:
    assert Prices().of(model) is None
    assert dollars(Usage(tokens_in=1_000_000, model=model), Prices()) == 0


def test_cached_tokens_cost_what_cached_tokens_cost() -> None:
    used = Usage(tokens_in=1_000_000, tokens_out=100_000, cached=400_000, cache_written=100_000, model="m")
    prices = Prices({"m": Price(10, 50, 1, 12)})
    assert dollars(used, prices) == pytest.approx(5 + 0.4 + 1.2 + 5)
    assert dollars(used, Prices({"m": Price(10, 50)})) == pytest.approx(10 + 5)


def test_a_project_says_its_own_prices(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.perdure]\ndeliveries = 4\n[tool.perdure.prices]\n"gpt-4o" = { input = 1, output = 2.5 }\n'
        '"local-*" = { input = 0, output = 0 }\n'
    )
    prices = current_prices(tmp_path)
    assert (prices.of("gpt-4o"), prices.of("local-llama")) == (Price(1, 2.5), Price(0, 0))
    assert prices.of("gpt-4o-mini") == Prices().of("gpt-4o-mini")
    assert current_settings(tmp_path).deliveries == 4
    assert current_prices(tmp_path / "elsewhere").of("local-llama") is None


@pytest.mark.parametrize(
    "written",
    [
        "[tool.perdure]\nprices = 3\n",
        '[tool.perdure.prices]\n"m" = 3\n',
        '[tool.perdure.prices]\n"m" = { output = 3 }\n',
        '[tool.perdure.prices]\n"m" = { input = -1 }\n',
        '[tool.perdure.prices]\n"m" = { input = 1, ouput = 2 }\n',
    ],
)
def test_a_price_that_cannot_be_used_is_refused_with_the_way_to_write_it(tmp_path: Path, written: str) -> None:
    (tmp_path / "pyproject.toml").write_text(written)
    with pytest.raises(InvalidSettings) as refused:
        current_prices(tmp_path)
    assert "[tool.perdure.prices]" in refused.value.message + refused.value.hint
