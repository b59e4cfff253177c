"""What only a store on a server can meet: lost answers, lost sessions, restarts, and servers that cannot be used."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest

from perdure import clock
from perdure.bodies import read_body
from perdure.errors import (
    InternalError,
    InvalidSettings,
    LeaseLost,
    PerdureError,
    RunHeld,
    SchemaTooNew,
    StoreUnavailable,
)
from perdure.records import Kind
from perdure.store import open_store
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.location import read_location
from perdure.store.postgres.presence import life_key
from perdure.store.writer import Writer
from tests import warm
from tests.postgres import private_server, schema_url, server_url
from tests.store.journals import TERMS, claimed, created, held_run, large_step, letter, outcome_of, step
from tests.store.proxy import Proxy


@pytest.fixture
def url() -> Iterator[str]:
    with schema_url() as made:
        yield made


@pytest.fixture
def opened(url: str) -> Iterator[Any]:
    """Opens stores on the same records, and closes them."""
    with contextlib.ExitStack() as stack:
        yield lambda where=url: stack.enter_context(contextlib.closing(PostgresStore(where)))


@contextlib.contextmanager
def admin(url: str) -> Iterator[psycopg.Connection[Any]]:
    location = read_location(url)
    with psycopg.connect(location.url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {location.schema}")
        yield connection


def outcome_of_beat(store: PostgresStore, worker_id: str) -> PerdureError | None:
    try:
        store.beat(worker_id)
    except PerdureError as error:
        return error
    return None


HOLDERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = %s"


class TestLostAnswer:
    """The commit landed and nobody was told, or it never arrived: in both cases it is in the journal once."""

    @pytest.mark.parametrize("when", ["request", "answer"])
    def test_append_lands_once(self, url: str, opened: Any, when: Any) -> None:
        with Proxy(url) as wire:
            store = opened(wire.url)
            run = held_run(store)
            first = step(run)
            assert outcome_of(store, first) is None
            second = step(first.run)
            wire.cut_once(when, second.records[0].key.encode())
            assert outcome_of(store, second) is None
            assert wire.cuts == 1
            journal = store.load_journal(run.run_id)
            assert [record.digest for record in journal][-2:] == [first.records[0].digest, second.records[0].digest]
            assert store.read_run(run.run_id) == second.run

    def test_append_lands_once_on_a_line_that_ended_with_the_server_while_nobody_used_it(self) -> None:
        with private_server() as server, contextlib.closing(PostgresStore(server.url)) as store:
            first = step(held_run(store))
            assert outcome_of(store, first) is None
            server.kill()
            server.start()
            second = step(first.run)
            assert outcome_of(store, second) is None
            assert store.read_run(second.run.run_id) == second.run

    @pytest.mark.parametrize("when", ["request", "answer"])
    def test_batch_of_several_runs_lands_once(self, url: str, opened: Any, when: Any) -> None:
        with Proxy(url) as wire:
            store = opened(wire.url)
            first = [step(held_run(store, f"run-{number}")) for number in range(3)]
            assert store.append_all(first, power=True) == [None] * 3
            second = [step(append.run) for append in first]
            wire.cut_once(when, second[0].records[0].key.encode())
            assert store.append_all(second, power=True) == [None] * 3
            assert wire.cuts == 1
            assert [store.read_run(append.run.run_id) for append in second] == [append.run for append in second]
            assert [len(store.load_journal(append.run.run_id)) for append in second] == [4] * 3

    @pytest.mark.parametrize("when", ["request", "answer"])
    def test_append_with_a_large_value_and_mail_lands_once(self, url: str, opened: Any, when: Any) -> None:
        with Proxy(url) as wire:
            store = opened(wire.url)
            run = held_run(store)
            posted = store.post(letter())
            append = msgspec.structs.replace(large_step(run, b"page " * 20_000), taken=(posted.mail_id,))
            wire.cut_once(when, b"COMMIT")
            assert outcome_of(store, append) is None
            assert wire.cuts == 1
            assert store.read_run(run.run_id) == append.run
            assert [mail.taken for mail in store.read_mail(run.run_id)] == [append.run.length]

    def test_append_that_was_fenced_out_meanwhile_is_refused(self, url: str, opened: Any) -> None:
        with Proxy(url) as wire:
            store, other = opened(wire.url), opened()
            run = held_run(store)
            append = step(run)
            wire.cut_once("request", append.records[0].key.encode())
            wire.is_down = True
            refused: list[Any] = []

            def late() -> None:
                refused.append(outcome_of(store, append))

            sender = threading.Thread(target=late)
            sender.start()
            wire.hang_up()
            taken = claimed(other)
            wire.is_down = False
            sender.join(60)
            assert isinstance(refused[0], LeaseLost)
            assert other.read_run(run.run_id) == taken

    @pytest.mark.parametrize("when", ["request", "answer"])
    def test_run_is_accepted_once(self, url: str, opened: Any, when: Any) -> None:
        with Proxy(url) as wire:
            store = opened(wire.url)
            store.join()
            wire.cut_once(when, b"COMMIT")
            run = created(store)
            assert wire.cuts == 1
            assert store.read_run(run.run_id) == run
            assert len(store.load_journal(run.run_id)) == 1


class TestSessions:
    def test_lost_session_frees_the_run_at_once_and_its_holder_is_fenced(self, url: str, opened: Any) -> None:
        store, other = opened(), opened()
        run = held_run(store)
        key = life_key(store.join().worker_id)
        with admin(url) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                " AND ((classid::bigint << 32) | objid::bigint) = %s",
                (key,),
            )
        assert not other.is_running(run, stall_seconds=TERMS.stall_seconds)
        taken = claimed(other)
        assert taken.epoch == run.epoch + 1
        assert isinstance(outcome_of(store, step(run)), LeaseLost)

    def test_lost_session_is_no_proof_of_death(self, url: str, opened: Any) -> None:
        store, other = opened(), opened()
        held_run(store)
        store._life.line._drop()  # noqa: SLF001 - the session ends, the process lives
        claimed(other)
        delivery = read_body(other.load_journal("run-1")[-1])
        assert 25 < delivery.unproven_seconds <= 30
        assert "connection to the store ended" in delivery.before

    def test_closed_store_is_known_to_be_gone(self, opened: Any) -> None:
        store, other = opened(), opened()
        held_run(store)
        store.close()
        claimed(other)
        assert read_body(other.load_journal("run-1")[-1]).unproven_seconds == 0

    @pytest.mark.parametrize("sign", ["beat", "read_worker"])
    def test_holder_that_lost_its_session_is_alive_again_at_its_next_sign(self, opened: Any, sign: str) -> None:
        store, other = opened(), opened()
        run = held_run(store)
        store._life.line._drop()  # noqa: SLF001 - as a restart of the server would
        assert not other.is_running(run, stall_seconds=TERMS.stall_seconds)
        getattr(store, sign)(store.join().worker_id)
        assert other.is_running(run, stall_seconds=TERMS.stall_seconds)

    def test_sign_of_life_on_a_line_over_which_nothing_comes_is_given_up_and_given_on_another(
        self, url: str, opened: Any
    ) -> None:
        with Proxy(url) as wire, contextlib.closing(PostgresStore(wire.url, lease_seconds=3.0)) as store:
            run = held_run(store)
            other = opened()
            worker_id = store.join().worker_id
            before = other.read_worker(worker_id)
            wire.freeze()
            beats: list[BaseException | None] = []
            beating = threading.Thread(target=lambda: beats.append(outcome_of_beat(store, worker_id)), daemon=True)
            beating.start()
            beating.join(30)
            assert "nothing came from the server" in str(beats[0])
            for _ in range(50):  # the session that hangs has the lock, and is ended first
                with contextlib.suppress(StoreUnavailable):
                    store.beat(worker_id)
                    break
            after = other.read_worker(worker_id)
            assert other.is_running(run, stall_seconds=TERMS.stall_seconds)
            assert after is not None
            assert before is not None
            assert after.beat_at > before.beat_at

    def test_session_that_hangs_behind_a_dead_connection_is_ended_by_the_next(self, url: str, opened: Any) -> None:
        """The server still counts it among the living, and its lock would keep the worker from ever beating again."""
        with Proxy(url) as wire:
            store, other = opened(wire.url), opened()
            run = held_run(store)
            store.beat(store.join().worker_id)
            wire.keep_servers = True
            wire.hang_up()
            with admin(url) as connection:
                (before,) = connection.execute(HOLDERS, (life_key(store.join().worker_id),)).fetchall()
                for _ in range(50):
                    with contextlib.suppress(PerdureError):
                        store.beat(store.join().worker_id)
                    (holder,) = connection.execute(HOLDERS, (life_key(store.join().worker_id),)).fetchall() or [None]
                    if holder is not None and holder != before:
                        break
                assert holder not in (None, before)
            assert other.is_running(run, stall_seconds=TERMS.stall_seconds)


def test_mail_of_a_run_is_numbered_in_the_order_of_its_commits(opened: Any) -> None:
    """Otherwise a run that has heard of a number would miss one below it that is committed later."""
    stores = [opened() for _ in range(6)]
    created(stores[0])
    seen: list[list[int]] = []
    done = threading.Event()

    def watch() -> None:
        reader = opened()
        while not done.is_set():
            seen.append([mail.mail_id for mail in reader.read_mail("run-1")])

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda store: [store.post(letter()) for _ in range(25)], stores))
    done.set()
    watcher.join(60)
    assert len(stores[0].read_mail("run-1")) == 150
    assert len(seen) > 3
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(seen))


def test_one_answer_of_many_at_once_counts(opened: Any) -> None:
    stores = [opened() for _ in range(8)]
    created(stores[0])
    with ThreadPoolExecutor(8) as pool:
        kinds = list(pool.map(lambda store: store.post(letter(), once=True).kind, stores))
    assert sorted(kinds) == ["refused"] * 7 + ["verdict"]


def test_two_that_claim_at_once_get_one_run(opened: Any) -> None:
    stores = [opened() for _ in range(8)]
    created(stores[0])

    def attempt(store: PostgresStore) -> int:
        try:
            return claimed(store).epoch
        except PerdureError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(attempt, stores))
    assert sorted(epochs) == [0] * 7 + [1]


def test_any_number_of_processes_may_start_at_once_on_a_new_database(url: str) -> None:
    code = f"from perdure.store import open_store; s = open_store({url!r}); print(s.created); s.close()"
    children = [
        warm.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    outcomes = [child.communicate(timeout=60) for child in children]
    assert sorted(out.strip() for out, _ in outcomes) == ["False"] * 5 + ["True"], outcomes


class TestUnusable:
    def refusal(self, location: str, **options: Any) -> PerdureError:
        with pytest.raises(PerdureError) as refused:
            open_store(location, seconds=0.5, **options)
        assert refused.value.safe
        assert refused.value.hint
        return refused.value

    def test_nobody_listens(self) -> None:
        error = self.refusal("postgresql://ada:secret@127.0.0.1:1/nowhere")
        assert isinstance(error, StoreUnavailable)
        assert "cannot be reached" in error.message
        assert "secret" not in "\n".join(error.lines())

    def test_no_such_database(self) -> None:
        parts = urlsplit(server_url())
        error = self.refusal(parts._replace(path="/not_there").geturl())
        assert "not_there" in error.message

    def test_url_with_a_typo(self, url: str) -> None:
        assert isinstance(self.refusal(f"{url}&conect_timeout=3"), InvalidSettings)
        assert isinstance(self.refusal(f"{server_url()}&schema=No-Name"), InvalidSettings)
        assert isinstance(self.refusal("postgress://ada@host/db"), InvalidSettings)

    def test_nothing_there_yet_is_only_looked_at(self, url: str) -> None:
        assert "no store" in self.refusal(url, create=False).message

    def test_newer_schema_is_refused_and_nothing_is_written(self, url: str, opened: Any) -> None:
        opened()
        with admin(url) as connection:
            connection.execute("UPDATE meta SET version = 99")
        for create in (True, False):
            assert isinstance(self.refusal(url, create=create), SchemaTooNew)

    def test_role_without_rights(self, url: str, opened: Any) -> None:
        opened()
        role = f"r{os.getpid()}_{read_location(url).schema}"
        with admin(url) as connection:
            connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        try:
            parts = urlsplit(url)
            where = parts._replace(netloc=f"{role}:x@{parts.hostname or ''}").geturl()
            refusals = [self.refusal(where, create=create) for create in (True, False)]
            assert [type(error) for error in refusals] == [StoreUnavailable, StoreUnavailable]
            assert all("may not" in error.message for error in refusals)
        finally:
            with admin(url) as connection:
                connection.execute(f"DROP ROLE {role}")

    def test_forked_child_is_refused(self, opened: Any) -> None:
        store = opened()
        run = held_run(store)
        pid = os.fork()
        if pid == 0:
            try:
                store.read_run(run.run_id)
            except PerdureError:
                os._exit(7)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert store.read_run(run.run_id) == run


def test_steps_that_need_no_sync_are_committed_without_one(url: str, opened: Any) -> None:
    store = opened()
    first = step(held_run(store))
    assert store.append_all([first], power=False) == [None]
    assert [record.kind for record in store.load_journal("run-1")][-1] == Kind.STEP


class TestLanes:
    def test_commits_on_several_lines_keep_every_journal_whole(self, opened: Any) -> None:
        store = opened()
        writer = Writer(store)
        runs = {f"run-{number}": held_run(store, f"run-{number}") for number in range(12)}

        def work(run_id: str) -> None:
            for _ in range(15):
                append = step(runs[run_id])
                writer.wait(writer.submit(append))
                runs[run_id] = append.run

        with ThreadPoolExecutor(len(runs)) as pool:
            list(pool.map(work, list(runs)))
        assert [store.read_run(run_id) for run_id in runs] == list(runs.values())
        assert [len(store.load_journal(run_id)) for run_id in runs] == [2 + 15] * len(runs)

    def test_append_lands_after_the_server_was_told_to_forget_its_statements(self, opened: Any) -> None:
        """A refused claim is rolled back, and psycopg then lets the server forget what was prepared on that line."""
        store, other = opened(), opened()
        mine, theirs = held_run(store, "mine"), held_run(other, "theirs")
        for round_number in range(3):
            for number in range(4):  # often enough for psycopg to prepare what a claim asks
                held_run(store, f"run-{round_number}-{number}")
            append = step(mine)
            assert outcome_of(store, append) is None
            mine = append.run
            with pytest.raises(RunHeld):
                store.claim_run(theirs.run_id, store.join().worker_id, TERMS)
        assert store.read_run("mine") == mine

    def test_append_after_one_that_was_interrupted_has_a_line_at_once(
        self, opened: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer to the first may still come: nobody reads it, least of all as that to the second."""
        store = opened()
        interrupted, next_one = step(held_run(store, "interrupted")), step(held_run(store, "next"))

        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(store._writer._connection, "poll", interrupt)  # noqa: SLF001 - as Ctrl-C while it waits
        with pytest.raises(KeyboardInterrupt):
            store.append_all([interrupted], power=True)
        monkeypatch.setattr(clock, "sleep", lambda _: pytest.fail("the line that was closed was used again"))
        stale = msgspec.structs.replace(next_one.run, epoch=next_one.run.epoch - 1)
        assert isinstance(outcome_of(store, msgspec.structs.replace(next_one, run=stale)), LeaseLost)
        assert outcome_of(store, next_one) is None
        assert store.read_run("next") == next_one.run

    def test_one_append_that_the_server_refuses_does_not_keep_the_others_of_its_batch_out(self, opened: Any) -> None:
        store = opened()
        good, bad = step(held_run(store, "good")), step(held_run(store, "bad"))
        record = msgspec.structs.replace(bad.records[0], name="a\0b")  # a text that PostgreSQL cannot hold
        outcomes = store.append_all([good, msgspec.structs.replace(bad, records=(record,))], power=True)
        assert outcomes[0] is None
        assert isinstance(outcomes[1], InternalError)
        assert store.read_run("good") == good.run
