"""The pytest plugin: fixtures for tests of agents. Nothing of perdure is imported before a test asks for one."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from perdure.testing.clock import ManualClock
    from perdure.testing.crashing import Crash
    from perdure.testing.model_server import ModelServer
    from perdure.testing.outcomes import Outcomes
    from perdure.testing.people import People
    from perdure.testing.stores import StoreInUse

STORES: Final = "perdure_stores"
KINDS: Final = ("memory", "sqlite", "postgresql")
_DEFAULT: Final = ["sqlite"]
_FIXTURE: Final = "perdure_store"
_CRASH: Final = "crash"
_KIT: Final = "perdure.testing"
_PACKAGE: Final = Path(__file__).parent.parent
_REST_SECONDS: Final = 5.0
"""So long, at most, a test that is over waits for the runs that it started."""

_clock: Final = pytest.StashKey["ManualClock"]()
_unheard: Final = pytest.StashKey["dict[str, Callable[[], list[str]]]"]()
"""By the name of a fixture, how to ask it what the test was not told."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which stores the tests of agents are run on."""
    known = ", ".join(KINDS)
    parser.addini(STORES, f"stores that tests with the fixture perdure_store run on: {known}", "args", _DEFAULT)
    parser.getgroup("perdure").addoption(
        "--perdure-stores",
        metavar="STORES",
        help=f"run tests with the fixture perdure_store on these: {known}; separated by commas",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Once for each store, where there are several; a test that chooses its own is left alone."""
    if _FIXTURE not in metafunc.fixturenames:
        return
    stores = _stores(metafunc.config)
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize") if mark.args]
    if len(stores) > 1 and not any(_FIXTURE in str(names) for names in chosen):
        metafunc.parametrize(_FIXTURE, stores, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that would pass although something went wrong in runs that it started and never asked."""
    value = yield
    asked = item.stash.get(_unheard, {})
    if asked.keys() - {_CRASH}:
        _let_runs_come_to_rest(item)
    found = [f"{fixture}: {words}" for fixture, unheard in asked.items() for words in unheard()]
    if found:
        pytest.fail("\n".join(found), pytrace=False)
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what errors of ours advise, and of a failure that this kit reports the lines of the test alone."""
    found = call.excinfo
    if found is not None:
        _note_advice(found.value)
    if found is not None and _is_of_kit(found.value) and not item.config.getoption("fulltrace", default=False):
        own = _own_lines(found.tb)
        if own is not None:
            call.excinfo = pytest.ExceptionInfo.from_exception(found.value.with_traceback(own))
    return (yield)


@pytest.fixture
def perdure_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreInUse]:
    """A store of this test's own, in force for every run it starts: memory, SQLite or PostgreSQL."""
    from perdure.testing.stores import NoServer, server_url, temporary_store

    kind = getattr(request, "param", None) or _stores(request.config)[0]
    try:
        server = server_url() if kind == "postgresql" else ""
    except NoServer as missing:
        pytest.skip(f"perdure_store: {missing}")
    with temporary_store(kind, tmp_path / ".perdure", server=server) as store:
        yield store


@pytest.fixture
def clock(request: pytest.FixtureRequest, perdure_store: StoreInUse) -> Iterator[ManualClock]:
    """A clock that skips what runs sleep, and goes on otherwise when the test says so: `clock.advance("3d")`."""
    del perdure_store
    from perdure.testing.clock import ManualClock

    with ManualClock().installed() as manual:
        request.node.stash[_clock] = manual
        yield manual


@pytest.fixture
def people(request: pytest.FixtureRequest, perdure_store: StoreInUse) -> Iterator[People]:
    """Who answers the questions of runs: `people.answer("Refund…", True)`. What is left over fails the test."""
    del perdure_store
    import perdure
    from perdure.testing.people import People

    script = People()
    _ask_at_end(request, script.unheard)
    unsubscribe = perdure.subscribe(script.hear)
    yield script
    unsubscribe()
    unused = script.unused()
    if unused:
        pytest.fail(f"people: nobody asked for what is left in the script: {'; '.join(unused)}", pytrace=False)


@pytest.fixture
def outcomes(request: pytest.FixtureRequest, perdure_store: StoreInUse) -> Iterator[Outcomes]:
    """What steps and effects do instead of their bodies: `outcomes(send_email).returns("sent")`."""
    del perdure_store
    from perdure.testing.outcomes import Outcomes

    scripts = Outcomes()
    _ask_at_end(request, scripts.unheard)
    yield scripts
    scripts.restore()


@pytest.fixture
def crash(request: pytest.FixtureRequest, tmp_path: Path) -> Crash:
    """Kill an agent in processes of its own, and judge what is left: `crash(agent, 3).every_point()`."""
    from perdure.testing.crashing import Crash

    folder = tmp_path / "crash"
    folder.mkdir()
    crash = Crash(folder)
    _ask_at_end(request, crash.unplayed)
    return crash


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A model at an address to which the environment leads the SDKs: `model.says("…")`. Surprises fail the test."""
    from perdure.testing.model_server import ModelServer

    with ModelServer() as serving:
        for name, value in serving.environment().items():
            monkeypatch.setenv(name, value)
        yield serving
    surprises = [f"{each.method} {each.path}: {each.unexpected}" for each in serving.unexpected]
    if surprises:
        pytest.fail(f"model: its script did not expect {'; '.join(surprises)}", pytrace=False)


def _ask_at_end(request: pytest.FixtureRequest, unheard: Callable[[], list[str]]) -> None:
    request.node.stash.setdefault(_unheard, {})[str(request.fixturename)] = unheard


def _let_runs_come_to_rest(item: pytest.Item) -> None:
    """Wait for what is under way; a sleep is waited for where a clock of the test skips it."""
    from perdure.testing.clock import ManualClock

    manual = item.stash.get(_clock, None)
    if manual is not None:
        manual.come_to_rest(seconds=_REST_SECONDS)
        return
    watching = ManualClock()
    with watching.held():
        watching.come_to_rest(seconds=_REST_SECONDS)


def _note_advice(error: BaseException) -> None:
    """Add what is safe and what to do, which pytest shows below the message; the test that met the error is over."""
    from perdure.errors import PerdureError

    if isinstance(error, PerdureError):
        _, *advice = error.lines()
        for line in advice:
            if line not in getattr(error, "__notes__", ()):  # a fixture of many tests fails each with the same error
                error.add_note(line)


def _is_of_kit(error: BaseException) -> bool:
    return type(error).__module__.startswith(f"{_KIT}.")


def _own_lines(traceback: TracebackType | None) -> TracebackType | None:
    """The same traceback without the lines of perdure; none where it has no others."""
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    own = None
    for each in reversed(entries):
        if _PACKAGE not in Path(each.tb_frame.f_code.co_filename).parents:
            own = TracebackType(own, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return own


def _stores(config: pytest.Config) -> list[str]:
    typed: str | None = config.getoption("--perdure-stores")
    named: list[Any] = typed.replace(",", " ").split() if typed else config.getini(STORES)
    unknown = [name for name in named if name not in KINDS]
    if unknown or not named:
        raise pytest.UsageError(
            f"{STORES}: {', '.join(unknown) or 'nothing'} is no store; one or more of {', '.join(KINDS)}"
        )
    return [str(name) for name in dict.fromkeys(named)]
