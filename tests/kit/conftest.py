"""The kit is tested with its own fixtures; the project of a user in here is tested from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import stores
from perdure.testing.crash import nursery, oracle
from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.options import Options
from perdure.testing.crash.subject import agent_subject
from tests import postgres
from tests.kit.typed import WARM

collect_ignore = ["users_suite"]


@pytest.fixture
def campaign(tmp_path: Path) -> Callable[..., Report]:
    """A campaign of an agent, two trials at once."""

    def play(agent: Callable[..., Any], *args: Any, mode: str = "every", **options: Any) -> Report:
        with Laboratory(agent_subject(agent, *args), Options(jobs=2, folder=str(tmp_path), **options)) as laboratory:
            return laboratory.campaign(mode)

    return play


@pytest.fixture(autouse=True)
def one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests of this process share a server, wherever they get it from."""
    monkeypatch.setattr(stores, "server_url", postgres.server_url)


@pytest.fixture(autouse=True)
def warm_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two processes of every laboratory come from those that have loaded perdure."""
    monkeypatch.setattr(nursery, "subprocess", WARM)
    monkeypatch.setattr(oracle, "subprocess", WARM)
