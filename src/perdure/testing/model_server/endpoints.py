"""Which address is spoken to how, and the small answers that are no conversation: embeddings, tokens, models."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from typing import Any, Final

from perdure.testing.model_server.anthropic import MESSAGES
from perdure.testing.model_server.conversation import canonical, text_of
from perdure.testing.model_server.dialect import Dialect
from perdure.testing.model_server.gemini import GEMINI, named
from perdure.testing.model_server.openai_chat import CHAT
from perdure.testing.model_server.openai_responses import RESPONSES

_DIALECTS: Final = (
    (re.compile(r"/chat/completions$"), CHAT),
    (re.compile(r"/responses$"), RESPONSES),
    (re.compile(r"/messages$"), MESSAGES),
    (re.compile(r"/models/[^/:]+:(generateContent|streamGenerateContent)$"), GEMINI),
)
_SMALL: Final = (
    ("POST", re.compile(r"/embeddings$"), "embeddings"),
    ("POST", re.compile(r":(embedContent|batchEmbedContents)$"), "embeddings"),
    ("POST", re.compile(r"(/messages/count_tokens|:countTokens)$"), "tokens"),
    ("GET", re.compile(r"/models(/[^/:]+)?$"), "models"),
)
KNOWN: Final = (
    "POST /v1/chat/completions, /v1/responses, /v1/embeddings, /v1/messages, "
    "/v1beta/models/MODEL:generateContent and :streamGenerateContent"
)
_DIMENSIONS: Final = 8


def dialect_of(method: str, path: str) -> Dialect | None:
    """How a conversation is held at this address."""
    return next((dialect for at, dialect in _DIALECTS if method == "POST" and at.search(path)), None)


def small_of(method: str, path: str) -> str:
    """`embeddings`, `tokens` or `models`; empty for every other address."""
    return next((name for verb, at, name in _SMALL if method == verb and at.search(path)), "")


def small_answer(name: str, path: str, body: Any) -> dict[str, Any]:
    """The answer at one of the small addresses."""
    if name == "models":
        return _models(path)
    asked = body if isinstance(body, dict) else {}
    if name == "tokens":
        tokens = -(-len(canonical(asked)) // 4)
        return {"totalTokens": tokens} if path.endswith(":countTokens") else {"input_tokens": tokens}
    return _gemini_embeddings(path, asked) if named(path)[1] else _openai_embeddings(asked)


def not_found(method: str, path: str) -> dict[str, Any]:
    """The error at an unknown address, readable in every dialect."""
    text = f"The model server knows no {method} {path}. It knows {KNOWN}."
    return {"type": "error", "error": {"message": text, "type": "not_found_error", "code": 404, "status": "NOT_FOUND"}}


def vector(text: str, dimensions: int = _DIMENSIONS) -> list[float]:
    """Numbers that depend on the text and on nothing else."""
    found: list[float] = []
    while len(found) < dimensions:
        block = hashlib.sha256(f"{len(found)} {text}".encode()).digest()
        found += [round(byte / 127.5 - 1, 6) for byte in block]
    return found[:dimensions]


def _openai_embeddings(body: dict[str, Any]) -> dict[str, Any]:
    given = body.get("input", "")
    texts = given if isinstance(given, list) and not all(isinstance(each, int) for each in given) else [given]
    wanted = int(body.get("dimensions") or _DIMENSIONS)
    vectors = [vector(text_of(text), wanted) for text in texts]
    if body.get("encoding_format") == "base64":
        made: list[Any] = [base64.b64encode(struct.pack(f"<{wanted}f", *each)).decode() for each in vectors]
    else:
        made = vectors
    tokens = -(-len(canonical(given)) // 4)
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(made)],
        "model": body.get("model", ""),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _gemini_embeddings(path: str, body: dict[str, Any]) -> dict[str, Any]:
    asked = body.get("requests") if path.endswith(":batchEmbedContents") else [body]
    made = [
        {
            "values": vector(
                text_of((each.get("content") or {}).get("parts")), int(each.get("outputDimensionality") or 8)
            )
        }
        for each in asked or []
    ]
    return {"embeddings": made} if path.endswith(":batchEmbedContents") else {"embedding": made[0]}


def _models(path: str) -> dict[str, Any]:
    model_id = path.rpartition("/models")[2].strip("/")
    model = {"id": model_id or "perdure-model", "object": "model", "created": 0, "owned_by": "perdure"}
    return model if model_id else {"object": "list", "data": [model], "models": [], "has_more": False}
