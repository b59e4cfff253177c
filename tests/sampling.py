"""How much of a campaign a test does: every point in the long campaigns, a part of them whenever the tests are run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def every(*, sampled: int) -> pytest.MarkDecorator:
    """Give a test its `stride`: 1 in the long campaigns, `sampled` otherwise."""
    return pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.torture), sampled])


def seeds(count: int, *, sampled: int) -> pytest.MarkDecorator:
    """Give a test a `seed`: each of so many in the long campaigns, the first few otherwise."""
    later = (pytest.param(seed, marks=pytest.mark.torture) for seed in range(sampled, count))
    return pytest.mark.parametrize("seed", [*range(sampled), *later])


def points(found: Sequence[T], stride: int) -> list[T]:
    """The first, the last, and every so many between."""
    return [point for number, point in enumerate(found) if number % stride == 0 or number == len(found) - 1]
