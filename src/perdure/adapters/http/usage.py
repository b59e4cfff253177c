"""What an answer took: the tokens that it says, and the dollars that these are."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from perdure.adapters.http.answers import whole_answer
from perdure.adapters.http.endpoints import Dialect
from perdure.adapters.http.prices import Prices
from perdure.adapters.http.stream import events_in

_FAILED: Final = 400


class Usage(Struct, frozen=True):
    """The tokens of one answer."""

    tokens_in: int = 0
    """All that was read, from a cache or not."""
    tokens_out: int = 0
    """All that was written, thoughts included."""
    cached: int = 0
    """Of those read: from a cache."""
    cache_written: int = 0
    """Of those read: written to a cache, which costs extra."""
    model: str = ""
    """As the answer names it; empty where it does not."""

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.tokens_in + self.tokens_out


def usage_of(dialect: Dialect, status: int, body: bytes, *, is_stream: bool) -> Usage:
    """What an answer says it took; nothing for an error, and nothing is estimated."""
    del dialect  # the names differ from dialect to dialect, and none means another thing elsewhere
    if status >= _FAILED:
        return Usage()
    whole = whole_answer(body)
    said = [whole] if whole is not None else [value for _, value in events_in(body)] if is_stream else []
    counts: dict[str, int] = {}
    model = ""
    for each in said:
        for holder in (each, each.get("message"), each.get("response")):
            if isinstance(holder, dict):
                counts |= _counts(holder)
                model = _model(holder) or model
    return _summed(counts, model)


def dollars(usage: Usage, prices: Prices) -> float:
    """What the tokens cost; 0 where the model has no price, which `prices.of(model)` tells apart."""
    return prices.dollars(usage)


_NAMES: Final = {
    "read": ("prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens", "inputTokenCount"),
    "written": ("completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens", "outputTokenCount"),
    "thought": ("thoughtsTokenCount",),
    "tools": ("toolUsePromptTokenCount",),
    "cached": ("cachedContentTokenCount",),
    "cache_read": ("cache_read_input_tokens", "cacheReadInputTokens"),
    "cache_written": ("cache_creation_input_tokens", "cacheWriteInputTokens"),
}
"""`cached` is part of what was read; `cache_read` and `cache_written` come on top of it."""

_MEANING: Final = [(name, what) for what, names in _NAMES.items() for name in reversed(names)]
"""What each name means; where several of one meaning are said, the last of these counts."""

_HOLDERS: Final = ("usage", "usageMetadata", "amazon-bedrock-invocationMetrics")
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")


def _counts(holder: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for usage in (holder[name] for name in _HOLDERS if name in holder):
        if isinstance(usage, dict):
            found |= {what: usage[name] for name, what in _MEANING if name in usage and _is_count(usage[name])}
            for details in (usage[name] for name in _DETAILS if name in usage):
                if isinstance(details, dict) and _is_count(details.get("cached_tokens")):
                    found["cached"] = details["cached_tokens"]
    return found


def _summed(counts: dict[str, int], model: str) -> Usage:
    beside = counts.get("cache_read", 0) + counts.get("cache_written", 0)
    return Usage(
        tokens_in=counts.get("read", 0) + counts.get("tools", 0) + beside,
        tokens_out=counts.get("written", 0) + counts.get("thought", 0),
        cached=counts.get("cached", 0) + counts.get("cache_read", 0),
        cache_written=counts.get("cache_written", 0),
        model=model,
    )


def _model(holder: dict[str, Any]) -> str:
    named = holder.get("model") or holder.get("modelVersion")
    return named if isinstance(named, str) else ""


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
