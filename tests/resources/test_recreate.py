"""Content is put back before the run goes on; what stood in its place is kept; killed anywhere, it ends the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import resources
from perdure.bodies import Listed, Listing
from perdure.engine.recovery import acceptance
from perdure.engine.session import session
from perdure.errors import ResourceChanged, ResourceMissing
from perdure.records import Kind
from perdure.resources.folder import Scan, packed, unpacked
from perdure.resources.restore import Restoration
from perdure.store.sqlite.store import SqliteStore
from tests.engine.journals import bodies_of, newest_run, records_of
from tests.engine.world import world
from tests.sampling import every


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.step
def write_file(name: str, text: str) -> None:
    path = Path(name)
    path.write_text(text)
    path.chmod(0o640)
    perdure.track(resources.file(name), snapshot=True, on_change="recreate")


@perdure.agent
def file_agent() -> str:
    write_file("report.txt", "one")
    world.moment("written")
    return work("after")


def fill(root: Path) -> None:
    """A directory with everything a directory can hold."""
    (root / "deep" / "er").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "a.txt").write_text("a")
    (root / "same.txt").write_text("a")
    (root / "deep" / "b.txt").write_text("b")
    (root / "deep" / "er" / "tool.sh").write_text("#!/bin/sh\n")
    (root / "deep" / "er" / "tool.sh").chmod(0o755)
    (root / "link").symlink_to("deep/b.txt")
    (root / "escape").symlink_to("../../outside")


def disturb(root: Path) -> None:
    """Everything that can become of it."""
    (root / "a.txt").write_text("somebody else's")
    (root / "same.txt").unlink()
    shutil.rmtree(root / "deep" / "er")
    (root / "deep" / "er").write_text("a file where a directory was")
    (root / "deep" / "new").mkdir()
    (root / "deep" / "new" / "c.txt").write_text("c")
    (root / "link").unlink()
    (root / "link").write_text("a file where a link was")
    (root / "escape").unlink()
    (root / "escape").symlink_to("/etc")
    (root / "empty").rmdir()


def tree(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a directory, as plain data."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("dir", path.stat().st_mode & 0o777)
        else:
            found[name] = ("file", path.stat().st_mode & 0o777, path.read_text())
    return found


@perdure.step
def make_directory(name: str) -> None:
    fill(Path(name))
    perdure.track(resources.directory(name), snapshot=True, on_change="recreate")


@perdure.agent
def directory_agent(name: str) -> str:
    make_directory(name)
    world.moment("written")
    return work("after")


def test_missing_file_is_written_back_with_its_mode() -> None:
    world.killed_at("written", lambda: perdure.run(file_agent))
    Path("report.txt").unlink()
    assert perdure.run(file_agent) == "after"
    assert Path("report.txt").read_text() == "one"
    assert Path("report.txt").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in Path().glob("*report*")) == ["report.txt"]


def test_file_in_a_folder_that_is_gone_is_written_back(tmp_path: Path) -> None:
    @perdure.agent
    def deep() -> str:
        Path("x/y").mkdir(parents=True, exist_ok=True)
        write_file("x/y/report.txt", "one")
        world.moment("written")
        return work("after")

    world.killed_at("written", lambda: perdure.run(deep))
    shutil.rmtree("x")
    assert perdure.run(deep) == "after"
    assert Path("x/y/report.txt").read_text() == "one"


def test_changed_file_is_written_back_and_the_other_content_is_kept_and_told() -> None:
    world.killed_at("written", lambda: perdure.run(file_agent))
    Path("report.txt").write_text("precious")
    assert perdure.run(file_agent) == "after"
    assert Path("report.txt").read_text() == "one"
    (aside,) = Path().glob("report.txt.perdure-*")
    assert aside.read_text() == "precious"
    (observed,) = bodies_of(newest_run().run_id, Kind.OBSERVED)
    assert observed.words[0].startswith("recreated: file report.txt is 8 bytes")
    assert f"what was there is kept in {aside.absolute()}" in observed.words[0]


def test_directory_where_the_file_was_is_kept_too() -> None:
    world.killed_at("written", lambda: perdure.run(file_agent))
    Path("report.txt").unlink()
    Path("report.txt").mkdir()
    Path("report.txt/inside").write_text("precious")
    assert perdure.run(file_agent) == "after"
    assert Path("report.txt").read_text() == "one"
    (aside,) = Path().glob("report.txt.perdure-*")
    assert (aside / "inside").read_text() == "precious"


def test_file_that_must_stay_away_is_put_aside() -> None:
    @perdure.agent
    def absent() -> str:
        perdure.track(resources.file("lock"), missing_ok=True, snapshot=True, on_change="recreate")
        world.moment("written")
        return work("after")

    world.killed_at("written", lambda: perdure.run(absent))
    Path("lock").write_text("taken")
    assert perdure.run(absent) == "after"
    assert not Path("lock").exists()
    assert [path.read_text() for path in Path().glob("lock.perdure-*")] == ["taken"]


def empty(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()


@pytest.mark.parametrize("what", [disturb, shutil.rmtree, empty])
def test_directory_becomes_what_it_was_exactly(tmp_path: Path, what: Callable[[Path], object]) -> None:
    fill(tmp_path / "expected")
    world.killed_at("written", lambda: perdure.run(directory_agent, "made"))
    what(Path("made"))
    assert perdure.run(directory_agent, "made") == "after"
    assert tree(Path("made")) == tree(tmp_path / "expected")


def test_what_stood_in_a_directory_is_kept_beside_it() -> None:
    world.killed_at("written", lambda: perdure.run(directory_agent, "made"))
    disturb(Path("made"))
    perdure.run(directory_agent, "made")
    (aside,) = Path().glob("made.perdure-*")
    kept = {name: entry[-1] for name, entry in tree(aside).items() if entry[0] != "dir"}
    assert kept == {
        "a.txt": "somebody else's",
        "deep/er": "a file where a directory was",
        "deep/new/c.txt": "c",
        "link": "a file where a link was",
        "escape": "/etc",
    }


def test_nothing_is_written_through_a_link_that_somebody_put_there(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    world.killed_at("written", lambda: perdure.run(directory_agent, "made"))
    shutil.rmtree("made/deep")
    Path("made/deep").symlink_to(outside)
    assert perdure.run(directory_agent, "made") == "after"
    assert list(outside.iterdir()) == []
    assert not Path("made/deep").is_symlink()


class Dying:
    """Counts every touch of the file system and of the store while a run recovers, and dies at one of them."""

    def __init__(self, at: int) -> None:
        self._at = at

    def arm(self) -> None:
        for owner, name in (
            (os, "fsync"),
            (os, "link"),
            (Path, "rename"),
            (Path, "replace"),
            (Path, "mkdir"),
            (Path, "unlink"),
            (Path, "symlink_to"),
            (SqliteStore, "load_blob"),
            (SqliteStore, "append_all"),
        ):
            self._watch(owner, name)

    def _watch(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._pass()
            value = original(*args, **kwargs)
            self._pass()
            return value

        setattr(owner, name, watched)

    def _pass(self) -> None:
        if self._at == 0:
            world.moment("dying")
        self._at -= 1


@every(sampled=4)
def test_killed_at_any_point_of_recreating_it_ends_in_the_same_state(tmp_path: Path, stride: int) -> None:
    """Every touch of the world is a place to die; dying twice in a row at different places changes nothing."""
    fill(tmp_path / "expected")
    expected = tree(tmp_path / "expected")
    deaths = 0
    at = 0
    while True:
        name = f"made-{at}"
        world.killed_at("written", lambda: perdure.run(directory_agent, name, run_id=name))  # noqa: B023
        disturb(Path(name))

        def resume() -> None:
            Dying(at).arm()  # noqa: B023
            perdure.run(directory_agent, name, run_id=name)  # noqa: B023

        if not dies(resume):
            break
        deaths += 1
        dies(resume)
        assert perdure.run(directory_agent, name, run_id=name) == "after"
        assert tree(Path(name)) == expected, at
        (aside,) = Path().glob(f"{name}.perdure-*")
        kept = {path: entry[-1] for path, entry in tree(aside).items() if entry[0] != "dir"}
        assert kept.pop("a.txt") == "somebody else's"
        assert len(kept) == 4, (at, kept)
        assert len(records_of(name, Kind.OBSERVED)) == 1
        at += stride
    assert deaths * stride >= 10
    assert tree(Path(name)) == expected


def dies(act: Callable[[], object]) -> bool:
    """Do something in a process of its own; whether it was killed at the moment `dying`."""
    try:
        world.killed_at("dying", act)
    except AssertionError:
        return False
    return True


def test_directory_that_cannot_be_recreated_parks_with_the_reason() -> None:
    world.killed_at("written", lambda: perdure.run(directory_agent, "made"))
    run = newest_run()
    (tracked,) = bodies_of(run.run_id, Kind.STEP)[0].resources
    listing = unpacked(session().store.load_blob(bytes.fromhex(tracked.listing)))
    content = next(entry.content for entry in listing.entries if entry.path == "a.txt")
    Path("made/a.txt").unlink()
    original = SqliteStore.load_blob

    def load_blob(self: SqliteStore, digest: bytes) -> bytes:
        if digest.hex() == content:
            raise OSError(28, "No space left on device")
        return original(self, digest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteStore, "load_blob", load_blob)
        with pytest.raises(ResourceChanged, match=r"could not be recreated: OSError: .*No space left"):
            perdure.run(directory_agent, "made")
    assert perdure.run(directory_agent, "made") == "after"


def test_accepted_content_becomes_what_is_recreated_from_then_on() -> None:
    @perdure.agent
    def two_steps() -> str:
        perdure.track(resources.file("data"), snapshot=True, on_change="accept")
        world.moment("tracked")
        work("after")
        perdure.track(resources.file("other"), snapshot=True, on_change="recreate", missing_ok=True)
        world.moment("later")
        return work("end")

    Path("data").write_text("one")
    world.killed_at("tracked", lambda: perdure.run(two_steps))
    Path("data").write_text("two")
    world.killed_at("later", lambda: perdure.run(two_steps))
    assert perdure.run(two_steps) == "end"
    (observed,) = bodies_of(newest_run().run_id, Kind.OBSERVED)
    (tracked,) = observed.resources
    listing = unpacked(session().store.load_blob(bytes.fromhex(tracked.listing)))
    assert session().store.load_blob(bytes.fromhex(listing.entries[0].content)) == b"two"


def test_your_own_function_recreates_and_must_have_made_it_what_it_was() -> None:
    def fingerprint() -> str | None:
        return Path("made").read_text() if Path("made").exists() else None

    def recreate() -> None:
        world.note("recreated")
        Path("made").write_text(Path("recipe").read_text())

    def resource() -> resources.Resource:
        return resources.custom("made", fingerprint, recreate=recreate)

    @perdure.agent
    def yours() -> str:
        perdure.track(resource(), on_change="recreate")
        world.moment("tracked")
        return work("after")

    Path("made").write_text("one")
    Path("recipe").write_text("wrong")
    world.killed_at("tracked", lambda: perdure.run(yours))
    resource()
    Path("made").unlink()
    with pytest.raises(ResourceMissing, match="was recreated and still differs"):
        perdure.run(yours)
    Path("recipe").write_text("one")
    assert perdure.run(yours) == "after"
    assert world.lines == ["recreated", "recreated", "after"]


def test_person_may_accept_what_cannot_be_recreated() -> None:
    @perdure.agent
    def yours() -> str:
        made = resources.custom("made", lambda: Path("made").read_text(), recreate=lambda: None)
        perdure.track(made, on_change="recreate")
        world.moment("tracked")
        return work("after")

    Path("made").write_text("one")
    world.killed_at("tracked", lambda: perdure.run(yours))
    resources.custom("made", lambda: Path("made").read_text(), recreate=lambda: None)
    Path("made").write_text("two")
    with pytest.raises(ResourceChanged, match="still differs"):
        perdure.run(yours)
    session().store.post(acceptance(newest_run(), by="ada"))
    assert perdure.run(yours) == "after"


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "a/../../b", "", ".", "missing/child", "x\0y", "link/through"]
)
def test_listing_that_leads_out_of_its_directory_is_refused(path: str) -> None:
    entries = (Listed("link", "link", content="/etc"), Listed(path, "file", 0o644, "0" * 64, 1))
    with pytest.raises(ValueError, match="leads out of its directory"):
        unpacked(packed(Listing(entries)))


def test_links_to_directories_are_links_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("s")
    (tmp_path / "made" / "out").symlink_to("../outside")
    (tmp_path / "made" / "loop").symlink_to(".")
    listing = Scan().directory(tmp_path / "made", ())
    assert [(entry.path, entry.kind, entry.content) for entry in listing.entries] == [
        ("loop", "link", "."),
        ("out", "link", "../outside"),
    ]


def test_restoration_leaves_a_directory_that_is_right_alone(tmp_path: Path) -> None:
    fill(tmp_path / "made")
    listing = Scan().directory(tmp_path / "made", ())
    before = {path: path.lstat().st_mtime_ns for path in (tmp_path / "made").rglob("*")}

    def load(digest: str) -> bytes:
        raise AssertionError(digest)

    restoration = Restoration(load, 1)
    restoration.directory(tmp_path / "made", listing, ())
    assert restoration.aside == []
    assert {path: path.lstat().st_mtime_ns for path in (tmp_path / "made").rglob("*")} == before
