"""Each kind of resource, in each state in which a run that was killed may find it when it is resumed."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import perdure
from perdure.errors import PerdureError, ResourceChanged, ResourceMissing
from perdure.records import Kind
from perdure.resources import Resource
from tests.engine.journals import bodies_of, newest_run, records_of, state_of
from tests.engine.world import world
from tests.resources.things import Things

KINDS = sorted(Things.KINDS)
resource: list[Resource] = []
terms: dict[str, Any] = {}


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.agent
def tracking() -> str:
    work("before")
    perdure.track(resource[-1], **terms)
    world.moment("tracked")
    return work("after")


@perdure.agent
async def tracking_async() -> str:
    work("before")
    perdure.track(resource[-1], **terms)
    world.moment("tracked")
    return work("after")


AGENTS = {"sync": lambda: perdure.run(tracking), "async": lambda: asyncio.run(tracking_async())}
every_kind_and_way = pytest.mark.parametrize(
    ("kind", "how"),
    [
        *((kind, ("sync", "async")[number % 2]) for number, kind in enumerate(KINDS)),
        *(
            pytest.param(kind, ("async", "sync")[number % 2], marks=pytest.mark.exhaustive)
            for number, kind in enumerate(KINDS)
        ),
    ],
)
"""Each kind by one way, and each way with half of the kinds; the other half in the exhaustive tests."""


def killed_while_tracking(thing: Any, how: str = "sync", **chosen: Any) -> None:
    resource[:] = [thing.resource()]
    terms.clear()
    terms.update(chosen)
    world.killed_at("tracked", AGENTS[how])
    assert world.lines == ["before"]


def parked(how: str = "sync") -> PerdureError:
    """Resume; the run must park, with the words in its row too, and nothing of it may have been performed."""
    with pytest.raises((ResourceMissing, ResourceChanged)) as caught:
        AGENTS[how]()
    assert world.lines == ["before"]
    run = newest_run()
    assert state_of(run.run_id) == "waiting (parked)"
    (ended,) = bodies_of(run.run_id, Kind.ENDED)[-1:]
    assert ended.message == caught.value.message
    assert f"perdure resume {run.name} --accept" in caught.value.hint
    assert caught.value.exit_code == 5
    return caught.value


@every_kind_and_way
def test_unchanged_resource_lets_the_run_go_on_and_writes_nothing(things: Things, kind: str, how: str) -> None:
    killed_while_tracking(things.get(kind), how)
    assert AGENTS[how]() == "after"
    assert world.lines == ["before", "after"]
    assert records_of(newest_run().run_id, Kind.OBSERVED) == []


CHANGED = {
    "file": r"file .*report.txt is 5 bytes, digest \w{8}; it was 5 bytes, digest \w{8}\.$",
    "directory": r"directory .* has changed: inner/report.txt has changed; it was 1 file, 5 bytes, digest \w{8}\.$",
    "git_branch": r"branch fix/issue-284 is at \w{7}; it was at \w{7}\.$",
    "git_commit": r"commit HEAD is at \w{7}; it was at \w{7}\.$",
    "url": r'URL http://127.0.0.1:\d+/data.csv is 200 OK, ETag "two"; it was 200 OK, ETag "one"\.$',
    "env": r"environment variable DEPLOY_TARGET is set to a value with digest \w+; it was set to a value with digest",
    "cwd": r"the working directory is .*/things; it was .*/things/cwd\.$",
    "custom": r"resource schema is .*4.*; it was .*3.*\.$",
}


@every_kind_and_way
def test_changed_resource_parks_with_the_difference(things: Things, kind: str, how: str) -> None:
    thing = things.get(kind)
    killed_while_tracking(thing, how)
    thing.change()
    error = parked(how)
    assert isinstance(error, ResourceChanged)
    assert re.search(CHANGED[kind], error.message), error.message


GONE = {
    "file": r"file .*report.txt no longer exists; it was 5 bytes, digest \w{8}\.$",
    "directory": r"directory .* no longer exists; it was 1 file, 5 bytes, digest \w{8}\.$",
    "git_branch": r"branch fix/issue-284 no longer exists; it was at \w{7}\.$",
    "git_commit": r"commit HEAD no longer exists; it was at \w{7}\.$",
    "url": r'URL .*/data.csv no longer exists \(404 Not Found\); it was 200 OK, ETag "one"\.$',
    "env": r"environment variable DEPLOY_TARGET is no longer set; it was set to a value with digest \w{8}\.$",
    "custom": r"resource schema no longer exists; it was .*3.*\.$",
}


@pytest.mark.parametrize("kind", KINDS)
def test_missing_resource_parks_and_says_what_it_was(things: Things, kind: str) -> None:
    thing = things.get(kind)
    killed_while_tracking(thing)
    thing.remove()
    error = parked()
    assert isinstance(error, ResourceMissing)
    assert re.search(GONE[kind], error.message), error.message


UNREACHABLE = {
    "file": "Too many levels of symbolic links",
    "directory": "Too many levels of symbolic links",
    "git_branch": "invalid gitfile format",
    "git_commit": "invalid gitfile format",
    "url": "Connection refused",
    "custom": "ConnectionError: the database is away",
}


@pytest.mark.parametrize("kind", KINDS)
def test_resource_out_of_reach_is_never_taken_to_be_unchanged(things: Things, kind: str) -> None:
    thing = things.get(kind)
    killed_while_tracking(thing)
    thing.hide()
    error = parked()
    assert "could not be checked: " in error.message
    assert UNREACHABLE[kind] in error.message
    assert "; it was " in error.message


@every_kind_and_way
def test_slow_look_is_given_up_and_parks(things: Things, kind: str, how: str) -> None:
    thing = things.get(kind)
    killed_while_tracking(thing, how, timeout=1.5)
    thing.slow_down()
    error = parked(how)
    assert "could not be checked: " in error.message
    assert re.search(r"longer than its time of 1.5 s|did not answer in time", error.message), error.message


def test_parked_run_is_validated_again_each_time_and_goes_on_once_all_is_as_it_was(things: Things) -> None:
    thing = things.get("file")
    killed_while_tracking(thing)
    thing.change()
    first, second = parked(), parked()
    assert first.message == second.message
    thing.path.write_text("first")
    assert perdure.run(tracking) == "after"
    assert world.lines == ["before", "after"]


@pytest.mark.parametrize("kind", KINDS)
def test_accept_goes_on_with_what_is_there_and_is_not_asked_again(things: Things, kind: str) -> None:
    thing = things.get(kind)
    killed_while_tracking(thing, on_change="accept")
    thing.change()
    assert perdure.run(tracking) == "after"
    (observed,) = bodies_of(newest_run().run_id, Kind.OBSERVED)
    (words,) = observed.words
    assert words.startswith("accepted: ")


def test_value_of_a_variable_is_nowhere_in_the_store(things: Things, store: Any) -> None:
    thing = things.get("env")
    killed_while_tracking(thing)
    thing.change()
    parked()
    kept = b"".join(path.read_bytes() for path in store.parent.rglob("*") if path.is_file())
    assert b"DEPLOY_TARGET" in kept
    assert b"secret" not in kept


def test_server_without_head_is_asked_with_get_and_known_by_its_body(things: Things) -> None:
    thing = things.get("url")
    thing.knows_head = False
    killed_while_tracking(thing)
    assert thing.methods == ["HEAD", "GET"]
    assert perdure.run(tracking) == "after"


def test_server_that_says_nothing_of_its_content_has_its_body_compared(things: Things) -> None:
    thing = things.get("url")
    thing.has_tag = False
    killed_while_tracking(thing)
    assert thing.methods == ["HEAD", "GET"]
    thing.change()
    assert re.search(r"URL .* is 200 OK, 13 bytes, digest \w+; it was 200 OK, 13 bytes", parked().message)


def test_server_that_fails_is_out_of_reach_and_not_changed(things: Things) -> None:
    thing = things.get("url")
    killed_while_tracking(thing)
    thing.status = 503
    assert "could not be checked: it answers 503 Service Unavailable" in parked().message


def test_repository_that_is_gone_is_named(things: Things) -> None:
    thing = things.get("git_branch")
    killed_while_tracking(thing)
    thing.folder.rename(thing.folder.with_name("moved"))
    assert "branch fix/issue-284 no longer exists (there is no repository at " in parked().message


def test_hook_environment_does_not_redirect_git(things: Things, monkeypatch: pytest.MonkeyPatch) -> None:
    thing = things.get("git_branch")
    killed_while_tracking(thing)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert perdure.run(tracking) == "after"
