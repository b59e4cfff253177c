"""What faults are made of: a disk whose power can be cut, damage by seed, a server that is killed and comes back."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from perdure.errors import PerdureError, UsageError
from perdure.records import Run
from perdure.store.sqlite import SqliteStore
from perdure.testing.crash import damage
from perdure.testing.crash.disk import Disk, refuse_without_rights
from perdure.testing.crash.server import Server
from tests.chaos.server import Server as PrivateServer
from tests.crash.nursery import environment
from tests.postgres import private_server
from tests.store.journals import claimed, created, land, step

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def can_cut_power() -> bool:
    try:
        refuse_without_rights()
    except UsageError:
        return False
    return True


needs_power = pytest.mark.skipif(not can_cut_power(), reason="a file system in a file needs root and mkfs.ext4")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing users needs root")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    made.make()
    yield made
    made.remove()


@needs_power
def test_what_was_synced_survives_the_loss_of_power_and_what_was_not_is_gone(disk: Disk) -> None:
    synced, unsynced = disk.place / "synced", disk.place / "unsynced"
    with synced.open("w") as file:
        file.write("kept")
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(disk.place, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    unsynced.write_text("only in memory")
    disk.lose_power()
    disk.start_again()
    assert synced.read_text() == "kept"
    assert not unsynced.exists() or unsynced.read_text() == ""


@needs_root
def test_without_root_the_power_cannot_be_cut_and_the_error_says_so(tmp_path: Path) -> None:
    command = "from perdure.testing.crash.disk import refuse_without_rights as ask\nask()"
    ended = as_nobody(command, tmp_path)
    assert ended.returncode != 0
    assert "needs root" in ended.stderr


def as_nobody(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python as a user without rights, who must be able to read this checkout."""
    command = [*NOBODY, sys.executable, "-P", "-c", code]
    probe = [*NOBODY, sys.executable, "-P", "-c", "import perdure"]
    if subprocess.run(probe, env=environment(), cwd="/", capture_output=True, check=False).returncode:
        pytest.skip("the unprivileged user cannot read this checkout")
    return subprocess.run(command, env=environment(), cwd="/", capture_output=True, text=True, check=False)


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    """A store with a run of some steps, as a kill leaves it: everything is in the log."""
    path = tmp_path / "written" / "perdure.db"
    store = SqliteStore(path)
    created(store)
    run = claimed(store)
    for number in range(6):
        run = land(store, step(run, value=f'"value {number}"'))
    left = tmp_path / "left" / "perdure.db"
    damage.copy_store(path, left.parent)
    store.close()
    return left


@pytest.mark.parametrize("kind", damage.KINDS)
@pytest.mark.parametrize("is_settled", [False, True], ids=["in the log", "in the database"])
def test_same_seed_does_the_same_harm_and_every_harm_changes_the_files(
    store_file: Path, tmp_path: Path, kind: str, *, is_settled: bool
) -> None:
    if is_settled:
        damage.settle_in_place(store_file)
    damage.copy_store(store_file, tmp_path / "copy")
    before = contents(store_file)
    first = damage.harm(store_file, kind, 7)
    harmed = contents(store_file)
    damage.put_back(store_file, tmp_path / "copy")
    assert contents(store_file) == before
    assert damage.harm(store_file, kind, 7) == first
    assert first is not None
    assert contents(store_file) == harmed != before
    places = {str(first)}
    for seed in range(10):
        damage.put_back(store_file, tmp_path / "copy")
        places.add(str(damage.harm(store_file, kind, seed)))
    assert len(places) > 3


def contents(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in store.parent.iterdir() if not file.name.endswith("-shm")}


def test_flipped_value_still_reads_like_a_record(store_file: Path) -> None:
    damage.settle_in_place(store_file)
    damage.harm(store_file, "value", 1)
    with contextlib.closing(SqliteStore(store_file, create=False)) as store:
        (finding,) = [found for found in store.check() if not isinstance(found, Run)]
    assert "digest does not match" in finding.what


def test_server_is_killed_and_comes_back_by_its_own_command_line_with_what_it_acknowledged() -> None:
    with private_server() as private:
        with psycopg.connect(private.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        server = Server(private.url)
        first = server.postmaster
        try:
            for _ in range(2):
                server.kill()
                with pytest.raises(psycopg.OperationalError):
                    psycopg.connect(private.url, connect_timeout=5).close()
                server.start_again()
            with psycopg.connect(private.url) as connection:
                assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]
            again = server.postmaster
            assert (again.command[1:], again.user, again.folder) == (first.command[1:], first.user, first.folder)
            assert again.pid != first.pid
        finally:
            server.kill()


@pytest.fixture(scope="module")
def private() -> Iterator[PrivateServer]:
    """A server that nobody here kills."""
    with private_server() as server:
        yield server


def test_server_that_others_use_is_not_killed(private: PrivateServer) -> None:
    server = Server(private.url)
    server.refuse_strangers()
    with (
        psycopg.connect(private.url, application_name="payroll"),
        pytest.raises(UsageError, match=r"1 are connected .*payroll"),
    ):
        server.refuse_strangers()


def test_server_at_another_address_is_not_killed(tmp_path: Path) -> None:
    address = own_address()
    with socket.create_server((address, 0)) as listener:
        port = listener.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="perdure-pg-"))
    private = PrivateServer(folder, address=address, port=port, enter=[], network=f"{address}/32")
    try:
        private.start()
        with pytest.raises(UsageError, match=f"this one is at {address}"):
            Server(private.url)
    finally:
        private.stop()
        shutil.rmtree(folder, ignore_errors=True)


def own_address() -> str:
    """An address of this machine that other machines may know it by."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only the route is looked up
        except OSError:
            pytest.skip("this machine has no address but the loopback")
        return str(probe.getsockname()[0])


@needs_root
def test_server_of_another_user_is_not_killed_without_rights(private: PrivateServer, tmp_path: Path) -> None:
    ended = as_nobody(f"from perdure.testing.crash.server import Server\nServer({private.url!r})", tmp_path)
    assert ended.returncode != 0
    assert "it belongs to another user" in ended.stderr


def test_server_that_is_away_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(PerdureError, match="cannot be reached"):
        Server(f"postgresql://postgres@127.0.0.1:{port}/postgres")
