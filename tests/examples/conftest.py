from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.stage import Stage


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A folder with the example that the test's file names: test_etl.py has etl.py."""
    made = Stage(tmp_path, request.path.name.removeprefix("test_"))
    yield made
    made.end()
