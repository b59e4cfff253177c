"""The examples, killed at every point by the kit: nothing is repeated, and nothing is lost."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from perdure.testing.crash.campaign import Laboratory
from perdure.testing.crash.options import Options
from perdure.testing.crash.subject import Subject
from tests.kit.campaigns import note_counts
from tests.sampling import every

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICK = "import time\ntime.sleep = lambda seconds: None\n"
"""The examples stand for slow models by sleeping."""


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("first.py", ()),
        ("approval.py", ()),
        ("refund.py", ("order-7",)),
        ("refund.py", ("order-8", "--check")),
        ("research.py", ()),
    ],
)
@every(sampled=60, tortured=1)
def test_example_killed_anywhere_repeats_and_loses_nothing(
    tmp_path: Path, script: str, words: tuple[str, ...], stride: int
) -> None:
    expect_fine(tmp_path, Subject(kind="script", app=str(EXAMPLES / script), words=words), stride)


@every(sampled=24, tortured=1)
def test_pipeline_killed_anywhere_repeats_and_loses_nothing(tmp_path: Path, stride: int) -> None:
    arguments = '{"rows":200,"database":"warehouse.db"}'
    subject = Subject(kind="agent", app=str(EXAMPLES / "etl.py"), name="pipeline", arguments=arguments)
    expect_fine(tmp_path, subject, stride)


@every(sampled=24, tortured=1)
def test_audit_killed_anywhere_repeats_and_loses_nothing(tmp_path: Path, stride: int) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    for name in ("one.py", "two.py"):
        (repository / name).write_text("eval('1')\n")
    git = ["git", "-C", str(repository), "-c", "user.name=ada", "-c", "user.email=ada@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "begin"]):
        subprocess.run([*git, *words], check=True)
    where = (str(repository), "main")
    expect_fine(tmp_path, Subject(kind="script", app=str(EXAMPLES / "audit.py"), words=where), stride)


def expect_fine(folder: Path, subject: Subject, stride: int) -> None:
    (folder / "quick.py").write_text(QUICK)
    subject = Subject(
        kind=subject.kind,
        app=subject.app,
        name=subject.name,
        arguments=subject.arguments,
        words=subject.words,
        setup=(str(folder / "quick.py"),),
    )
    with Laboratory(subject, Options(jobs=2, folder=str(folder), sample=stride)) as laboratory:
        report = laboratory.campaign()
    note_counts(report)
    tally = report.tally
    assert tally.faults == []
    assert tally.landed == tally.planned == tally.resumed == tally.equal > 0
    assert (tally.rerun, tally.repeated, tally.lost) == (0, 0, 0)
