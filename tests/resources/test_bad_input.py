"""What cannot be tracked is refused where it is asked for, with what to do."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import resources
from perdure.bodies import Tracked
from perdure.errors import PerdureError, ResourceMissing, UnstorableValue, UsageError
from perdure.resources.difference import difference
from perdure.resources.folder import Memory, Scan
from perdure.resources.kinds import Fingerprint
from perdure.resources.look import Look, Seen, see, see_all
from tests.engine.journals import calls_of, newest_run


async def coroutine() -> int:
    return 1


def hidden_coroutine() -> object:
    return coroutine()


UNUSABLE: dict[str, Callable[[], Any]] = {
    "no path": lambda: resources.file(""),
    "a number as a path": lambda: resources.file(3),  # type: ignore[arg-type]
    "bytes as a path": lambda: resources.file(b"x"),  # type: ignore[arg-type]
    "a path with a null": lambda: resources.file("a\0b"),
    "a path that is no text": lambda: resources.file("\udcff"),
    "an endless path": lambda: resources.directory("x" * 5000),
    "ignore as a text": lambda: resources.directory(".", ignore="*.pyc"),
    "ignore with a number": lambda: resources.directory(".", ignore=[3]),  # type: ignore[list-item]
    "a branch that is an option": lambda: resources.git_branch(".", "--upload-pack=x"),
    "a branch with a space": lambda: resources.git_branch(".", "a b"),
    "a branch that is an expression": lambda: resources.git_commit(".", "HEAD:file"),
    "no branch": lambda: resources.git_branch(".", ""),
    "a file as an address": lambda: resources.url("file:///etc/hosts"),
    "an address without a host": lambda: resources.url("http://"),
    "an address with a wrong port": lambda: resources.url("http://x:99999/"),
    "an address that is no text": lambda: resources.url(None),  # type: ignore[arg-type]
    "an address with a password": lambda: resources.url("https://ada:pass@example.com/"),
    "an unknown method": lambda: resources.url("http://x/", method="POST"),  # type: ignore[arg-type]
    "a variable that cannot be": lambda: resources.env("A=B"),
    "no variable": lambda: resources.env(""),
    "no name": lambda: resources.custom("", int),
    "no function": lambda: resources.custom("x", 3),  # type: ignore[arg-type]
    "a coroutine function": lambda: resources.custom("x", coroutine),
    "a recreate that is none": lambda: resources.custom("x", int, recreate=3),  # type: ignore[arg-type]
    "no resource": lambda: perdure.track("report.txt"),  # type: ignore[arg-type]
    "a typo in on_change": lambda: perdure.track(resources.cwd(), on_change="acept"),
    "a negative timeout": lambda: perdure.track(resources.cwd(), timeout=-1),
    "a timeout of nothing": lambda: perdure.track(resources.cwd(), timeout=0),
    "an endless timeout": lambda: perdure.track(resources.cwd(), timeout=float("inf")),
    "a timeout that is no number": lambda: perdure.track(resources.cwd(), timeout="5"),  # type: ignore[arg-type]
    "a size that is none": lambda: perdure.track(resources.file("x"), snapshot=True, size_limit=-1),
    "a snapshot of an address": lambda: perdure.track(resources.url("http://x/"), snapshot=True),
    "recreating a branch": lambda: perdure.track(resources.git_branch(".", "b"), on_change="recreate"),
    "recreating without a snapshot": lambda: perdure.track(resources.file("x"), on_change="recreate"),
    "recreating what has no function": lambda: perdure.track(resources.custom("x", int), on_change="recreate"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_unusable_input_is_refused_with_what_to_do(what: str) -> None:
    with pytest.raises(UsageError) as caught:
        UNUSABLE[what]()
    assert caught.value.hint
    assert "pass" not in caught.value.message.replace("password", "")


@perdure.agent
def tracking(how: str) -> str:
    perdure.track(MADE[how](), **TERMS.get(how, {}))
    return "tracked"


def raises() -> None:
    raise ZeroDivisionError("sky")


MADE: dict[str, Callable[[], resources.Resource]] = {
    "missing file": lambda: resources.file("missing"),
    "missing directory": lambda: resources.directory("missing"),
    "missing variable": lambda: resources.env("NO_SUCH_VARIABLE"),
    "missing repository": lambda: resources.git_branch("missing", "main"),
    "no repository": lambda: resources.git_branch("/", "main"),
    "nobody listens": lambda: resources.url("http://127.0.0.1:9/"),
    "raising function": lambda: resources.custom("raising", raises),
    "hanging function": lambda: resources.custom("hanging", threading.Event().wait),
    "unstorable function": lambda: resources.custom("unstorable", object),
    "nothing": lambda: resources.custom("nothing", lambda: None),
    "coroutine": lambda: resources.custom("coroutine", hidden_coroutine),
    "bad words": lambda: resources.custom("bad words", lambda: 1, describe=lambda _: raises()),  # type: ignore[arg-type,return-value]
}
TERMS: dict[str, dict[str, Any]] = {"hanging function": {"timeout": 0.2}}
SAID = {
    "missing file": "file missing does not exist (looked at ",
    "missing directory": "directory missing does not exist (looked at ",
    "missing variable": "environment variable NO_SUCH_VARIABLE does not exist",
    "missing repository": "branch main does not exist (there is no repository at missing)",
    "no repository": "branch main could not be looked at: fatal: not a git repository",
    "nobody listens": "could not be looked at: Connection refused",
    "raising function": "resource raising could not be looked at: ZeroDivisionError: sky",
    "hanging function": "it took longer than its time of 0.2 s",
    "unstorable function": "resource unstorable could not be looked at: UnstorableValue: fingerprint is",
    "nothing": "resource nothing does not exist",
    "coroutine": "its fingerprint function returned a coroutine",
    "bad words": "ZeroDivisionError",
}


@pytest.mark.parametrize("how", MADE)
def test_what_cannot_be_seen_fails_the_call_that_tracks_it_and_can_be_attempted_anew(how: str) -> None:
    with pytest.raises(ResourceMissing) as caught:
        perdure.run(tracking, how)
    assert SAID[how] in caught.value.message
    assert newest_run().state == "failed"


def test_typo_in_the_policy_of_a_working_directory_is_refused() -> None:
    @perdure.agent
    def opening() -> None:
        perdure.workdir(on_change="keep")

    with pytest.raises(UsageError, match="on_change='keep'"):
        perdure.run(opening)


def test_failed_track_succeeds_when_the_thing_is_there() -> None:
    with pytest.raises(ResourceMissing):
        perdure.run(tracking, "missing file")
    Path("missing").touch()
    assert perdure.run(tracking, "missing file") == "tracked"


@pytest.mark.parametrize(
    ("make", "said"),
    [(lambda: resources.file("."), "is a directory"), (lambda: resources.directory("plain"), "is no directory")],
)
def test_wrong_kind_of_thing_is_named(make: Callable[[], resources.Resource], said: str) -> None:
    Path("plain").touch()
    with pytest.raises(UsageError, match=said):
        perdure.track(make())


def test_pipe_does_not_hang_the_look(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="no regular file"):
        perdure.track(resources.file(tmp_path / "pipe"))
    assert Scan().directory(tmp_path, ("store", "world.log")).entries == ()


def test_snapshot_above_its_limit_is_refused_with_the_limit() -> None:
    Path("large").write_bytes(bytes(2 * 1024 * 1024))

    @perdure.agent
    def large() -> None:
        perdure.track(resources.file("large"), snapshot=True, size_limit=1024 * 1024)

    with pytest.raises(UnstorableValue, match=r"file large cannot be kept: .*the limit is 1 MB"):
        perdure.run(large)


def test_many_small_files_count_together() -> None:
    Path("many").mkdir()
    for number in range(20):
        (Path("many") / str(number)).write_bytes(bytes(100))

    @perdure.agent
    def many() -> None:
        perdure.track(resources.directory("many"), snapshot=True, size_limit=1500)

    with pytest.raises(UnstorableValue, match="directory many cannot be kept"):
        perdure.run(many)


def test_file_name_that_is_no_text_is_named() -> None:
    import os

    Path("odd").mkdir()
    os.close(os.open(b"odd/\xff", os.O_CREAT))
    with pytest.raises(ResourceMissing, match="is not text"):
        perdure.track(resources.directory("odd"))


def test_outside_a_run_track_only_looks() -> None:
    Path("x").write_text("x")
    assert perdure.track(resources.file("x")).state == "present"
    assert perdure.track(resources.file("y"), missing_ok=True).state == "absent"


def test_changed_policy_in_the_code_does_not_make_another_call() -> None:
    """The way out of a park may be another policy: it must not look like other code."""
    policy = ["park"]

    @perdure.agent
    def editing(fail: bool) -> str:
        perdure.track(resources.cwd(), on_change=policy[0], timeout=5 if policy[0] == "park" else 6)
        if policy[0] == "park":
            raise ValueError("not yet")
        return "done"

    with pytest.raises(ValueError, match="not yet"):
        perdure.run(editing, True, run_id="r")
    policy[0] = "accept"
    assert perdure.run(editing, True, run_id="r") == "done"
    assert [name for _, _, name in calls_of("r")] == ["perdure.track"]


def test_another_resource_at_the_same_place_is_another_call() -> None:
    name = ["a"]

    @perdure.agent
    def editing() -> str:
        perdure.track(resources.file(name[0]))
        if name[0] == "a":
            raise ValueError("not yet")
        return "done"

    Path("a").touch()
    Path("b").touch()
    with pytest.raises(ValueError, match="not yet"):
        perdure.run(editing, run_id="r")
    name[0] = "b"
    with pytest.raises(PerdureError, match=r"recorded: perdure.track\(resource='file a'\)"):
        perdure.run(editing, run_id="r")


def test_working_directory_that_was_deleted_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    was = Tracked("cwd", "", 1, words="/gone")
    seen = see(Look(resources.cwd(), 5))
    found = difference(resources.cwd(), was, seen)
    assert found is not None
    assert found.words == "the working directory no longer exists; it was /gone"


def test_kind_that_is_not_known_is_out_of_reach() -> None:
    seen = see(Look(resources.Resource("moon", "full"), 5))
    assert seen.fingerprint.state == "unreachable"
    assert difference(resources.Resource("moon", "full"), Tracked("moon", "full", 1, digest="x"), seen) is not None


def test_looks_beyond_the_number_taken_at_once_are_all_taken() -> None:
    looks = [Look(resources.custom(f"thing {number}", functools.partial(int, number)), 5) for number in range(100)]
    found = see_all(looks)
    assert [seen.fingerprint.words for seen in found] == [str(number) for number in range(100)]


def test_look_that_hangs_does_not_hold_up_those_that_wait_for_their_turn() -> None:
    hanging = [Look(resources.custom(f"hang {number}", threading.Event().wait), 0.2) for number in range(20)]
    quick = Look(resources.custom("quick", lambda: 1), 5)
    *slow, last = see_all([*hanging, quick])
    assert {seen.fingerprint.state for seen in slow} == {"unreachable"}
    assert last.fingerprint.state == "present"


@pytest.mark.parametrize(
    ("was", "now", "differs"),
    [
        ("present", "present", False),
        ("absent", "absent", False),
        ("unreachable", "unreachable", False),
        ("unreachable", "present", False),
        ("present", "absent", True),
        ("present", "unreachable", True),
        ("absent", "present", True),
        ("absent", "unreachable", True),
        ("unreachable", "absent", True),
    ],
)
def test_every_pair_of_states(was: Any, now: Any, differs: bool) -> None:
    resource = resources.file("x")
    seen = Seen(Fingerprint(now, "digest" if now == "present" else ""))
    assert (difference(resource, Tracked("file", "x", 1, state=was, digest="digest"), seen) is not None) == differs


def test_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("content")
    status = path.stat()
    memory = Memory()
    memory.note(str(path), status, "remembered", at=status.st_ctime + 10)
    assert memory.recall(str(path), status) == "remembered"
    memory.note(str(path), status, "too fresh", at=status.st_ctime + 1)
    assert memory.recall(str(path), status) == ""


def test_track_in_a_process_pool_is_refused() -> None:
    from concurrent.futures import ProcessPoolExecutor

    @perdure.agent
    def pooled() -> None:
        with ProcessPoolExecutor(1) as pool:
            pool.submit(_track_cwd).result()

    with pytest.raises(UsageError, match="in another process"):
        perdure.run(pooled)


def _track_cwd() -> None:
    perdure.track(resources.cwd())


def test_async_agents_may_look_beside_their_loop() -> None:
    @perdure.agent
    async def beside() -> str:
        seen = await asyncio.to_thread(perdure.track, resources.cwd())
        return seen.state

    assert asyncio.run(beside()) == "present"
