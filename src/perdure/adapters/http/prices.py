"""What tokens cost: a short table of well-known models, and what a project says in `[tool.perdure.prices]`.

The table is as of June 2026, in US dollars a million tokens, without discounts for batches and surcharges for long
prompts. A model that it does not name has no price: none is guessed from its name.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure import typed
from perdure.errors import InvalidSettings
from perdure.settings import project_table

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.adapters.http.usage import Usage

_MILLION: Final = 1_000_000
_MODELS_REMEMBERED: Final = 256


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """What a million tokens of a model cost, in US dollars."""

    input: float
    output: float = 0.0
    cached: float | None = None
    """Read from a cache; as `input` where it is not said."""
    cache_written: float | None = None
    """Read, and written to a cache; as `input` where it is not said."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"0 or more is expected for {name}")


class Prices:
    """The prices in force."""

    def __init__(self, own: Mapping[str, Price] | None = None) -> None:
        self._own = dict(own or {})

    def of(self, model: str) -> Price | None:
        """The price of a model; None where nobody has said it."""
        for name, price in self._own.items():
            if name == model or fnmatch.fnmatchcase(model, name):
                return price
        return _TABLE.get(family(model))

    def dollars(self, usage: Usage) -> float:
        """What these tokens cost; 0 where the model has no price, which `of` tells apart."""
        price = self.of(usage.model)
        if price is None:
            return 0.0
        plain = max(0, usage.tokens_in - usage.cached - usage.cache_written)
        cached = price.input if price.cached is None else price.cached
        written = price.input if price.cache_written is None else price.cache_written
        total = plain * price.input + usage.cached * cached + usage.cache_written * written
        return (total + usage.tokens_out * price.output) / _MILLION


def current_prices(directory: Path | None = None) -> Prices:
    """The prices in force for this project."""
    table, where = project_table("prices", directory)
    return prices_from(table, where=where)


def prices_from(table: Mapping[str, Any], *, where: str) -> Prices:
    """The prices of a project: `"my-model*" = { input = 1.0, output = 4.0 }`; what cannot be used is refused."""
    return Prices({name: _read(name, value, where) for name, value in table.items()})


@functools.lru_cache(maxsize=_MODELS_REMEMBERED)
def family(model: str) -> str:
    """The name of a model without who serves it and without its date: what a price goes by."""
    name = model.rpartition("/")[2].lower()
    name = _VENDOR.sub("", name)
    return _DATED.sub("", name)


_VENDOR: Final = re.compile(r"^(?:(?:us|eu|apac|jp|au|global|us-gov)\.)?(?:anthropic|openai|google)\.")
_DATED: Final = re.compile(r"(?:[-@](?:\d{4}-\d{2}-\d{2}|\d{8}|latest|\d{3}))?(?:-v\d+(?::\d+)?)?$")
_TABLE: Final = {
    "gpt-5.5": Price(5, 30, 0.5),
    "gpt-5.4": Price(2.5, 15, 0.25),
    "gpt-5.4-mini": Price(0.75, 4.5, 0.075),
    "gpt-5.4-nano": Price(0.2, 1.25, 0.02),
    "gpt-5": Price(1.25, 10, 0.125),
    "gpt-5-mini": Price(0.25, 2, 0.025),
    "gpt-5-nano": Price(0.05, 0.4, 0.005),
    "gpt-4.1": Price(2, 8, 0.5),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.1),
    "gpt-4o": Price(2.5, 10, 1.25),
    "gpt-4o-mini": Price(0.15, 0.6, 0.075),
    "o4-mini": Price(1.1, 4.4, 0.275),
    "claude-opus-4-8": Price(5, 25, 0.5, 6.25),
    "claude-opus-4-7": Price(5, 25, 0.5, 6.25),
    "claude-opus-4-6": Price(5, 25, 0.5, 6.25),
    "claude-opus-4-5": Price(5, 25, 0.5, 6.25),
    "claude-sonnet-4-6": Price(3, 15, 0.3, 3.75),
    "claude-sonnet-4-5": Price(3, 15, 0.3, 3.75),
    "claude-haiku-4-5": Price(1, 5, 0.1, 1.25),
    "gemini-2.5-pro": Price(1.25, 10, 0.125),
    "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.01),
    "text-embedding-3-small": Price(0.02),
    "text-embedding-3-large": Price(0.13),
}


def _read(name: str, value: Any, where: str) -> Price:
    try:
        return typed.convert(value, Price)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidSettings(
            f"{where}: the price of {name} cannot be used: {error}.",
            safe="nothing was started.",
            hint=f'write: "{name}" = {{ input = 1.0, output = 4.0 }}, in dollars a million tokens',
        ) from error
