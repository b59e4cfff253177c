"""Nothing is begun where its records may not fit, or may not be written; what is recorded can still be read."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces.conftest import Place

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="file systems are mounted by root")

APP = """
    @perdure.step
    def fetch(page: int) -> int:
        with open("../log.txt", "a") as file:
            file.write(f"fetch {page}\\n")
        return page

    @perdure.agent
    def report(pages: int) -> int:
        return sum(fetch(page) for page in range(pages))

    if __name__ == "__main__":
        print("result:", perdure.run(report, 3))
"""


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting is not allowed: {done.stderr.strip()}")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder on a file system of 20 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=20m,mode=700", "tmpfs", str(folder))
    made = Place(folder)
    made.write("app.py", APP)
    try:
        yield made
        made.end()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def refusals(place: Place, words: str, **environment: str) -> None:
    for result in (
        place.perdure("start", "app.py:report", "pages=2", **environment),
        place.python("app.py", **environment),
        place.perdure("run", "app.py", **environment),
    ):
        assert result.code == 6, result
        assert words in result.err, result
        assert "   safe: nothing was started" in result.err or "   safe: every step" in result.err, result
        assert "     do: " in result.err, result
        assert "Traceback" not in result.err


@needs_root
def test_little_room_refuses_to_start_and_to_claim_before_any_work(place: Place) -> None:
    log = place.folder.parent / "log.txt"
    accepted = place.perdure("start", "app.py:report", "pages=3", "--json").json()["run_id"]
    filler = place.folder / "filler"
    filler.write_bytes(bytes(6_000_000))
    refusals(place, "has room for")
    resumed = place.perdure("resume", accepted, "--app", "app.py")
    assert (resumed.code, "has room for" in resumed.err) == (6, True), resumed
    assert not log.exists()
    for reading in (["ls"], ["show", accepted], ["ps"], ["logs", accepted], ["verify"]):
        assert place.perdure(*reading).code == 0
    assert place.perdure("doctor").code == 6
    filler.unlink()
    assert place.perdure("resume", accepted, "--app", "app.py").code == 0
    assert log.read_text().splitlines() == ["fetch 0", "fetch 1", "fetch 2"]


@needs_root
def test_less_room_can_be_asked_for(place: Place) -> None:
    (place.folder / "filler").write_bytes(bytes(12_000_000))
    refusals(place, "has room for")
    assert place.python("app.py", PERDURE_ROOM_MB="1").code == 0


@needs_root
def test_read_only_file_system_is_named_and_a_copy_can_be_read(place: Place, tmp_path: Path) -> None:
    accepted = place.perdure("start", "app.py:report", "pages=3", "--json").json()["run_id"]
    mount("-o", "remount,ro", str(place.folder))
    refusals(place, "may not be written")
    resumed = place.perdure("resume", accepted, "--app", "app.py")
    assert (resumed.code, "may not be written" in resumed.err) == (6, True), resumed
    assert not (place.folder.parent / "log.txt").exists()
    copied = tmp_path / "copied"
    shutil.copytree(place.database.parent, copied)
    assert accepted in place.perdure("ls", "--store", str(copied / "perdure.db"), "--json").out
