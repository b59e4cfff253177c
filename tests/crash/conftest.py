"""The outside, the nurseries and the laboratory that the campaigns share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import outside
from tests.crash.campaign import AT_ONCE, Laboratory
from tests.crash.nursery import Nursery
from tests.crash.outside import World
from tests.crash.scene import Scene


@pytest.fixture(scope="session")
def outside_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with outside.running(tmp_path_factory.mktemp("outside") / "ledger.db") as port:
        yield port


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory, outside_port: int) -> Iterator[Laboratory]:
    with contextlib.ExitStack() as stack:
        nurseries = [stack.enter_context(Nursery("tests.crash.agent50")) for _ in range(AT_ONCE)]
        yield Laboratory(tmp_path_factory.mktemp("laboratory"), outside_port, nurseries)


@pytest.fixture
def scene(tmp_path: Path, outside_port: int) -> Iterator[Scene]:
    opened = Scene(tmp_path, World(outside_port, str(tmp_path)))
    yield opened
    opened.end()
