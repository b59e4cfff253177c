"""Servers, roles and URLs that cannot be used: three lines and the right exit code, and a password in none of them."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from perdure import clock
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.location import read_location
from tests.chaos.server import Server
from tests.faces.conftest import Place, Result
from tests.postgres import private_server, schema_url, server_url

SECRET = "hunter2-canary"
APP = """
    @perdure.step
    def fetch(page: int) -> int:
        return page

    @perdure.agent
    def report(pages: int) -> int:
        return sum(fetch(page) for page in range(pages))

    if __name__ == "__main__":
        print("result:", perdure.run(report, 3))
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.write("app.py", APP)
    made.environment["PERDURE_OPEN_SECONDS"] = "3"
    yield made
    made.end()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks for a password."""
    with private_server() as server:
        with server.connected() as connection:
            connection.execute(f"CREATE ROLE ada LOGIN PASSWORD '{SECRET}'")
            connection.execute("CREATE DATABASE records OWNER ada")
            ((rules,),) = connection.execute("SHOW hba_file").fetchall()
            Path(rules).write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
            connection.execute("SELECT pg_reload_conf()")
        yield server


def told(place: Place, url: str) -> list[Result]:
    """What a command that looks, one that acts, a script, and a script under `perdure run` say to this store."""
    place.environment["PERDURE_STORE"] = url
    return [
        place.perdure("ls"),
        place.perdure("ls", "--store", url),
        place.perdure("start", "app.py:report", "pages=3"),
        place.python("app.py"),
        place.perdure("run", "app.py"),
        place.perdure("worker", "app.py"),
    ]


def assert_refused(results: list[Result], *, code: int, words: str, hint: str = "") -> None:
    for result in results:
        assert result.code == code, result
        assert words in result.err, result
        assert "   safe: " in result.err, result
        assert "     do: " in result.err, result
        assert hint in result.err, result
        assert "Traceback" not in result.err, result
        assert "canary" not in result.out + result.err, result


class TestAddress:
    @pytest.mark.parametrize(
        ("url", "words", "hint"),
        [
            (f"postgres:/ada:{SECRET}@host/db", "not followed by //", "postgresql://"),
            (f"postgresq://ada:{SECRET}@host/db", "is no kind of store", "did you mean postgresql://?"),
            (f"postgresql://ada:{SECRET}@host:54x2/db", "'54x2' is no port", "postgresql://"),
            (f"postgresql://ada:{SECRET}@host:99999/db", "'99999' is no port", "postgresql://"),
            (f"postgresql://ada:{SECRET}@host/db?conect_timeout=3", "no option", "did you mean connect_timeout=?"),
            (f"postgresql://ada:{SECRET}@host/db?shema=x", "no option", "did you mean schema=?"),
            (f"postgresql://ada:{SECRET}@host/db?schema=No-Name", "no name of a schema", "lower case"),
            (f"postgresql://ada:{SECRET}@host/db?portable=perhaps", "portable", "portable=true"),
            (f"postgresql://ada:a/{SECRET}@host/db", "its password", "%2F"),
            (f"postgresql://ada:a#{SECRET}@host/db", "its password", "%23"),
            (f"postgresql://ada:a?{SECRET}@host/db", "its password", "%3F"),
            (f"postgresql://ada:{SECRET}@[::1/db", "no URL", "postgresql://"),
            (f"postgresql://ada:pa%zz{SECRET}@host/db", "a % in its password is not followed by the two", "%25"),
            (f"postgresql://ada:100%{SECRET}@host/db", "a % in its password is not followed by the two", "%25"),
            (f"postgresql://ada:{SECRET}%00@host/db", "a % in its password is not followed by the two", "%25"),
            (f"postgresql://ada:{SECRET}%FF@host/db", "with % in its password is no UTF-8", "%25"),
            (f"postgresql://ada:{SECRET}@host/d%b", "a % in its database is not followed by the two", "%25"),
        ],
    )
    def test_url_with_a_typo_is_named(self, place: Place, url: str, words: str, hint: str) -> None:
        place.environment["PERDURE_STORE"] = url
        results = [place.perdure("ls"), place.perdure("worker", "app.py", "--store", url), place.python("app.py")]
        assert_refused(results, code=2, words=words, hint=hint)

    def test_host_that_refuses_is_waited_for_within_a_bound_and_named(self, place: Place) -> None:
        results = told(place, f"postgresql://ada:{SECRET}@127.0.0.1:1/db")
        assert_refused(results, code=6, words="cannot be reached", hint="host and port")
        *people, worker = results
        assert all("perdure: waiting for postgresql://ada@127.0.0.1:1/db" in result.err for result in people), people
        assert '"event":"store_awaited"' in worker.err

    def test_host_that_never_answers_is_given_up_within_a_bound(self, place: Place) -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:  # what is sent there is swallowed
            url = f"postgresql://ada:{SECRET}@127.0.0.1:{mute.getsockname()[1]}/db?connect_timeout=2"
            begun = clock.elapsed_seconds()
            result = place.perdure("ls", PERDURE_STORE=url)
            assert clock.elapsed_seconds() - begun < 30
        assert_refused([result], code=6, words="cannot be reached")

    def test_password_is_in_no_hint_that_names_the_store(self, place: Place) -> None:
        with schema_url() as url:
            parts = urlsplit(url)
            named = parts._replace(netloc=f"postgres:{SECRET}@{parts.hostname or ''}").geturl()
            for arguments in (["ps"], ["ls"], ["show", "nothing"], ["doctor"], ["gc"], ["verify"], ["resume", "x"]):
                result = place.perdure(*arguments, "--store", named)
                assert "canary" not in result.out + result.err, result
                assert "Traceback" not in result.err
            assert place.perdure("start", "app.py:report", "pages=3", "--store", named).code == 0
            for arguments in (["ps"], ["show", "-"], ["cancel", "-"], ["doctor"], ["ls", "--json"]):
                result = place.perdure(*arguments, "--store", named)
                assert "canary" not in result.out + result.err, result


class TestPassword:
    def test_wrong_one_is_named_at_once(self, place: Place, guarded: Server) -> None:
        parts = urlsplit(guarded.url)
        url = parts._replace(netloc=f"ada:{SECRET}-wrong@{parts.hostname}:{parts.port}", path="/records").geturl()
        results = told(place, url)
        assert_refused(results, code=6, words="does not accept the password", hint="PGPASSWORD")
        assert not any("waiting" in result.err for result in results)

    def test_missing_one_is_named_at_once(self, place: Place, guarded: Server) -> None:
        parts = urlsplit(guarded.url)
        url = parts._replace(netloc=f"ada@{parts.hostname}:{parts.port}", path="/records").geturl()
        assert_refused(told(place, url), code=6, words="does not accept the password", hint="PGPASSWORD")

    def test_right_one_works_and_is_shown_nowhere(self, place: Place, guarded: Server) -> None:
        parts = urlsplit(guarded.url)
        url = parts._replace(netloc=f"ada:{SECRET}@{parts.hostname}:{parts.port}", path="/records").geturl()
        place.environment["PERDURE_STORE"] = url
        for result in (place.python("app.py"), place.perdure("ls"), place.perdure("doctor"), place.perdure("show")):
            assert result.code == 0, result
            assert "canary" not in result.out + result.err

    def test_unknown_database_and_unknown_role_are_named(self, place: Place, guarded: Server) -> None:
        parts = urlsplit(guarded.near_url)
        missing = parts._replace(path="/not_there").geturl()
        assert_refused(told(place, missing), code=6, words="has no database 'not_there'", hint="createdb not_there")
        stranger = parts._replace(netloc="stranger@").geturl()
        assert_refused(told(place, stranger), code=6, words="no role 'stranger'", hint="createuser stranger")

    def test_server_without_free_connections_is_named(self, place: Place, guarded: Server) -> None:
        with guarded.connected() as connection:
            connection.execute("CREATE DATABASE crowded CONNECTION LIMIT 0")
            connection.execute("GRANT ALL ON DATABASE crowded TO ada")
        parts = urlsplit(guarded.url)
        url = parts._replace(netloc=f"ada:{SECRET}@{parts.hostname}:{parts.port}", path="/crowded").geturl()
        result = place.perdure("ls", PERDURE_STORE=url)
        assert_refused([result], code=6, words="no more connections", hint="max_connections")


@contextlib.contextmanager
def admin(url: str) -> Iterator[psycopg.Connection[Any]]:
    location = read_location(url)
    with psycopg.connect(location.url, autocommit=True) as connection:
        yield connection


@contextlib.contextmanager
def role_without_rights(url: str) -> Iterator[tuple[str, str]]:
    """A role that may log in, and the same store by its name."""
    name = f"r_{clock.new_token(8)}"
    with admin(url) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
    parts = urlsplit(url)
    try:
        yield name, parts._replace(netloc=f"{name}:{SECRET}@{parts.hostname or ''}").geturl()
    finally:
        with admin(url) as connection:
            connection.execute(f"DROP OWNED BY {name}")
            connection.execute(f"DROP ROLE {name}")


class TestRights:
    def test_role_that_may_make_nothing_is_told_who_can(self, place: Place) -> None:
        with schema_url() as url, role_without_rights(url) as (name, theirs):
            schema = read_location(url).schema
            acting = told(place, theirs)[2:]
            assert_refused(acting, code=6, words="may not do this", hint=f"GRANT USAGE ON SCHEMA {schema} TO {name}")
            assert all("perdure migrate" in result.err for result in acting)

    def test_role_that_may_only_read_can_look_and_is_told_what_it_lacks(self, place: Place) -> None:
        with schema_url() as url, role_without_rights(url) as (name, theirs):
            PostgresStore(url).close()
            schema = read_location(url).schema
            with admin(url) as connection:
                connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
                connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {name}")
            results = told(place, theirs)
            assert [result.code for result in results[:2]] == [0, 0], results
            grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {name}"
            assert_refused(results[2:], code=6, words="may not do this", hint=grant)

    def test_what_the_hint_says_is_enough(self, place: Place) -> None:
        with schema_url() as url, role_without_rights(url) as (_, theirs):
            PostgresStore(url).close()
            place.environment["PERDURE_STORE"] = theirs
            refused = place.python("app.py")
            for _ in range(3):
                statements = [word.strip() for word in refused.err.split(";") if "GRANT" in word]
                with admin(url) as connection:
                    for statement in statements:
                        connection.execute(statement[statement.index("GRANT") :])
                refused = place.python("app.py")
                if refused.code == 0:
                    break
            assert refused.code == 0, refused


class TestReadOnly:
    def test_server_that_only_lets_itself_be_read_can_be_looked_at_and_starts_nothing(self, place: Place) -> None:
        name = f"d_{clock.new_token(8)}"
        with psycopg.connect(server_url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
            try:
                url = urlsplit(server_url())._replace(path=f"/{name}").geturl()
                PostgresStore(url).close()
                connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
                results = told(place, url)
                assert [result.code for result in results[:2]] == [0, 0], results
                assert_refused(results[2:], code=6, words="only lets itself be read", hint="name the primary")
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_newer_schema_is_refused_and_nothing_is_written(place: Place) -> None:
    with schema_url() as url:
        PostgresStore(url).close()
        schema = read_location(url).schema
        with admin(url) as connection:
            connection.execute(f"UPDATE {schema}.meta SET version = 99")  # noqa: S608
            before = connection.execute(f"SELECT count(*) FROM {schema}.workers").fetchall()  # noqa: S608
        assert_refused(told(place, url), code=6, words="schema version 99", hint="pip install --upgrade perdure")
        assert_refused([place.perdure("migrate", PERDURE_STORE=url)], code=6, words="schema version 99")
        with admin(url) as connection:
            assert connection.execute(f"SELECT version FROM {schema}.meta").fetchall() == [(99,)]  # noqa: S608
            assert connection.execute(f"SELECT count(*) FROM {schema}.workers").fetchall() == before  # noqa: S608


def test_missing_psycopg_is_named_with_the_command_that_installs_it(place: Place) -> None:
    (place.folder / "without").mkdir()
    (place.folder / "without" / "psycopg.py").write_text("raise ImportError('No module named psycopg')\n")
    path = f"{place.folder / 'without'}:{place.environment['PYTHONPATH']}"
    for arguments in (["-m", "perdure", "ls"], ["app.py"]):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=place.folder,
            env={**place.environment, "PYTHONPATH": path, "PERDURE_STORE": f"postgresql://ada:{SECRET}@h/db"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert_refused([Result(done)], code=2, words="needs psycopg", hint="pip install 'perdure[postgres]'")


class TestDoctor:
    def checks(self, place: Place, url: str, *, code: int) -> dict[str, list[tuple[str, str, str]]]:
        """What was looked at, and how it is."""
        result = place.perdure("doctor", "--json", PERDURE_STORE=url)
        assert result.code == code, result
        found: dict[str, list[tuple[str, str, str]]] = {}
        for check in result.json()["checks"]:
            found.setdefault(check["about"], []).append((check["level"], check["message"], check["fix"]))
        return found

    def test_server_that_can_be_used_is_ready(self, place: Place) -> None:
        with schema_url() as url:
            assert "perdure migrate" in self.checks(place, url, code=0)["store"][0][1]
            PostgresStore(url).close()
            found = self.checks(place, url, code=0)
        for about in ("server", "durability", "connections", "schema", "rights", "clock", "workers"):
            assert found[about][0][0] == "ok", found

    @pytest.mark.parametrize("has_schema", [True, False], ids=["schema", "database"])
    def test_role_that_cannot_make_the_tables_is_told_what_it_lacks_and_the_grant_is_enough(
        self, place: Place, *, has_schema: bool
    ) -> None:
        with schema_url() as url, role_without_rights(url) as (name, theirs):
            schema = read_location(url).schema
            with admin(url) as connection:
                if has_schema:
                    connection.execute(f"CREATE SCHEMA {schema}")
                    connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
            level, message, fix = self.checks(place, theirs, code=6)["store"][0]
            assert (level, f"role {name} cannot make it" in message) == ("problem", True)
            with admin(url) as connection:
                connection.execute(fix.partition(";")[0])
            assert self.checks(place, theirs, code=0)["store"][0][0] == "ok"
            place.environment["PERDURE_STORE"] = theirs
            assert place.python("app.py").code == 0

    def test_role_that_cannot_bring_the_tables_up_to_date_is_told_who_can(self, place: Place) -> None:
        with schema_url() as url, role_without_rights(url) as (name, theirs):
            PostgresStore(url).close()
            schema = read_location(url).schema
            with admin(url) as connection:
                connection.execute(f"UPDATE {schema}.meta SET version = version - 1")  # noqa: S608 - our own table
                connection.execute(f"GRANT ALL ON SCHEMA {schema} TO {name}")
                connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {name}")
                ((owner,),) = connection.execute("SELECT current_user").fetchall()
            level, message, fix = self.checks(place, theirs, code=6)["schema"][0]
            assert (level, f"the tables are {owner}'s" in message) == ("problem", True)
            assert fix == f"perdure migrate, as {owner}"

    def test_role_that_may_not_even_enter_the_schema_is_told_the_grant(self, place: Place) -> None:
        with schema_url() as url, role_without_rights(url) as (name, theirs):
            PostgresStore(url).close()
            schema = read_location(url).schema
            level, _, fix = self.checks(place, theirs, code=6)["store"][0]
            assert level == "problem"
            assert f"GRANT USAGE ON SCHEMA {schema} TO {name}" in fix

    def test_each_problem_is_named_with_its_fix(self, place: Place, guarded: Server) -> None:
        with schema_url() as url, role_without_rights(url) as (name, theirs):
            PostgresStore(url).close()
            schema = read_location(url).schema
            with admin(url) as connection:
                connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
                connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {name}")
            level, message, fix = self.checks(place, theirs, code=6)["rights"][0]
            assert (level, "lacks INSERT on" in message, f"TO {name}" in fix) == ("problem", True, True)
        parts = urlsplit(guarded.url)
        url = parts._replace(netloc=f"ada:{SECRET}-wrong@{parts.hostname}:{parts.port}", path="/records").geturl()
        assert "does not accept the password" in self.checks(place, url, code=6)["store"][0][1]
        assert "cannot be reached" in self.checks(place, "postgresql://ada@127.0.0.1:1/db", code=6)["store"][0][1]
