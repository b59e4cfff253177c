"""Many processes answer and resume one approval at once: one answer counts, and the payment is made once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests import warm
from tests.crash.evidence import read_journal, reading
from tests.crash.nursery import environment
from tests.crash.scene import HELD
from tests.summary import note
from tests.waits import clerk

PATIENCE_SECONDS: Final = 120.0
WAITS: Final = 3
HELD_BY_ANOTHER: Final = 5
RESULT: Final = "paid fare 500closed\n"


def started(folder: Path, *command: str, **settings: str) -> subprocess.Popen[str]:
    return warm.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=environment(settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slice
@pytest.mark.parametrize("racers", [2, 8, *(pytest.param(many, marks=pytest.mark.torture) for many in (4, 16))])
def test_of_many_that_approve_and_resume_one_is_heard_and_the_payment_is_made_once(tmp_path: Path, racers: int) -> None:
    asking = started(tmp_path, "-c", "from tests.waits import clerk; clerk.ask_for_approval()")
    asking.communicate(timeout=PATIENCE_SECONDS)
    assert asking.returncode == WAITS
    processes = [started(tmp_path, "-m", "tests.waits.clerk", **{clerk.ACT: "race"}) for _ in range(racers)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=PATIENCE_SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    held = 0
    for process, (out, err) in zip(processes, said, strict=True):
        assert "Traceback" not in err
        if process.returncode == HELD_BY_ANOTHER:
            held += 1
            assert HELD.search(err) or "held by a worker" in err, err
        else:
            assert (process.returncode, out) == (0, RESULT), err
    accepted, refused = (list(tmp_path.glob(f"{how}-*")) for how in ("accepted", "refused"))
    assert (len(accepted), len(refused)) == (1, racers - 1)
    assert held < racers
    assert (tmp_path / "ledger").read_text() == "paid fare 500\n"
    assert (tmp_path / "bodies").read_text() == "opened\nclosed\n"
    database = tmp_path / ".perdure" / "perdure.db"
    journal = read_journal(database, clerk.RUN_ID)
    assert journal.state == "completed"
    kinds = Counter(entry.kind for entry in journal.entries)
    assert (kinds["wait"], kinds["answer"], kinds["intent"], kinds["receipt"]) == (1, 1, 1, 1)
    with reading(database) as opened:
        mail = Counter(kind for (kind,) in opened.execute("SELECT kind FROM mailbox"))
    assert mail == Counter({"answer": 1, "refused": racers - 1})
    note("racers with an answer", trials=1, landed={"racers": racers}, planned=racers)
    print(f"\n{racers} racers: 1 answer accepted, {len(refused)} refused; {held} held, {racers - held} got the result")
