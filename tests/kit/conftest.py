"""The kit is tested with its own fixtures; the project of a user in here is tested from outside."""

from __future__ import annotations

import pytest

from perdure.testing import stores
from perdure.testing.crash import nursery, oracle
from tests import postgres
from tests.kit.typed import WARM

collect_ignore = ["users_suite"]


@pytest.fixture(autouse=True)
def one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests of this process share a server, wherever they get it from."""
    monkeypatch.setattr(stores, "server_url", postgres.server_url)


@pytest.fixture(autouse=True)
def warm_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two processes of every laboratory come from those that have loaded perdure."""
    monkeypatch.setattr(nursery, "subprocess", WARM)
    monkeypatch.setattr(oracle, "subprocess", WARM)
