"""A run whose worker is gone goes on elsewhere: at once where the death can be known, else when the lease is over."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.takeover import Gap, measure, median_seconds
from tests.postgres import schema_url
from tests.summary import note

LEASE_SECONDS: Final = 3.0
A_LOOK_SECONDS: Final = 0.25
A_BUSY_MACHINE_SECONDS: Final = 2.0
SMALL: Final = {"PERDURE_LEASE_SECONDS": "3", "PERDURE_RENEW_SECONDS": "1", "PERDURE_STALL_SECONDS": "3"}


def told(what: str, gaps: list[Gap], *, fault: str = "kills") -> None:
    note("workers replaced on PostgreSQL", trials=len(gaps), landed={fault: len(gaps)}, planned=len(gaps))
    ordered = sorted(gap.seconds for gap in gaps)
    print(
        f"\n{what} to the first new step on another worker: median {median_seconds(gaps):.2f} s,"
        f" from {ordered[0]:.2f} to {ordered[-1]:.2f} s, {len(gaps)} times"
    )


def test_run_of_a_killed_worker_goes_on_long_before_its_lease_is_over(tmp_path: Path) -> None:
    with schema_url() as store:
        gaps = measure(tmp_path, store, times=3, how=signal.SIGKILL, settings={})
    told("kill -9", gaps)
    assert max(gap.repeated for gap in gaps) <= 1
    assert median_seconds(gaps) < 30.0 / 2, "with a lease of 30 s, only a noticed death is that quick"


@pytest.mark.torture
def test_killed_worker_is_replaced_within_two_seconds(tmp_path: Path) -> None:
    with schema_url() as store:
        gaps = measure(tmp_path, store, times=25, how=signal.SIGKILL, settings={})
    told("kill -9", gaps)
    assert max(gap.repeated for gap in gaps) <= 1
    assert median_seconds(gaps) < 2.0


@pytest.mark.torture
@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of process numbers need root")
def test_worker_killed_on_another_machine_is_replaced_within_two_seconds_and_a_look(tmp_path: Path) -> None:
    alone = ("unshare", "--pid", "--fork", "--kill-child")
    with schema_url() as store:
        gaps = measure(tmp_path, store, times=20, how=signal.SIGKILL, settings={}, enter=alone)
    told("kill -9 on another machine", gaps)
    assert max(gap.repeated for gap in gaps) <= 1
    assert median_seconds(gaps) < 2.0 + A_LOOK_SECONDS


@pytest.mark.torture
def test_frozen_worker_is_replaced_within_its_lease_and_a_look(tmp_path: Path) -> None:
    with schema_url() as store:
        gaps = measure(tmp_path, store, times=10, how=signal.SIGSTOP, settings=SMALL)
    told("SIGSTOP with a lease of 3 s", gaps, fault="freezes")
    assert max(gap.repeated for gap in gaps) <= 1
    assert median_seconds(gaps) < LEASE_SECONDS + A_LOOK_SECONDS + A_BUSY_MACHINE_SECONDS
