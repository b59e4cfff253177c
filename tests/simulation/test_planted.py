"""The simulator can fail: every planted bug that a simulation can see breaks a promise within the first seeds."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import campaign, report

SOON = 60
"""So many seeds are known to be enough; the exhaustive tests count how many of 500 see the bug."""

BUGS = {
    "answer_accepted_twice": "P6",
    "delivery_not_counted": "P9",
    "key_from_position": "P2",
    "lease_never_renewed": "P4",
    "mail_not_taken": "P6",
    "no_fence": "P4",
    "receipt_first": "P2",
    "swallowed_doubt": "P2",
    "unpredicated_claim": "P4",
}


@pytest.mark.slice
@pytest.mark.parametrize("seeds", [SOON, pytest.param(500, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found_within_the_first_seeds(bug: str, seeds: int) -> None:
    summary = campaign(range(seeds), bug=bug, until_broken=seeds == SOON)
    print(f"{bug}: {len(summary.broken)} of {summary.seeds} seeds, the first is {summary.broken[0].seed}")
    assert any(ending.fault.startswith(BUGS[bug]) for ending in summary.broken), report(summary, bug=bug)
    assert summary.broken[0].seed < SOON
