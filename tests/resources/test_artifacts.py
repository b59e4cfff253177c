"""Artifacts: files that stay with a run."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import perdure
from perdure.engine.session import close_sessions
from perdure.errors import CheckpointCorrupt, ResourceMissing, UnknownRun, UnstorableValue, UsageError
from tests.engine.journals import calls_of, newest_run
from tests.engine.world import world


@perdure.step
def render(text: str) -> perdure.Artifact:
    Path("page.html").write_text(text)
    return perdure.artifact("page.html", name="index.html")


@perdure.agent
def publishing() -> list[str]:
    Path("report.txt").write_text("first")
    report = perdure.artifact("report.txt")
    world.moment("kept")
    page = render("<p>")
    Path("report.txt").write_text("second")
    again = perdure.artifact("report.txt")
    return [artifact.read().decode() for artifact in (report, page, again)]


def test_artifacts_keep_the_content_of_their_moment() -> None:
    assert perdure.run(publishing, run_id="r") == ["first", "<p>", "second"]
    for key in ("r", newest_run().name):
        found = perdure.artifacts(key)
        assert [(each.name, each.size) for each in found] == [("report.txt", 5), ("index.html", 3), ("report.txt", 6)]
        assert [each.read() for each in found] == [b"first", b"<p>", b"second"]
    assert [name for _, _, name in calls_of("r")] == ["perdure.artifact", "render", "perdure.artifact"]


def test_artifact_outlives_a_kill_and_its_file() -> None:
    world.killed_at("kept", lambda: perdure.run(publishing))
    (kept,) = perdure.artifacts(newest_run().run_id)
    assert kept.read() == b"first"
    assert perdure.run(publishing) == ["first", "<p>", "second"]
    assert len(perdure.artifacts(newest_run().run_id)) == 3


def test_same_content_is_stored_once(store: Path) -> None:
    @perdure.agent
    def repeating() -> None:
        for name in ("a", "b"):
            Path(name).write_text("same")
            perdure.artifact(name)

    perdure.run(repeating)
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (1,)


def test_artifact_is_saved_to_a_path_or_into_a_directory(tmp_path: Path) -> None:
    perdure.run(publishing, run_id="r")
    kept = perdure.artifacts("r")[1]
    assert kept.save(tmp_path / "copy.html").read_text() == "<p>"
    (tmp_path / "folder").mkdir()
    assert kept.save(tmp_path / "folder") == tmp_path / "folder" / "index.html"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["index.html"]


def test_damaged_content_is_named_and_never_handed_out(store: Path) -> None:
    perdure.run(publishing, run_id="r")
    close_sessions()
    connection = apsw.Connection(str(store))
    connection.execute("UPDATE blobs SET stored = CAST('rforged' AS BLOB)")
    connection.close()
    with pytest.raises(CheckpointCorrupt, match="is damaged"):
        perdure.artifacts("r")[0].read()


@pytest.mark.parametrize(("path", "said"), [("missing", "does not exist"), (".", "is no file")])
def test_what_is_no_file_is_refused(path: str, said: str) -> None:
    @perdure.agent
    def wrong() -> None:
        perdure.artifact(path, name="x")

    with pytest.raises(ResourceMissing, match=said):
        perdure.run(wrong)


def test_too_large_a_file_is_refused_with_its_size() -> None:
    @perdure.agent
    def large() -> None:
        Path("large").write_bytes(bytes(3 * 1024 * 1024))
        perdure.artifact("large", size_limit=1024 * 1024)

    with pytest.raises(UnstorableValue, match=r"its content is 3\.0 MB or more, the limit is 1 MB"):
        perdure.run(large)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\nb", "x" * 201, 3])
def test_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="artifact: name="):
        perdure.artifact("x", name=name)


@pytest.mark.parametrize("limit", [0, -1, "many"])
def test_unusable_limit_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="size_limit"):
        perdure.artifact("x", size_limit=limit)


def test_unknown_run_is_named() -> None:
    with pytest.raises(UnknownRun, match="no run 'nobody'"):
        perdure.artifacts("nobody")


def test_outside_a_run_an_artifact_is_only_looked_at() -> None:
    Path("x").write_text("x")
    assert perdure.artifact("x").size == 1
