"""Since when a run could go on: since it was accepted, since what it waited for has come, since its holder was gone."""

from __future__ import annotations

import pytest

from perdure.records import Mail, Run, RunState, Worker
from perdure.worker.readiness import ready_at


class Shelf:
    """What a store keeps of one run."""

    def __init__(self, *mails: Mail, holder: Worker | None = None) -> None:
        self._mails, self._holder = list(mails), holder

    def read_mail(self, run_id: str) -> list[Mail]:
        del run_id
        return self._mails

    def read_worker(self, worker_id: str) -> Worker | None:
        del worker_id
        return self._holder


def run(state: RunState, *, wake_at: float = 0.0, heard: int = 0) -> Run:
    return Run("r", "r", "a", b"", "power", 50.0, 100.0, state=state, wake_at=wake_at, heard=heard, holder="w")


def mail(number: int, kind: str, at: float, *, taken: int = 0) -> Mail:
    return Mail(number, "r", kind, "k", "", "ada", at, taken=taken)  # type: ignore[arg-type]


def worker(*, beat_at: float, died_at: float = 0.0) -> Worker:
    return Worker("w", 1, "h", "b", 1, beat_at, 0.0, died_at=died_at)


@pytest.mark.parametrize(
    ("found", "shelf", "since"),
    [
        (run(RunState.QUEUED), Shelf(), 100.0),
        (run(RunState.WAITING), Shelf(mail(1, "answer", 500.0)), 500.0),
        (run(RunState.WAITING), Shelf(mail(1, "refused", 400.0), mail(2, "answer", 500.0)), 500.0),
        (run(RunState.WAITING, heard=1), Shelf(mail(1, "signal", 90.0), mail(2, "answer", 500.0)), 500.0),
        (run(RunState.WAITING), Shelf(mail(1, "signal", 90.0, taken=3), mail(2, "signal", 500.0)), 500.0),
        (run(RunState.WAITING, wake_at=300.0), Shelf(mail(1, "answer", 500.0)), 300.0),
        (run(RunState.WAITING, wake_at=900.0), Shelf(mail(1, "answer", 500.0)), 500.0),
        (run(RunState.WAITING, wake_at=300.0), Shelf(), 300.0),
        (run(RunState.WAITING), Shelf(), 100.0),
        (run(RunState.RUNNING), Shelf(), 100.0),
        (run(RunState.RUNNING), Shelf(holder=worker(beat_at=130.0)), 130.0),
        (run(RunState.RUNNING), Shelf(holder=worker(beat_at=130.0, died_at=140.0)), 140.0),
    ],
)
def test_run_could_go_on_since(found: Run, shelf: Shelf, since: float) -> None:
    assert ready_at(shelf, found) == since  # type: ignore[arg-type]
