"""The kit is tested with its own fixtures; the project of a user in here is tested from outside."""

from __future__ import annotations

import pytest

from perdure.testing import stores
from tests import postgres

collect_ignore = ["users_suite"]


@pytest.fixture(autouse=True)
def one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests of this process share a server, wherever they get it from."""
    monkeypatch.setattr(stores, "server_url", postgres.server_url)
