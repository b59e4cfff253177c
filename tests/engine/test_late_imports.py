"""Threads and pools of modules that a program imports late: they are part of their run all the same."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import hooks
from perdure.engine import scope

PATIENCE = 60.0
PROGRAM = """
import sys
import perdure
from perdure.store.sqlite import seldom

POOLS = ("multiprocessing.process", "concurrent.futures.process", "concurrent.futures.thread")
SELDOM = [f"perdure.store.sqlite.{name}" for name in seldom.__all__]

@perdure.step
def look(word: str) -> str:
    return word

def refusal() -> str:
    try:
        look("in a pool")
    except perdure.PerdureError as error:
        return error.message
    return "not refused"

def computed() -> str:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(refusal).result()

@perdure.agent
def plain() -> str:
    return look("first")

@perdure.agent
def agent(number: int) -> str:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(look, f"in a thread {number}").result()
    return computed()

if __name__ == "__main__":
    perdure.run(plain, run_id="r0")
    print(sorted({*POOLS, *SELDOM} & sys.modules.keys()))
    for number in (1, 2):
        print("inside:", perdure.run(agent, number, run_id=f"r{number}"))
        print("outside:", computed())
"""


def test_pool_that_is_imported_inside_a_run_refuses_its_steps_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stderr
    loaded, *lines = ended.stdout.splitlines()
    assert loaded == "[]", (
        "the first run of a program without pools pays for none, nor for what a store can do for operators"
    )
    assert [line.partition(":")[0] for line in lines] == ["inside", "outside"] * 2
    assert all("another process" in line for line in lines[::2])
    assert lines[1::2] == ["outside: not refused"] * 2
    shown = subprocess.run(
        [sys.executable, "-m", "perdure", "show", "r1", "--json"], cwd=tmp_path, capture_output=True, text=True,
        timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert '"main/look#0.0"' in shown.stdout, "a thread pool that was imported late opens scopes"


class Slow:
    """A module whose import stands still in the middle until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.name = "slow_to_import"
        self.reached, self.let_go = threading.Event(), threading.Event()
        (folder / f"{self.name}.py").write_text(
            "from tests.engine.test_late_imports import slow\n"
            "slow.reached.set()\n"
            f"assert slow.let_go.wait({PATIENCE})\n"
            "class Owner:\n"
            "    def method(self):\n"
            "        return 'plain'\n"
        )
        self.importer = threading.Thread(target=__import__, args=(self.name,))

    def begin(self) -> None:
        self.importer.start()
        assert self.reached.wait(PATIENCE)

    def finish(self) -> Any:
        self.let_go.set()
        self.importer.join(PATIENCE)
        return sys.modules[self.name]


slow: Slow


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    global slow  # noqa: PLW0603 - what is imported finds it here
    slow = Slow(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "tests.engine.test_late_imports", sys.modules[__name__])
    yield slow
    slow.finish()
    sys.modules.pop(slow.name, None)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_patch_waits_for_the_end_of_an_import_that_another_thread_has_begun(module: Slow) -> None:
    seen: list[bool] = []
    module.begin()
    patching = in_thread(lambda: hooks.when_imported(module.name, lambda found: seen.append(hasattr(found, "Owner"))))
    module.finish()
    patching.join(PATIENCE)
    assert seen == [True]


@pytest.fixture
def carriers(module: Slow, monkeypatch: pytest.MonkeyPatch) -> scope.Carriers:
    """Carriers that had a run before the module was imported, and have none now."""

    def build(original: Callable[..., str]) -> Callable[..., str]:
        return lambda owner: f"carried {original(owner)}"

    monkeypatch.setitem(scope._POOLS, module.name, ("Owner", "method", build))  # noqa: SLF001
    made = scope.Carriers()
    made.acquire()
    made.release()
    return made


def test_run_that_begins_while_a_module_is_imported_waits_for_nobody_and_has_it_patched(
    module: Slow, carriers: scope.Carriers
) -> None:
    module.begin()
    beginning = in_thread(carriers.acquire)
    beginning.join(PATIENCE)
    assert not beginning.is_alive()
    owner = module.finish().Owner()
    assert owner.method() == "carried plain"
    carriers.release()
    assert owner.method() == "plain"


def test_module_that_is_imported_between_runs_is_patched_for_the_next_alone(
    module: Slow, carriers: scope.Carriers
) -> None:
    module.begin()
    owner = module.finish().Owner()
    assert owner.method() == "plain"
    carriers.acquire()
    assert owner.method() == "carried plain"
    carriers.release()
    assert owner.method() == "plain"


def test_module_that_was_imported_past_the_hook_is_patched_once(
    module: Slow, carriers: scope.Carriers, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [finder for finder in sys.meta_path if not isinstance(finder, hooks._Finder)]  # noqa: SLF001
    monkeypatch.setattr(sys, "meta_path", others)
    module.begin()
    owner = module.finish().Owner()
    carriers.acquire()
    hooks.catch_up()
    assert owner.method() == "carried plain"
    carriers.release()
    assert owner.method() == "plain"


@pytest.mark.parametrize("before", ["gc.enable()", "gc.disable()"])
def test_loading_leaves_the_collector_of_garbage_as_it_was(before: str) -> None:
    program = f"import gc; {before}; was = gc.isenabled(); import perdure; perdure.agent; print(gc.isenabled() is was)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert ended.stdout == "True\n"
