"""The kit is tested with its own fixtures; the project of a user in here is tested from outside."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from perdure.testing import stores
from perdure.testing.crash import nursery, oracle
from tests import postgres, warm

collect_ignore = ["users_suite"]


@pytest.fixture(autouse=True)
def one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests of this process share a server, wherever they get it from."""
    monkeypatch.setattr(stores, "server_url", postgres.server_url)


@pytest.fixture(autouse=True)
def warm_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two processes of every laboratory come from one that has loaded perdure; commands start their own anew."""
    started = SimpleNamespace(**{**vars(subprocess), "Popen": warm.Popen})
    monkeypatch.setattr(nursery, "subprocess", started)
    monkeypatch.setattr(oracle, "subprocess", started)
