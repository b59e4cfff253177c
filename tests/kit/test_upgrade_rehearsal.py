"""A rehearsal says what new code would do to a run: it executes no body, writes nothing, and is right."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import perdure
from perdure.engine.agent import resume, spec_of
from perdure.engine.session import session
from perdure.errors import EffectInDoubt, JournalDiverged, PerdureError, RunWaits, UsageError
from perdure.store.portable import lines_of
from perdure.testing import Rehearsed, replay_check
from perdure.testing.stores import StoreInUse

Agent = Callable[..., Any]
executed: list[str] = []
"""Every body that was executed, and by whom."""

NAME = "upgraded"


@pytest.fixture(autouse=True)
def kept(perdure_store: StoreInUse) -> None:
    executed.clear()


def agent(function: Agent) -> Agent:
    """An agent under the name that all versions of it share, with the qualified names of the first."""
    function.__qualname__ = NAME
    return perdure.agent(name=NAME)(function)


@perdure.step
def fetch(page: int) -> int:
    executed.append(f"fetch {page}")
    return page


@perdure.step
def load(page: int) -> int:
    raise AssertionError(page)


@perdure.step(name="fetch")
def fetch_text(page: int) -> list[int]:
    raise AssertionError(page)


@perdure.step
async def fetch_later(page: int) -> int:
    executed.append(f"fetch_later {page}")
    return page


@perdure.step(key=str)
def keyed(page: int) -> int:
    executed.append(f"keyed {page}")
    return page


@perdure.effect
def send(to: str) -> str:
    executed.append(f"send {to}")
    return to


@perdure.effect
def doubtful(to: str) -> str:
    executed.append(f"doubtful {to}")
    raise OSError("who knows")


@doubtful.check
def was_done(intent: perdure.Intent) -> perdure.Verdict:
    executed.append("check")
    return perdure.cannot_tell("nobody knows")


@perdure.agent(name="child")
def child(page: int) -> int:
    fetch(page)
    perdure.wait_for("go")
    return page


def begun(agent: Agent, *args: Any) -> None:
    """Run it until it waits, and forget what it executed."""
    with pytest.raises((RunWaits, EffectInDoubt)):
        perdure.run(agent, *args)
    while any(run.state != "waiting" for run in session().store.list_runs()):
        time.sleep(0.001)
    executed.clear()


def said_of(agent: Agent, *, timeout: float = 10.0) -> Rehearsed:
    """What a rehearsal under this code says; it has executed and written nothing."""
    before = everything()
    checked = replay_check({NAME: agent, "child": child}, _Store(), timeout=timeout)
    assert everything() == before
    assert not executed
    (said,) = [run for run in checked.runs if run.agent == NAME]
    return said


class _Store:
    def candidates(self) -> Iterator[Any]:
        return StoreInUse("", "").candidates()


def everything() -> list[Any]:
    store = session().store
    return [(run, store.load_journal(run.run_id), store.read_mail(run.run_id)) for run in store.list_runs()]


def really(agent: Agent) -> str:
    """What becomes of the run under this code when it is resumed for real."""
    store = session().store
    run = next(run for run in store.list_runs() if run.agent == NAME)
    try:
        resume(agent, run, waits=False)
    except JournalDiverged:
        return "diverges"
    except (RunWaits, EffectInDoubt):
        return "fits"
    except PerdureError:
        raise
    except Exception:  # noqa: BLE001 - whatever the code raises
        return "fails"
    return "fits"


@agent
def plain(pages: int) -> int:
    total = sum(fetch(page) for page in range(pages))
    send("ada")
    perdure.wait_for("go")
    return total


@agent
def other_argument(pages: int) -> int:
    total = sum(fetch(page + 1) for page in range(pages))
    perdure.wait_for("go")
    return total


@agent
def one_less(pages: int) -> int:
    total = sum(fetch(page) for page in range(pages - 1))
    send("ada")
    perdure.wait_for("go")
    return total


@agent
def one_more(pages: int) -> int:
    total = sum(fetch(page) for page in range(pages + 1))
    send("ada")
    perdure.wait_for("go")
    return total


@agent
def without_effect(pages: int) -> int:
    total = sum(fetch(page) for page in range(pages))
    perdure.wait_for("go")
    return total


@agent
def renamed(pages: int) -> int:
    total = sum(load(page) for page in range(pages))
    send("ada")
    perdure.wait_for("go")
    return total


@agent
def returns_early(pages: int) -> int:
    return fetch(0)


@agent
def other_type(pages: int) -> int:
    return len([fetch_text(page) for page in range(pages)])


@agent
def other_parameters(pages: int, *, limit: int) -> int:
    return pages + limit


@agent
def raises(pages: int) -> int:
    total = sum(fetch(page) for page in range(pages))
    return total + {}["missing"]  # type: ignore[index]


@agent
def patched(pages: int) -> int:
    total = sum(fetch(page) for page in range(pages))
    send("ada")
    if perdure.patched("thanks"):
        send("thanks")
    perdure.wait_for("go")
    return total


@agent
def more_words(pages: int) -> int:
    total = 0
    for page in range(pages):
        perdure.progress(page, pages)
        total += fetch(page)
    send("ada")
    perdure.wait_for("go")
    return total


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (plain, "fits"),
        (other_argument, "diverges"),
        (one_less, "diverges"),
        (one_more, "diverges"),
        (without_effect, "diverges"),
        (renamed, "diverges"),
        (returns_early, "diverges"),
        (other_type, "diverges"),
        (other_parameters, "diverges"),
        (raises, "fails"),
        (patched, "fits"),
        (more_words, "fits"),
    ],
)
def test_what_a_rehearsal_says_is_what_a_resume_does(code: Agent, expected: str) -> None:
    begun(plain, 3)
    said = said_of(code)
    assert said.outcome == expected, said
    assert really(code) == expected


def test_both_calls_are_shown_and_what_to_do(perdure_store: StoreInUse) -> None:
    begun(plain, 2)
    said = said_of(other_argument)
    assert "recorded: fetch(page=0)" in said.words
    assert "now:      fetch(page=1)" in said.words
    assert "perdure.patched" in said.hint
    checked = replay_check(other_argument, perdure_store)
    assert not checked.fine
    assert [run.name for run in checked.diverging] == [said.name]
    assert "would not go on" in str(checked)
    assert "now:      fetch(page=1)" in str(checked)


def test_place_where_it_goes_on_is_named() -> None:
    begun(plain, 3)
    said = said_of(plain)
    assert (said.at, said.steps) == (5, 4)
    assert said.words == "goes on at step 5: wait_for (waits)"


def test_agent_that_is_gone_is_named(perdure_store: StoreInUse) -> None:
    begun(plain, 1)
    (said,) = replay_check(child, perdure_store).runs
    assert (said.outcome, said.is_fine) == ("gone", False)
    assert NAME in said.words


@agent
async def gathered(pages: int) -> int:
    async def side(page: int) -> int:
        found = await fetch_later(page)
        await perdure.wait_for(f"go {page}")
        return found + fetch(page)

    side.__qualname__ = "side"
    found = await asyncio.gather(*(fetch_later(page) for page in range(pages)))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(side(page)) for page in range(pages)]
    return sum(found) + sum(task.result() for task in tasks)


@agent
async def gathered_otherwise(pages: int) -> int:
    async def side(page: int) -> int:
        found = await fetch_later(page + (page == pages - 1))
        await perdure.wait_for(f"go {page}")
        return found

    side.__qualname__ = "side"
    found = await asyncio.gather(*(fetch_later(page) for page in range(pages)))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(side(page)) for page in range(pages)]
    return sum(found) + sum(task.result() for task in tasks)


def test_every_task_is_followed_to_the_end_of_its_journal() -> None:
    begun(gathered, 3)
    assert said_of(gathered).words.startswith("goes on at step 7: wait_for (waits), wait_for (waits), wait_for")
    assert said_of(gathered_otherwise).outcome == "diverges"


@agent
def threaded(pages: int) -> int:
    found: list[int] = []

    def side(page: int) -> None:
        found.append(fetch(page))
        perdure.wait_for(f"go {page}")
        found.append(fetch(page))

    side.__qualname__ = "side"
    threads = [threading.Thread(target=side, args=(page,)) for page in range(pages)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found)


@agent
def threaded_otherwise(pages: int) -> int:
    def side(page: int) -> None:
        fetch(page + (page == pages - 1))
        perdure.wait_for(f"go {page}")

    side.__qualname__ = "side"
    threads = [threading.Thread(target=side, args=(page,)) for page in range(pages)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


def test_every_thread_is_followed_to_the_end_of_its_journal() -> None:
    begun(threaded, 3)
    assert said_of(threaded).outcome == "fits"
    assert said_of(threaded_otherwise).outcome == "diverges"


@agent
async def with_children(pages: int) -> int:
    handles = [perdure.start(child, page) for page in range(pages)]
    return sum([await handle for handle in handles])


@agent
async def with_other_children(pages: int) -> int:
    handles = [perdure.start(child, page + 1) for page in range(pages)]
    return sum([await handle for handle in handles])


def test_children_are_neither_started_nor_waited_for() -> None:
    begun(with_children, 2)
    assert said_of(with_children).words == "goes on at step 1: start child (waits), start child (waits)"
    assert said_of(with_other_children).outcome == "diverges"
    assert len(session().store.list_runs()) == 3


@perdure.step
def page_or_wait(page: int) -> int:
    executed.append(f"page {page}")
    if page == 7 and "let" not in executed:
        raise KeyboardInterrupt
    return page


@agent
def mapped(pages: int) -> int:
    return len(list(perdure.map(page_or_wait, range(pages), batch=2)))


@agent
def mapped_over_others(pages: int) -> int:
    return len(list(perdure.map(page_or_wait, range(1, pages), batch=2)))


def test_map_is_followed_over_the_items_that_are_done() -> None:
    with pytest.raises(KeyboardInterrupt):
        perdure.run(mapped, 10)
    executed.clear()
    assert said_of(mapped).outcome == "fits"
    assert "gets other items" in said_of(mapped_over_others).words


@agent
def in_doubt(to: str) -> str:
    fetch(1)
    return doubtful(to)


def test_neither_effect_in_doubt_nor_its_check_is_executed() -> None:
    begun(in_doubt, "ada")
    said = said_of(in_doubt)
    assert (said.outcome, said.at) == ("fits", 2)
    assert said.words == "goes on at step 2: doubtful (in doubt)"


@perdure.step(retry=perdure.Retry(attempts=3, delay_seconds=3600, max_delay_seconds=3600))
def failing() -> int:
    executed.append("failing")
    raise OSError("busy")


@agent
def retrying(pages: int) -> int:
    return failing()


def test_nobody_waits_for_the_next_attempt(clock: Any) -> None:
    with clock.held():
        handle = perdure.start(retrying, 1)
        while session().store.load_journal(handle.run_id)[-1].kind != "attempt":
            time.sleep(0.001)
        executed.clear()
        assert said_of(retrying, timeout=5.0).outcome == "fits"
    with pytest.raises(perdure.errors.AttemptsExhausted):
        handle.result()
    executed.clear()


@agent
def inserted_with_key(pages: int) -> int:
    keyed(99)
    total = sum(fetch(page) for page in range(pages))
    send("ada")
    perdure.wait_for("go")
    return total


def test_new_call_before_recorded_ones_is_not_judged_by_guess() -> None:
    begun(plain, 2)
    said = said_of(inserted_with_key)
    assert said.outcome == "undecided"
    assert "fetch(page=0)" in said.words
    assert "keyed" in said.words


@agent
def takes_long(pages: int) -> int:
    fetch(0)
    time.sleep(30)
    return 0


def test_code_that_takes_long_between_steps_is_left_behind() -> None:
    begun(plain, 2)
    said = said_of(takes_long, timeout=0.2)
    assert said.outcome == "undecided"
    assert "longer than 0.2 s, after 1 step" in said.words


def test_nobody_who_listens_hears_of_a_rehearsal() -> None:
    begun(plain, 1)
    heard: list[object] = []
    forget = perdure.subscribe(heard.append)
    try:
        said_of(plain)
    finally:
        forget()
    assert heard == []


def test_fork_is_followed_like_any_run() -> None:
    from perdure.engine.fork import accept, planned

    begun(plain, 3)
    store = session().store
    fork = planned(store, store.list_runs()[0], at=2, given={"note": msgspec.Raw(b'"x"')}, stall_seconds=60.0)
    accept(store, fork)
    checked = replay_check({NAME: plain}, _Store())
    assert [run.outcome for run in checked.runs] == ["fits", "fits"]
    assert sorted(run.at for run in checked.runs) == [3, 5]
    checked = replay_check({NAME: other_argument}, _Store())
    assert [run.outcome for run in checked.runs] == ["diverges", "diverges"]


def test_finished_runs_are_left_out(perdure_store: StoreInUse) -> None:
    begun(plain, 2)
    perdure.run(agent(lambda_free), 1)
    assert [run.outcome for run in replay_check(plain, perdure_store).runs] == ["fits"]


def test_store_without_a_run_to_replay_gets_no_clean_bill(perdure_store: StoreInUse) -> None:
    with pytest.raises(UsageError, match="no unfinished run") as refused:
        replay_check(plain, perdure_store)
    assert "people.leave_open(…)" in refused.value.hint
    perdure.run(agent(lambda_free), 1)
    with pytest.raises(UsageError, match="no unfinished run"):
        replay_check(plain, perdure_store)


def test_files_may_hold_finished_runs_alone_but_must_be_there(tmp_path: Path) -> None:
    perdure.run(agent(lambda_free), 1)
    store = session().store
    whole = store.load_whole(store.list_runs()[0].run_id)
    (tmp_path / "finished.jsonl").write_bytes(b"".join(lines_of(whole, store.load_blob)))
    assert replay_check(other_argument, tmp_path).runs == []
    with pytest.raises(UsageError, match="No exported run is named"):
        replay_check(other_argument, [])


def lambda_free(pages: int) -> int:
    return fetch(pages)


def test_agents_are_found_in_modules_functions_and_lists() -> None:
    from perdure.testing.agents import agents_in

    name = spec_of(child).name
    with contextlib.ExitStack() as opened:
        assert name in agents_in([child], opened)
        assert agents_in(child, opened) == agents_in({name: child}, opened)


PAGES = """
import perdure


@perdure.step
def fetch(page: int) -> int:
    raise AssertionError(page)


@perdure.agent(name="upgraded")
def pages(pages: int) -> int:
    return fetch({first})
"""


def test_code_may_be_a_file_and_leaves_no_module_behind(
    tmp_path: Path, perdure_store: StoreInUse, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(plain, 2)
    paths, before = list(sys.path), ModuleType("own_of_a_test")
    monkeypatch.setitem(sys.modules, "own_of_a_test", before)
    for name in ("own_of_a_test.py", "pages_of_a_test.py"):
        file = tmp_path / name
        file.write_text(PAGES.format(first=1))
        for code in (file, str(file), [str(file)]):
            assert [run.outcome for run in replay_check(code, perdure_store).runs] == ["diverges"]
    assert sys.path == paths
    assert sys.modules["own_of_a_test"] is before
    assert "pages_of_a_test" not in sys.modules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist"),
        ("import nowhere_at_all", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("import perdure\n@perdure.agent\ndef one(): pass\nperdure.run(one)", "starts a run as soon as it is loaded"),
    ],
    ids=["missing", "import", "exit", "run"],
)
def test_file_that_cannot_be_loaded_is_refused_in_words(
    tmp_path: Path, perdure_store: StoreInUse, text: str | None, said: str
) -> None:
    file = tmp_path / "good.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError) as refused:
        replay_check(str(file), perdure_store)
    assert refused.value.message.startswith(f"{file} {said}")
    assert refused.value.hint
    assert "good" not in sys.modules


@pytest.mark.parametrize("name", ["nowhere_at_all", "perdure.nowhere"])
def test_module_that_is_not_there_is_refused_in_words(perdure_store: StoreInUse, name: str) -> None:
    with pytest.raises(UsageError, match="neither a file nor a module"):
        replay_check(name, perdure_store)
