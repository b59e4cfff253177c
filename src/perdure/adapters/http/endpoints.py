"""Which requests are model calls, told by method and address alone.

An address at any host counts, because many servers speak the interface of another provider. Two of the paths
(`/v1/messages`, `/v1/responses`) could be anybody's: whether the body is one of a model call, too, is said by
`Asked.fits`. Lists of models, files, counts of tokens, and telemetry are no model calls.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import Final
from urllib.parse import unquote, urlsplit


class Dialect(enum.StrEnum):
    """How a model is spoken to."""

    OPENAI_CHAT = "openai.chat"
    OPENAI_RESPONSES = "openai.responses"
    OPENAI_COMPLETIONS = "openai.completions"
    """The older interface, with one `prompt`."""
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    BEDROCK = "bedrock"
    """`converse` and `converse-stream`."""
    BEDROCK_INVOKE = "bedrock.invoke"
    """`invoke` and `invoke-with-response-stream`: the body is in the words of the model's own maker."""
    EMBEDDINGS = "embeddings"
    MEDIA = "media"
    """Pictures, speech, moderation: a model answers, and it is no conversation."""


_PATHS: Final = (
    (re.compile(r"/chat/completions/?$"), Dialect.OPENAI_CHAT),
    (re.compile(r"(?:/v\d\w*|/openai(?:/.*)?|^)/responses(?:/compact)?/?$"), Dialect.OPENAI_RESPONSES),
    (re.compile(r"/v\d\w*/messages/?$"), Dialect.ANTHROPIC),
    (re.compile(r"/publishers/anthropic/models/[^/]+:(?:rawPredict|streamRawPredict)$"), Dialect.ANTHROPIC),
    (re.compile(r"(?:/v\d\w*|/engines/[^/]+|/deployments/[^/]+)/completions/?$"), Dialect.OPENAI_COMPLETIONS),
    (re.compile(r"/(?:models|endpoints)/[^/]+:(?:generateContent|streamGenerateContent)$"), Dialect.GEMINI),
    (re.compile(r"/model/[^/]+/converse(?:-stream)?$"), Dialect.BEDROCK),
    (re.compile(r"/model/[^/]+/invoke(?:-with-response-stream)?$"), Dialect.BEDROCK_INVOKE),
    (re.compile(r"(?:/v\d\w*|/deployments/[^/]+|/openai)/embeddings/?$"), Dialect.EMBEDDINGS),
    (re.compile(r"/models/[^/]+:(?:embedContent|batchEmbedContents)$"), Dialect.EMBEDDINGS),
    (re.compile(r"/v\d\w*/(?:images/generations|audio/speech|moderations)/?$"), Dialect.MEDIA),
)
_ADDRESSES_REMEMBERED: Final = 256
_STREAMS: Final = re.compile(r":stream(?:GenerateContent|RawPredict)$|/converse-stream$|/invoke-with-response-stream$")
_MODELS: Final = re.compile(r"/(?:models?|deployments|engines|endpoints)/([^/:]+(?::\d+)?)(?=[/:]|$)")


@functools.lru_cache(maxsize=_ADDRESSES_REMEMBERED)
def dialect_of(method: str, url: str) -> Dialect | None:
    """How the model at this address is spoken to; None where it is no model call."""
    if method.upper() != "POST":
        return None
    path = urlsplit(url).path
    return next((dialect for pattern, dialect in _PATHS if pattern.search(path)), None)


@functools.lru_cache(maxsize=_ADDRESSES_REMEMBERED)
def streams(url: str) -> bool:
    """Whether the address itself asks for a stream, as those of Gemini and Bedrock do."""
    return _STREAMS.search(urlsplit(url).path) is not None


@functools.lru_cache(maxsize=_ADDRESSES_REMEMBERED)
def model_in(url: str) -> str:
    """The model that the address names; empty for none."""
    found = _MODELS.findall(unquote(urlsplit(url).path))
    return found[-1] if found else ""
