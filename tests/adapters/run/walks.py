"""What the script of every transport is put through: it reads in every way, and it dies at every stage of an answer."""

from __future__ import annotations

from collections import Counter

from tests.adapters.run.conftest import Place
from tests.adapters.run.speaking import Speaking

DYING = """
import os, pathlib, signal

def die_once(name):
    mark = pathlib.Path(name)
    if mark.exists():
        mark.unlink()
        os.kill(os.getppid(), signal.SIGKILL)  # first, so that it does not start us again
        os.kill(os.getpid(), signal.SIGKILL)

def show(*seen):
    print(*seen, flush=True)
"""


def judge_reading(place: Place, model: Speaking, script: str) -> None:
    """Live and replayed, the script sees what it sees without perdure, and nothing is asked for twice."""
    place.write(script)
    plain = place.plain("agent.py")
    assert plain.code == 0, plain
    asked = len(model.asked)
    place.touch("die")
    killed = place.run("agent.py")
    assert not differing(killed.out, plain.out), differing(killed.out, plain.out)
    assert killed.code == -9, killed
    resumed = place.run("agent.py")
    assert not differing(resumed.out, plain.out), differing(resumed.out, plain.out)
    assert (resumed.code, resumed.out) == (0, plain.out), resumed
    assert len(model.asked) == 2 * asked, "what was answered before the kill was asked for again"


def judge_dying(place: Place, model: Speaking, script: str) -> None:
    """The script dies in the middle of an answer, at the sight of its end, and behind one that broke off."""
    place.write(script)
    process = place.start("-m", "perdure", "run", "agent.py")
    process.kill()  # while the rest of the first answer is held back
    process.communicate()
    model.held.set()
    for mark in ("die at the end of it", "die behind it"):
        place.touch(mark)
        killed = place.run("agent.py")
        assert (killed.code, (place.folder / mark).exists()) == (-9, False), killed
    ended = place.run("agent.py")
    plain = place.plain("agent.py")
    assert (ended.code, plain.code, ended.out) == (0, 0, plain.out), (ended, plain)
    asked = Counter(model.asked) - Counter(["hold", "ends", "whole", "cut"])  # without perdure
    assert asked == {"hold": 2, "ends": 1, "whole": 1, "cut": 2}, asked


def kept(place: Place) -> str:
    """Everything in the store."""
    files = (path for path in (place.folder / ".perdure").rglob("*") if path.is_file())
    return "".join(path.read_bytes().decode("latin-1") for path in files)


def differing(ones: str, others: str) -> list[tuple[str, str]]:
    """The lines in which two outputs differ, side by side; one that ends early differs in nothing that it has not."""
    return [(one, other) for one, other in zip(ones.splitlines(), others.splitlines(), strict=False) if one != other]
