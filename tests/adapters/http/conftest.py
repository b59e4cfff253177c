"""A model server for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.testing.model_server import ModelServer


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving
