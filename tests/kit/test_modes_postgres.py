"""The modes over PostgreSQL: the same promises, and a server that is killed under the running agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import UsageError
from perdure.testing.crash.server import Server
from tests.chaos.server import Server as PrivateServer
from tests.kit.campaigns import campaign, described, expect_fine, kinds
from tests.postgres import private_server, server_url
from tests.sampling import every


@every(sampled=40, tortured=1)
@pytest.mark.parametrize("mode", ["racers", "zombie", "clock-jump"])
def test_faults_at_every_point_break_no_promise(tmp_path: Path, mode: str, stride: int) -> None:
    expect_fine(campaign(mode, "errand", tmp_path, sample=stride, store=server_url(), racers=4))


@every(tortured=4)
@pytest.mark.parametrize("mode", ["racers", "zombie", "clock-jump"])
def test_faults_break_no_promise_where_effects_are_performed_at_once(tmp_path: Path, mode: str, stride: int) -> None:
    expect_fine(campaign(mode, "rounds", tmp_path, sample=stride, store=server_url(), racers=4))


@pytest.mark.torture
@pytest.mark.parametrize(("mode", "options"), [("random", {"trials": 60}), ("during-recovery", {"sample": 8})])
def test_kills_at_random_instants_and_of_the_recovery_break_no_promise(
    tmp_path: Path, mode: str, options: dict[str, Any]
) -> None:
    expect_fine(campaign(mode, "errand", tmp_path, store=server_url(), **options))


@pytest.mark.parametrize("mode", ["flip", "disk-full", "power"])
def test_mode_that_needs_files_is_refused_on_a_server(tmp_path: Path, mode: str) -> None:
    with pytest.raises(UsageError, match="keeps its files to itself") as refused:
        campaign(mode, "thinker", tmp_path, store=server_url())
    assert "--kill-database" in refused.value.hint


@pytest.fixture(scope="module")
def private() -> Iterator[PrivateServer]:
    """A server that only these tests use, one after another; whoever started it last, it is gone afterwards."""
    with private_server() as server:
        yield server
        Server(server.url).kill()


@every(sampled=40, tortured=1)
@pytest.mark.minutes(1)
def test_killed_server_loses_nothing_that_was_acknowledged(tmp_path: Path, private: PrivateServer, stride: int) -> None:
    report = campaign("kill-database", "errand", tmp_path, sample=stride, store=private.url, sure=True)
    expect_fine(report)
    assert report.tally.counts["acknowledged"] > 0
    assert report.tally.counts["went on by itself"] > 0, described(report)


def test_write_that_is_tried_again_is_not_stopped_again(tmp_path: Path, private: PrivateServer) -> None:
    report = campaign("kill-database", "errand", tmp_path, at=("create_run:inside",), store=private.url, sure=True)
    expect_fine(report)
    assert report.tally.counts["went on by itself"] == 1, described(report)


def test_server_is_not_killed_unless_somebody_says_that_nobody_needs_it(tmp_path: Path, private: PrivateServer) -> None:
    before = Server(private.url).postmaster.pid
    with pytest.raises(UsageError, match="everything on it is interrupted") as refused:
        campaign("kill-database", "thinker", tmp_path, store=private.url)
    assert "--yes" in refused.value.hint
    with private.connected(), pytest.raises(UsageError, match="1 are connected"):
        campaign("kill-database", "thinker", tmp_path, store=private.url, sure=True)
    assert Server(private.url).postmaster.pid == before


@pytest.mark.slice
@pytest.mark.parametrize(
    ("bug", "mode", "point", "kind"),
    [
        ("no_fence", "zombie", "plan:inside_step", "stale"),
        ("unpredicated_claim", "racers", "plan:recorded", "robbed"),
        pytest.param("lease_never_renewed", "zombie", "plan:inside_step", "robbed", marks=pytest.mark.torture),
        pytest.param("swallowed_doubt", "every", "post:after_effect", "repeated", marks=pytest.mark.torture),
        pytest.param("receipt_first", "every", "post:inside_effect", "lost", marks=pytest.mark.torture),
        pytest.param("key_from_position", "every", "charge:after_effect", "repeated", marks=pytest.mark.torture),
    ],
)
def test_planted_bug_is_found(tmp_path: Path, bug: str, mode: str, point: str, kind: str) -> None:
    report = campaign(mode, "errand", tmp_path, bug=bug, at=(point,), store=server_url())
    assert kind in kinds(report), described(report)
