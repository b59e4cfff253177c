"""`perdure resume --accept`, `perdure show` and a script that parks, from outside: real processes, really killed."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces.conftest import Place

AGENT = """
    from perdure import resources

    @perdure.step
    def edit(text: str) -> None:
        pathlib.Path("report.txt").write_text(text)
        perdure.track(resources.file("report.txt"), snapshot=True, on_change=os.environ.get("POLICY", "park"))

    @perdure.step
    def finish() -> str:
        if os.environ.get("KILL") == "finish":
            os.kill(os.getpid(), signal.SIGKILL)
        return pathlib.Path("report.txt").read_text()

    @perdure.agent
    def work() -> str:
        edit("draft")
        if os.environ.get("KILL") == "agent":
            os.kill(os.getpid(), signal.SIGKILL)
        return finish()

    if __name__ == "__main__":
        print("result:", perdure.run(work))
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.write("work.py", AGENT)
    yield made
    made.end()


def killed(place: Place, **environment: str) -> str:
    assert place.python("work.py", KILL="agent", **environment).code == -signal.SIGKILL
    return place.name()


def test_script_that_finds_a_change_says_what_is_safe_and_what_to_do_and_exits_with_5(place: Place) -> None:
    name = killed(place)
    (place.folder / "report.txt").write_text("by hand")
    result = place.python("work.py")
    assert result.code == 5, result
    happened, safe, do = result.err.splitlines()
    assert happened.startswith(f"perdure: Run {name}: file report.txt is 7 bytes, digest ")
    assert "; it was 5 bytes, digest " in happened
    assert safe == "   safe: its one completed step is saved; nothing was performed."
    assert do.endswith(f"perdure resume {name} --accept")
    shown = place.perdure("show", name)
    assert "file report.txt is 7 bytes" in shown.out
    assert f"perdure resume {name} --accept" in shown.out


def test_accept_and_code_go_on_in_one_command(place: Place) -> None:
    name = killed(place)
    (place.folder / "report.txt").write_text("by hand")
    assert place.perdure("resume", name, "--app", "work.py").code == 5
    result = place.perdure("resume", name, "--accept", "--app", "work.py")
    assert result.code == 0, result
    assert result.out == '"by hand"\n'
    assert "accepted: file report.txt is 7 bytes" in result.err
    assert "accepted: file report.txt is 7 bytes" in place.perdure("show", name).out


def test_accept_without_code_is_taken_up_by_the_script(place: Place) -> None:
    name = killed(place)
    (place.folder / "report.txt").write_text("by hand")
    place.python("work.py")
    result = place.perdure("resume", name, "--accept")
    assert result.code == 0, result
    assert "accepted by " in result.err
    assert place.python("work.py").out == "result: by hand\n"


def test_accept_survives_a_kill_of_the_process_that_took_it_up(place: Place) -> None:
    name = killed(place)
    (place.folder / "report.txt").write_text("by hand")
    place.python("work.py")
    place.perdure("resume", name, "--accept")
    assert place.python("work.py", KILL="finish").code == -signal.SIGKILL
    assert place.python("work.py").out == "result: by hand\n"


def test_accept_of_a_run_that_is_not_parked_for_it_is_refused(place: Place) -> None:
    name = killed(place)
    result = place.perdure("resume", name, "--accept", "--app", "work.py")
    assert result.code == 2, result
    assert "is not parked because of a resource" in result.err


def test_recreated_file_is_told_with_where_the_other_content_is(place: Place) -> None:
    killed(place, POLICY="recreate")
    (place.folder / "report.txt").write_text("by hand")
    result = place.python("work.py")
    assert result.out == "result: draft\n"
    assert "recreated: file report.txt is 7 bytes" in result.err
    (aside,) = place.folder.glob("report.txt.perdure-*")
    assert str(aside) in result.err
    assert aside.read_text() == "by hand"


def test_killed_run_goes_on_on_another_machine_with_the_files_it_had_made(place: Place, tmp_path: Path) -> None:
    """Only the script and the database get there; the folder in which the run worked does not."""
    place.write(
        "build.py",
        """
        @perdure.step
        def build(name: str) -> None:
            with open("log.txt", "a") as log:
                print(name, file=log)
            (perdure.workdir() / name).write_text(name * 1000)

        @perdure.agent
        def site() -> str:
            work = perdure.workdir()
            build("a.html")
            build("b.html")
            if os.environ.get("KILL"):
                os.kill(os.getpid(), signal.SIGKILL)
            build("c.html")
            return " ".join(sorted(f"{path.name}:{path.stat().st_size}" for path in work.path.iterdir()))

        if __name__ == "__main__":
            print(perdure.run(site))
        """,
    )
    assert place.python("build.py", KILL="1").code == -signal.SIGKILL
    other = tmp_path / "other machine"
    (other / ".perdure").mkdir(parents=True)
    shutil.copy(place.folder / "build.py", other)
    for file in (place.folder / ".perdure").glob("perdure.db*"):
        shutil.move(file, other / ".perdure")
    shutil.rmtree(place.folder / ".perdure")
    elsewhere = Place(other)
    assert elsewhere.python("build.py").out == "a.html:6000 b.html:6000 c.html:6000\n"
    assert elsewhere.lines("log.txt") == ["c.html"]


def test_look_that_hangs_does_not_keep_the_process_from_ending(place: Place) -> None:
    place.write(
        "hang.py",
        """
        import threading
        from perdure import resources

        def fingerprint():
            if os.environ.get("HANG"):
                threading.Event().wait()
            return 1

        resources.custom("thing", fingerprint)

        @perdure.agent
        def work() -> str:
            perdure.track(resources.custom("thing", fingerprint), timeout=0.5)
            if os.environ.get("KILL"):
                os.kill(os.getpid(), signal.SIGKILL)
            return "done"

        if __name__ == "__main__":
            print(perdure.run(work))
        """,
    )
    assert place.python("hang.py", KILL="1").code == -signal.SIGKILL
    result = place.python("hang.py", HANG="1")
    assert result.code == 5, result
    assert "took longer than its time of 0.5 s" in result.err
    assert place.python("hang.py").out == "done\n"
