"""A working directory: kept at every step, found again elsewhere, never half."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure import resources
from perdure.engine.recovery import acceptance
from perdure.engine.session import close_sessions, session
from perdure.errors import ResourceChanged, ResourceMissing, UnstorableValue, UsageError
from perdure.records import Kind
from perdure.resources.folder import unpacked
from perdure.store.protocol import Finding
from perdure.store.sqlite.store import SqliteStore
from tests.engine.journals import bodies_of, newest_run, records_of, state_of
from tests.engine.world import world


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.step
def make(name: str, text: str) -> None:
    world.note(f"make {name}")
    path = perdure.workdir() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    world.moment(f"making {name}")


@perdure.step
async def make_async(name: str, text: str) -> None:
    await asyncio.sleep(0)
    (perdure.workdir() / name).write_text(text)


@perdure.agent
def building() -> list[str]:
    folder = perdure.workdir()
    make("one.txt", "1")
    make("sub/two.txt", "22")
    world.moment("made")
    make("three.txt", "333")
    return sorted(str(path.relative_to(folder)) for path in folder.path.rglob("*.txt"))


@perdure.agent
async def building_async() -> list[str]:
    folder = perdure.workdir()
    await asyncio.gather(*(make_async(f"{number}.txt", str(number)) for number in range(3)))
    world.moment("made")
    await make_async("3.txt", "3")
    return sorted(path.name for path in folder.path.iterdir())


def listings(run_id: str) -> list[dict[str, int]]:
    """What each checkpoint of the run holds, oldest first."""
    found = []
    for body in bodies_of(run_id, Kind.STEP, Kind.RECEIPT, Kind.OBSERVED):
        for tracked in body.resources:
            listing = unpacked(session().store.load_blob(bytes.fromhex(tracked.listing)))
            found.append({entry.path: entry.size for entry in listing.entries if entry.kind == "file"})
    return found


def test_every_step_that_changed_something_is_a_checkpoint() -> None:
    assert perdure.run(building, run_id="r") == ["one.txt", "sub/two.txt", "three.txt"]
    assert listings("r") == [
        {},
        {"one.txt": 1},
        {"one.txt": 1, "sub/two.txt": 2},
        {"one.txt": 1, "sub/two.txt": 2, "three.txt": 3},
    ]


def test_directory_that_is_gone_is_made_again_and_no_step_is_repeated() -> None:
    world.killed_at("made", lambda: perdure.run(building))
    shutil.rmtree("store/work")
    assert perdure.run(building) == ["one.txt", "sub/two.txt", "three.txt"]
    assert world.lines == ["make one.txt", "make sub/two.txt", "make three.txt"]


def test_run_moved_with_its_store_to_another_place_finds_its_files_there(tmp_path: Path) -> None:
    world.killed_at("made", lambda: perdure.run(building))
    close_sessions()
    elsewhere = tmp_path / "other machine"
    elsewhere.mkdir()
    for file in (tmp_path / "store").glob("perdure.db*"):
        shutil.move(file, elsewhere / file.name)
    shutil.rmtree(tmp_path / "store")
    perdure.configure(store=elsewhere / "perdure.db")
    assert perdure.run(building) == ["one.txt", "sub/two.txt", "three.txt"]
    made = elsewhere / "work" / newest_run().name
    assert (made / "sub" / "two.txt").read_text() == "22"
    assert not (tmp_path / "store").exists()


def test_named_directory_is_found_relative_to_where_the_run_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @perdure.step
    def put() -> None:
        (perdure.workdir("out") / "a.txt").write_text("a")

    @perdure.agent
    def named() -> str:
        perdure.workdir("out")
        put()
        world.moment("made")
        return Path("out/a.txt").read_text()

    world.killed_at("made", lambda: perdure.run(named))
    shutil.rmtree("out")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert perdure.run(named) == "a"
    assert (tmp_path / "elsewhere" / "out" / "a.txt").read_text() == "a"


def test_async_steps_are_checkpoints_too() -> None:
    world.killed_at("made", lambda: asyncio.run(building_async()))
    shutil.rmtree("store/work")
    assert asyncio.run(building_async()) == ["0.txt", "1.txt", "2.txt", "3.txt"]


def test_step_that_was_killed_starts_from_the_checkpoint_before_it() -> None:
    """What the killed step left behind is put aside: the step finds what it found the first time."""
    world.killed_at("making sub/two.txt", lambda: perdure.run(building))
    folder = Path("store/work") / newest_run().name
    assert (folder / "sub/two.txt").exists()
    (folder / "one.txt").write_text("not by the run")
    perdure.run(building)
    assert (folder / "one.txt").read_text() == "1"
    (aside,) = folder.parent.glob("*.perdure-*")
    assert (aside / "one.txt").read_text() == "not by the run"
    assert (aside / "sub/two.txt").read_text() == "22"
    assert listings(newest_run().run_id)[-1] == {"one.txt": 1, "sub/two.txt": 2, "three.txt": 3}


def test_changes_park_where_that_was_asked_for() -> None:
    @perdure.agent
    def strict() -> str:
        perdure.workdir(on_change="park")
        make("one.txt", "1")
        world.moment("made")
        return work("after")

    world.killed_at("made", lambda: perdure.run(strict))
    (Path("store/work") / newest_run().name / "one.txt").write_text("2")
    with pytest.raises(ResourceChanged, match=r"working directory of the run .* has changed: one.txt has changed"):
        perdure.run(strict)


def test_unchanged_content_is_stored_once(store: Path) -> None:
    @perdure.agent
    def repeating() -> None:
        folder = perdure.workdir()
        (folder / "big").write_bytes(bytes(range(256)) * 400)
        for number in range(5):
            make(f"{number}.txt", "the same text")
        make("0.txt", "the same text")

    perdure.run(repeating, run_id="r")
    (blobs,) = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY).execute(
        "SELECT count(*), sum(length(stored)) FROM blobs"
    )
    count, size = blobs
    assert count == 2 + 6, "two contents and six listings"
    assert size < 110_000
    steps = bodies_of("r", Kind.STEP)
    assert [len(step.resources) for step in steps] == [1, 1, 1, 1, 1, 1, 0]


def test_change_that_no_time_shows_is_kept() -> None:
    """Written twice within one tick of the clock, with the same size and the same time."""

    @perdure.step
    def twice(text: str) -> None:
        import os

        path = perdure.workdir() / "f"
        path.write_text(text)
        os.utime(path, ns=(10**18, 10**18))

    @perdure.agent
    def quick() -> None:
        perdure.workdir()
        twice("a")
        twice("b")

    perdure.run(quick, run_id="r")
    *_, last = (tracked for body in bodies_of("r", Kind.STEP) for tracked in body.resources)
    listing = unpacked(session().store.load_blob(bytes.fromhex(last.listing)))
    assert session().store.load_blob(bytes.fromhex(listing.entries[0].content)) == b"b"


def test_explicit_checkpoint_keeps_what_the_agent_itself_wrote() -> None:
    @perdure.agent
    def direct() -> str:
        folder = perdure.workdir()
        if not (folder / "x").exists():
            (folder / "x").write_text("x")
            folder.checkpoint()
        folder.checkpoint()
        world.moment("kept")
        return work((folder / "x").read_text())

    world.killed_at("kept", lambda: perdure.run(direct))
    assert len(records_of(newest_run().run_id, Kind.OBSERVED)) == 1
    shutil.rmtree("store/work")
    assert perdure.run(direct) == "x"


@pytest.mark.parametrize("side", ["append", "appended"])
def test_snapshot_and_step_are_kept_together_or_not_at_all(side: str) -> None:
    def dies_at_the_second_make() -> None:
        original = SqliteStore.append_all

        def append_all(self: SqliteStore, batch: Any, *, power: bool) -> Any:
            is_it = any("sub/two.txt" in record.body for append in batch for record in append.records)
            if is_it:
                world.moment("append")
            outcomes = original(self, batch, power=power)
            if is_it:
                world.moment("appended")
            return outcomes

        SqliteStore.append_all = append_all  # type: ignore[method-assign]
        perdure.run(building)

    world.killed_at(side, dies_at_the_second_make)
    is_kept = side == "appended"
    assert listings(newest_run().run_id)[-1] == ({"one.txt": 1} | ({"sub/two.txt": 2} if is_kept else {}))
    shutil.rmtree("store/work")
    assert perdure.run(building) == ["one.txt", "sub/two.txt", "three.txt"]
    assert world.count("make sub/two.txt") == (1 if is_kept else 2)


def test_too_much_content_parks_after_the_step_is_saved_and_goes_on_with_a_higher_limit() -> None:
    limit = [2000]

    @perdure.agent
    def growing() -> str:
        perdure.workdir(size_limit=limit[0])
        make("small", "x" * 500)
        make("large", "x" * 5000)
        return work("after")

    with pytest.raises(UnstorableValue, match=r"working directory of the run .* cannot be kept: .*the limit is"):
        perdure.run(growing)
    assert state_of(newest_run().run_id) == "waiting (parked)"
    limit[0] = 100_000
    assert perdure.run(growing) == "after"
    assert world.count("make large") == 1
    assert listings(newest_run().run_id)[-1] == {"small": 500, "large": 5000}


def test_directory_that_cannot_be_read_parks_and_the_work_of_the_step_is_not_put_aside() -> None:
    @perdure.step
    def misname() -> None:
        folder = perdure.workdir()
        (folder / "good.txt").write_text("g")
        (folder / os.fsdecode(b"\xff")).write_text("a name that is no text")

    @perdure.agent
    def careless() -> str:
        folder = perdure.workdir()
        misname()
        return work((folder / "good.txt").read_text())

    with pytest.raises(ResourceMissing, match=r"could not be looked at: .*is not text"):
        perdure.run(careless)
    assert len(records_of(newest_run().run_id, Kind.STEP)) == 2
    folder = Path("store/work") / newest_run().name
    (folder / os.fsdecode(b"\xff")).unlink()
    with pytest.raises(ResourceChanged, match=r"has changed: good\.txt is new"):
        perdure.run(careless)
    session().store.post(acceptance(newest_run(), by="ada"))
    assert perdure.run(careless) == "g"


def test_effects_are_checkpoints_too() -> None:
    @perdure.effect
    def deploy() -> str:
        (perdure.workdir() / "receipt.txt").write_text("paid")
        return "done"

    @perdure.agent
    def deploying() -> str:
        folder = perdure.workdir()
        deploy()
        world.moment("deployed")
        work("after")
        return (folder / "receipt.txt").read_text()

    world.killed_at("deployed", lambda: perdure.run(deploying))
    shutil.rmtree("store/work")
    assert perdure.run(deploying) == "paid"


def test_ignored_files_are_neither_kept_nor_touched() -> None:
    @perdure.agent
    def tidy() -> str:
        folder = perdure.workdir(ignore=["*.tmp", "cache"])
        make("keep.txt", "k")
        make("junk.tmp", "j")
        make("cache/x", "x")
        world.moment("made")
        return work(",".join(sorted(path.name for path in folder.path.iterdir())))

    world.killed_at("made", lambda: perdure.run(tidy))
    folder = Path("store/work") / newest_run().name
    (folder / "keep.txt").unlink()
    assert perdure.run(tidy) == "cache,junk.tmp,keep.txt"
    assert listings(newest_run().run_id)[-1] == {"keep.txt": 1}


def test_step_cannot_open_a_directory_that_the_agent_has_not() -> None:
    @perdure.agent
    def careless() -> None:
        make("x", "y")

    with pytest.raises(UsageError, match="the agent has not opened that directory"):
        perdure.run(careless)


def test_outside_a_run_it_is_a_plain_directory(tmp_path: Path) -> None:
    folder = perdure.workdir(tmp_path / "plain")
    (folder / "x").write_text("x")
    folder.checkpoint()
    assert folder.path == tmp_path / "plain"
    assert perdure.workdir().path.is_dir()


def test_verify_names_kept_content_that_is_gone(store: Path) -> None:
    @perdure.agent
    def kept() -> None:
        Path("data").write_text("precious")
        perdure.track(resources.file("data"), snapshot=True)
        work("after")

    perdure.run(kept)
    close_sessions()
    connection = apsw.Connection(str(store))
    connection.execute("DELETE FROM blobs WHERE length(stored) = (SELECT min(length(stored)) FROM blobs)")
    connection.close()
    findings = [found for found in session().store.check() if isinstance(found, Finding)]
    assert any("is missing" in found.what for found in findings), findings
