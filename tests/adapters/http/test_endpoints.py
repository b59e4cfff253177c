"""Which requests are model calls: at any host, by their address; nothing else is ever taken for one."""

from __future__ import annotations

import pytest

from perdure.adapters.http.endpoints import Dialect, dialect_of, model_in, streams

CALLS = [
    ("https://api.openai.com/v1/chat/completions", Dialect.OPENAI_CHAT),
    ("http://localhost:11434/v1/chat/completions", Dialect.OPENAI_CHAT),
    ("https://x.openai.azure.com/openai/deployments/gpt-4o/chat/completions?api-version=1", Dialect.OPENAI_CHAT),
    ("https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", Dialect.OPENAI_CHAT),
    ("https://openrouter.ai/api/v1/chat/completions", Dialect.OPENAI_CHAT),
    ("https://api.deepseek.com/chat/completions", Dialect.OPENAI_CHAT),
    ("https://api.openai.com/v1/responses", Dialect.OPENAI_RESPONSES),
    ("https://api.openai.com/v1/responses/compact", Dialect.OPENAI_RESPONSES),
    ("https://x.openai.azure.com/openai/v1/responses?api-version=preview", Dialect.OPENAI_RESPONSES),
    ("http://127.0.0.1:9/responses", Dialect.OPENAI_RESPONSES),
    ("https://api.openai.com/v1/completions", Dialect.OPENAI_COMPLETIONS),
    ("https://api.anthropic.com/v1/messages", Dialect.ANTHROPIC),
    ("https://api.anthropic.com/v1/messages?beta=true", Dialect.ANTHROPIC),
    (
        "https://x-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/anthropic/models/c@1:streamRawPredict",
        Dialect.ANTHROPIC,
    ),
    ("https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent", Dialect.GEMINI),
    ("https://h/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse&key=x", Dialect.GEMINI),
    ("https://h/v1/projects/p/locations/l/publishers/google/models/g:generateContent", Dialect.GEMINI),
    ("https://bedrock-runtime.us-east-1.amazonaws.com/model/amazon.nova-lite-v1%3A0/converse", Dialect.BEDROCK),
    ("https://bedrock-runtime.us-east-1.amazonaws.com/model/x/converse-stream", Dialect.BEDROCK),
    ("https://bedrock-runtime.us-east-1.amazonaws.com/model/x/invoke", Dialect.BEDROCK_INVOKE),
    ("https://h/model/x/invoke-with-response-stream", Dialect.BEDROCK_INVOKE),
    ("https://api.openai.com/v1/embeddings", Dialect.EMBEDDINGS),
    ("https://h/v1beta/models/e:batchEmbedContents", Dialect.EMBEDDINGS),
    ("https://api.openai.com/v1/images/generations", Dialect.MEDIA),
]
OTHERS = [
    "https://api.openai.com/v1/models",
    "https://api.openai.com/v1/files",
    "https://api.openai.com/v1/conversations",
    "https://api.openai.com/v1/traces/ingest",
    "https://api.openai.com/v1/responses/resp_1/cancel",
    "https://api.openai.com/v1/responses/input_tokens",
    "https://api.openai.com/v1/chat/completions/chatcmpl-1",
    "https://api.anthropic.com/v1/messages/count_tokens",
    "https://api.anthropic.com/v1/messages/batches",
    "https://h/v1beta/models/g:countTokens",
    "https://eu.i.posthog.com/batch/",
    "https://graph.facebook.com/v17.0/1234/messages",
    "https://api.twilio.com/2010-04-01/Accounts/AC/Messages.json",
    "https://forms.example/surveys/7/responses",
    "https://h/v1/chat/completions.html",
    "https://h/search?next=/v1/chat/completions",
]


@pytest.mark.parametrize(("url", "dialect"), CALLS)
def test_a_model_call_is_known_by_its_address_at_any_host(url: str, dialect: Dialect) -> None:
    assert dialect_of("POST", url) is dialect
    assert dialect_of("post", url) is dialect


@pytest.mark.parametrize("url", OTHERS)
def test_what_is_no_model_call_passes(url: str) -> None:
    assert dialect_of("POST", url) is None


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "OPTIONS"])
def test_only_a_post_asks_a_model(method: str) -> None:
    assert dialect_of(method, "https://api.openai.com/v1/responses") is None


def test_the_address_says_the_model_and_the_stream_where_the_body_does_not() -> None:
    assert model_in("https://h/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse") == "gemini-2.5-pro"
    assert model_in("https://h/model/anthropic.claude-x-v1%3A0/converse") == "anthropic.claude-x-v1:0"
    assert model_in("https://h/openai/deployments/mine/chat/completions") == "mine"
    assert model_in("https://h/v1/chat/completions") == ""
    assert streams("https://h/v1beta/models/g:streamGenerateContent?alt=sse")
    assert streams("https://h/model/x/converse-stream")
    assert not streams("https://h/v1beta/models/g:generateContent")
