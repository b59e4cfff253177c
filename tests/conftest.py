"""What holds for every test, however the tests were started."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from perdure.queues import forget_declared
from tests import scratch, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a shell starts in its background, or by `nohup`, ignores these, and all that the tests start would inherit that.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# The tests start thousands of processes: each would compile the package anew where nobody may keep bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Thousands of tests and whole frameworks stay until the end: looking through them for garbage took a tenth of the time.
gc.set_threshold(20_000)

# Before anything asks where temporary files are; the processes that pytest-xdist starts inherit the answer.
scratch.begin()


@pytest.fixture(autouse=True)
def queues_of_its_own() -> Iterator[None]:
    """Tests share a process, and what one declares of a queue is nothing to the next."""
    yield
    forget_declared()


def pytest_configure() -> None:
    summary.begin()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests of a campaign come first, so that no process has one of them left when the others are done."""
    items.sort(key=_minutes, reverse=True)


def _minutes(item: pytest.Item) -> float:
    about = item.get_closest_marker("minutes") if item.get_closest_marker("torture") else None
    return about.args[0] if about else 0.0


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus != pytest.ExitCode.OK:
        scratch.keep()


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Only the process that was started by hand has a terminal: what the campaigns did is told once."""
    if notes := summary.end():
        terminalreporter.section("faults that landed, and what they cost")
        terminalreporter.write_line("\n".join(summary.table(notes)))
        failed = sum(len(terminalreporter.stats.get(how, ())) for how in ("failed", "error"))
        terminalreporter.write_line(summary.verdict(notes, failed=failed))
