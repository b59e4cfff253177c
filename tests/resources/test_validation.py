"""What is validated, when, and how many differences are shown at once."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import resources
from perdure.engine import recovery
from perdure.engine.recovery import acceptance
from perdure.engine.session import session
from perdure.errors import ResourceChanged, ResourceMissing, UsageError
from perdure.events import Observable, ResourceSettled
from perdure.records import Kind
from perdure.resources import registry
from tests.engine.journals import bodies_of, calls_of, newest_run, records_of, state_of
from tests.engine.world import world


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.step
def write(name: str, text: str) -> str:
    path = Path(name)
    path.write_text(text)
    perdure.track(resources.file(name))
    return text


def accepted() -> None:
    """A person has read why the newest run is parked, and accepts it."""
    session().store.post(acceptance(newest_run(), by="ada"))


@perdure.agent
def writing() -> str:
    write("report.txt", "one")
    write("report.txt", "two")
    world.moment("written")
    return work("after")


def test_what_a_step_tracks_is_part_of_its_record() -> None:
    assert perdure.run(writing, run_id="r") == "after"
    first, second, _ = bodies_of("r", Kind.STEP)
    assert [tracked.identity for tracked in first.resources] == ["report.txt"]
    assert first.resources[0].digest != second.resources[0].digest
    assert [name for _, _, name in calls_of("r")] == ["write", "write", "work"]


def test_the_last_look_at_a_resource_is_the_one_that_counts() -> None:
    world.killed_at("written", lambda: perdure.run(writing))
    assert perdure.run(writing) == "after"


def test_older_content_of_a_resource_is_a_change_too() -> None:
    world.killed_at("written", lambda: perdure.run(writing))
    Path("report.txt").write_text("one")
    with pytest.raises(ResourceChanged, match=r"file report\.txt is 3 bytes"):
        perdure.run(writing)


def test_concurrent_steps_leave_the_look_that_began_last() -> None:
    """Two strands look at one file; the one that looked first is the one that records last."""
    second_is_recorded = threading.Event()

    @perdure.step
    def early() -> str:
        perdure.track(resources.file("shared.txt"))
        looked.set()
        assert second_is_recorded.wait(30)
        return "early"

    @perdure.step
    def late() -> str:
        Path("shared.txt").write_text("newer")
        perdure.track(resources.file("shared.txt"))
        return "late"

    looked = threading.Event()

    @perdure.agent
    def strands() -> str:
        thread = threading.Thread(target=early)
        thread.start()
        assert looked.wait(30)
        late()
        second_is_recorded.set()
        thread.join()
        world.moment("both")
        return work("after")

    Path("shared.txt").write_text("older")
    world.killed_at("both", lambda: perdure.run(strands))
    looked.set()  # a replayed step does not look
    assert perdure.run(strands) == "after"


def test_run_without_resources_looks_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object) -> None:
        raise AssertionError("somebody looked")

    @perdure.agent
    def plain() -> str:
        work("one")
        world.moment("one")
        return work("two")

    world.killed_at("one", lambda: perdure.run(plain))
    monkeypatch.setattr(recovery, "see_all", look)
    assert perdure.run(plain) == "two"


@pytest.mark.parametrize("is_async", [False, True])
def test_all_resources_are_looked_at_at_once_and_all_differences_are_in_one_park(is_async: bool) -> None:
    slow = threading.Event()
    slow.set()

    def fingerprint() -> int:
        slow.wait()
        return 1

    def everything() -> None:
        for number in range(6):
            perdure.track(resources.custom(f"thing {number}", fingerprint), timeout=1)
        perdure.track(resources.file("a.txt"))
        perdure.track(resources.env("TRACKED"), missing_ok=True)

    @perdure.agent
    def many() -> str:
        everything()
        world.moment("tracked")
        return work("after")

    @perdure.agent
    async def many_async() -> str:
        everything()
        world.moment("tracked")
        return work("after")

    def start() -> str:
        return asyncio.run(many_async()) if is_async else perdure.run(many)

    Path("a.txt").touch()
    world.killed_at("tracked", start)
    for number in range(6):
        resources.custom(f"thing {number}", fingerprint)
    Path("a.txt").unlink()
    slow.clear()
    began = time.monotonic()
    with pytest.raises(ResourceMissing) as caught:
        start()
    slow.set()
    assert time.monotonic() - began < 4, "six looks of one second each were taken one after the other"
    assert caught.value.message.startswith(f"Run {newest_run().name}: 7 things are not as they were.\n")
    assert caught.value.message.count("longer than its time of 1 s") == 6
    assert "file a.txt no longer exists (looked at " in caught.value.message
    assert state_of(newest_run().run_id) == "waiting (parked)"


def test_looks_belong_to_no_run() -> None:
    """A fingerprint function that calls a step makes a plain call, now and when the run is resumed."""

    def fingerprint() -> str:
        return work("looked")

    @perdure.agent
    def nosy() -> str:
        perdure.track(resources.custom("nosy", fingerprint))
        world.moment("tracked")
        return work("after")

    world.killed_at("tracked", lambda: perdure.run(nosy))
    resources.custom("nosy", fingerprint)
    assert perdure.run(nosy) == "after"
    assert [name for _, _, name in calls_of(newest_run().run_id)] == ["perdure.track", "work"]
    assert world.lines == ["looked", "looked", "after"]


@perdure.agent
def custom_agent(inside: str) -> str:
    if inside == "agent":
        perdure.track(resources.custom("version", lambda: int(Path("version").read_text())))
    else:
        track_version()
    world.moment("tracked")
    return work("after")


@perdure.step
def track_version() -> None:
    perdure.track(resources.custom("version", lambda: int(Path("version").read_text())))


def forget() -> None:
    registry._known.clear()  # noqa: SLF001 - another process begins with no names


def test_custom_resource_that_only_the_agent_names_is_looked_at_before_the_first_new_call() -> None:
    Path("version").write_text("1")
    world.killed_at("tracked", lambda: perdure.run(custom_agent, "agent"))
    forget()
    Path("version").write_text("2")
    with pytest.raises(ResourceChanged, match="resource version is 2; it was 1"):
        perdure.run(custom_agent, "agent")
    assert world.lines == []
    forget()
    Path("version").write_text("1")
    assert perdure.run(custom_agent, "agent") == "after"


def test_custom_resource_that_nothing_defines_parks_and_is_not_taken_to_be_unchanged() -> None:
    Path("version").write_text("1")
    world.killed_at("tracked", lambda: perdure.run(custom_agent, "step"))
    forget()
    with pytest.raises(
        ResourceMissing, match="resource version could not be checked: nothing in this process"
    ) as caught:
        perdure.run(custom_agent, "step")
    assert "where the module is loaded" in caught.value.hint
    assert world.lines == []
    resources.custom("version", lambda: int(Path("version").read_text()))
    assert perdure.run(custom_agent, "step") == "after"


def test_acceptance_reaches_a_custom_resource_that_is_looked_at_later() -> None:
    @perdure.agent
    def both() -> str:
        perdure.track(resources.file("a.txt"))
        perdure.track(resources.custom("version", lambda: int(Path("version").read_text())))
        world.moment("tracked")
        return work("after")

    Path("a.txt").touch()
    Path("version").write_text("1")
    world.killed_at("tracked", lambda: perdure.run(both))
    forget()
    Path("version").write_text("2")
    with pytest.raises(ResourceChanged, match="resource version is 2"):
        perdure.run(both)
    accepted()
    forget()
    assert perdure.run(both) == "after"
    assert [mail.taken > 0 for mail in session().store.read_mail(newest_run().run_id)] == [True]


@perdure.agent
def absent_agent() -> str:
    perdure.track(resources.file("lock"), missing_ok=True)
    world.moment("tracked")
    return work("after")


def test_file_that_must_stay_away_is_noticed_when_it_appears() -> None:
    world.killed_at("tracked", lambda: perdure.run(absent_agent))
    Path("lock").write_text("taken")
    with pytest.raises(ResourceChanged, match=r"file lock exists now \(5 bytes, digest \w+\); it did not"):
        perdure.run(absent_agent)
    Path("lock").unlink()
    assert perdure.run(absent_agent) == "after"


@perdure.agent
def two_files() -> str:
    write("a.txt", "a")
    write("b.txt", "b")
    world.moment("written")
    work("after")
    world.moment("later")
    return work("end")


def parked_twice() -> None:
    world.killed_at("written", lambda: perdure.run(two_files))
    Path("a.txt").write_text("A")
    Path("b.txt").unlink()
    with pytest.raises(ResourceChanged, match="2 things are not as they were"):
        perdure.run(two_files)


def test_person_accepts_all_that_was_shown_and_is_not_asked_again(seen: list[Observable]) -> None:
    parked_twice()
    accepted()
    world.killed_at("later", lambda: perdure.run(two_files))
    assert perdure.run(two_files) == "end"
    (observed,) = bodies_of(newest_run().run_id, Kind.OBSERVED)
    assert observed.by == "ada"
    assert len(observed.words) == 2
    assert [mail.taken > 0 for mail in session().store.read_mail(newest_run().run_id)] == [True]


def test_acceptance_counts_only_for_what_was_shown() -> None:
    """It changed once more after the person had looked: that change nobody has seen."""
    parked_twice()
    accepted()
    Path("a.txt").write_text("AAA")
    with pytest.raises(ResourceChanged, match=r"file a\.txt is 3 bytes") as caught:
        perdure.run(two_files)
    assert "b.txt" not in caught.value.message
    with pytest.raises(ResourceChanged, match=r"file a\.txt is 3 bytes"):
        perdure.run(two_files)
    accepted()
    assert perdure.run(two_files) == "end"


def test_acceptance_is_spent_by_the_next_validation_whatever_it_finds() -> None:
    parked_twice()
    accepted()
    Path("a.txt").write_text("a")
    Path("b.txt").write_text("b")
    world.killed_at("later", lambda: perdure.run(two_files))
    Path("a.txt").write_text("A")
    with pytest.raises(ResourceChanged):
        perdure.run(two_files)


def test_acceptance_survives_a_kill_before_and_after_it_is_taken() -> None:
    parked_twice()
    accepted()

    def dies_before_the_record() -> None:
        store = session().store
        original = store.append_all

        def append_all(batch: Any, *, power: bool) -> Any:
            world.moment("append")
            outcomes = original(batch, power=power)
            world.moment("appended")
            return outcomes

        store.append_all = append_all  # type: ignore[method-assign]
        perdure.run(two_files)

    world.killed_at("append", dies_before_the_record)
    assert records_of(newest_run().run_id, Kind.OBSERVED) == []
    world.killed_at("appended", dies_before_the_record)
    assert len(records_of(newest_run().run_id, Kind.OBSERVED)) == 1
    assert perdure.run(two_files) == "end"
    assert len(records_of(newest_run().run_id, Kind.OBSERVED)) == 1
    assert world.lines == ["after", "end"]


def test_accepted_resource_out_of_reach_counts_as_it_was_once_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()

    @perdure.step
    def touch() -> None:
        (folder / "data").write_text("1")
        perdure.track(resources.file(folder / "data"))

    @perdure.agent
    def mounted() -> str:
        touch()
        world.moment("written")
        work("after")
        world.moment("later")
        return work("end")

    world.killed_at("written", lambda: perdure.run(mounted))
    folder.rename(tmp_path / "away")
    folder.symlink_to(folder)
    with pytest.raises(ResourceMissing, match="could not be checked"):
        perdure.run(mounted)
    accepted()
    world.killed_at("later", lambda: perdure.run(mounted))
    folder.unlink()
    (tmp_path / "away").rename(folder)
    (folder / "data").write_text("2")
    with pytest.raises(ResourceChanged):
        perdure.run(mounted)
    (folder / "data").write_text("1")
    assert perdure.run(mounted) == "end"


def test_only_a_run_parked_for_a_resource_can_be_accepted() -> None:
    perdure.run(writing)
    with pytest.raises(UsageError, match="not parked because of a resource"):
        accepted()


def test_killed_during_validation_the_run_is_validated_again() -> None:
    def fingerprint() -> int:
        world.moment("looking")
        return int(Path("version").read_text())

    @perdure.agent
    def looked_at() -> str:
        perdure.track(resources.custom("version", fingerprint))
        world.moment("tracked")
        return work("after")

    Path("version").write_text("1")
    world.killed_at("tracked", lambda: perdure.run(looked_at))
    resources.custom("version", fingerprint)
    Path("version").write_text("2")
    for _ in range(2):
        world.killed_at("looking", lambda: perdure.run(looked_at))
    assert state_of(newest_run().run_id) == "running"
    with pytest.raises(ResourceChanged, match="resource version is 2; it was 1"):
        perdure.run(looked_at)
    Path("version").write_text("1")
    assert perdure.run(looked_at) == "after"


def test_failed_step_records_what_it_touched() -> None:
    @perdure.step
    def fails() -> None:
        Path("half.txt").write_text("half")
        perdure.track(resources.file("half.txt"))
        raise ValueError("after the write")

    @perdure.agent
    def failing() -> str:
        try:
            fails()
        except ValueError:
            world.moment("failed")
        return work("after")

    world.killed_at("failed", lambda: perdure.run(failing))
    Path("half.txt").unlink()
    with pytest.raises(ResourceMissing, match=r"half\.txt no longer exists"):
        perdure.run(failing)


def test_effect_records_what_it_touched() -> None:
    @perdure.effect
    def deploy() -> str:
        Path("deployed").write_text("v1")
        perdure.track(resources.file("deployed"))
        return "v1"

    @perdure.agent
    def deploying() -> str:
        deploy()
        world.moment("deployed")
        return work("after")

    world.killed_at("deployed", lambda: perdure.run(deploying))
    assert [each.identity for each in bodies_of(newest_run().run_id, Kind.RECEIPT)[0].resources] == ["deployed"]
    assert perdure.run(deploying) == "after"


def test_settled_resources_are_told_to_observers(seen: list[Observable]) -> None:
    @perdure.agent
    def lenient() -> str:
        perdure.track(resources.file("a.txt"), on_change="accept")
        world.moment("tracked")
        return work("after")

    Path("a.txt").write_text("1")
    world.killed_at("tracked", lambda: perdure.run(lenient))
    Path("a.txt").write_text("22")
    assert perdure.run(lenient) == "after"
    (event,) = [event for event in seen if isinstance(event, ResourceSettled)]
    assert event.outcome == "accepted"
    assert event.words.startswith("file a.txt is 2 bytes")
