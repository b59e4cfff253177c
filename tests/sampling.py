"""How much of what it could do a test does: a part whenever the tests are run, more in the campaign, or everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def every(*, sampled: int = 0, tortured: int = 0) -> pytest.MarkDecorator:
    """Give a test its `stride`: `sampled` whenever the tests are run, `tortured` in the campaign of crashes.

    With 1 nothing is left out, with 0 the test is. What the campaign leaves out is among the exhaustive tests.
    """
    whole = [pytest.param(1, marks=pytest.mark.exhaustive)] if tortured != 1 else []
    campaign = [pytest.param(tortured, marks=pytest.mark.torture)] if tortured else []
    return pytest.mark.parametrize("stride", [*whole, *campaign, *([sampled] if sampled else [])])


def seeds(count: int, *, sampled: int) -> pytest.MarkDecorator:
    """Give a test a `seed`: the first few whenever the tests are run, each of so many in the exhaustive tests."""
    later = (pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(sampled, count))
    return pytest.mark.parametrize("seed", [*range(sampled), *later])


def points(found: Sequence[T], stride: int) -> list[T]:
    """The first, the last, and every so many between."""
    return [point for number, point in enumerate(found) if number % stride == 0 or number == len(found) - 1]
