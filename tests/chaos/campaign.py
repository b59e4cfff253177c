"""The campaign: workers on one PostgreSQL server, an outside, an operator, and ten minutes of faults from one seed.

Everything it starts lives in one folder, which is left where it is when something was wrong.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

from tests.chaos.faults import Injector, Landing, landings
from tests.chaos.fleet import STORE_AWAY
from tests.chaos.judge import Judgement, judge
from tests.chaos.plan import KINDS, Fault, Terms, plan
from tests.chaos.scene import Scene
from tests.summary import note

_PROGRESS_SECONDS: Final = 15.0
_MANY: Final = {
    "kill": "kills",
    "freeze": "freezes",
    "partition": "partitions",
    "terminate": "ended sessions",
    "restart": "server restarts",
    "drain": "drains",
}


@dataclass
class Outcome:
    """How it went: what is wrong, what was counted, which faults landed."""

    terms: Terms
    folder: Path
    judgement: Judgement
    planned: Counter[str]
    landed: Counter[str]
    notes: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return self.judgement.wrong

    def table(self) -> str:
        """What a person wants to see at the end."""
        rows = [f"{'fault':<12}{'planned':>9}{'landed':>9}"]
        rows += [f"{kind:<12}{self.planned[kind]:>9}{self.landed[kind]:>9}" for kind in KINDS if self.planned[kind]]
        rows += [""] + [f"{name:<52}{count:>8}" for name, count in sorted(self.judgement.counts.items())]
        rows += [f"{'wrong':<52}{len(self.wrong):>8}", *self.notes]
        return "\n".join(rows)


def run(terms: Terms, *, say: Callable[[str], object] = print) -> Outcome:
    """Run a campaign to its end; its folder is removed where nothing was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-chaos-"))
    say(f"chaos: seed {terms.seed}, {terms.runs} runs, {terms.seconds:.0f} s of faults, in {folder}")
    with contextlib.ExitStack() as stack:
        outcome = Campaign(Scene(folder, terms, stack), terms, say).play()
    if outcome.wrong:
        say(f"chaos: {len(outcome.wrong)} wrong with seed {terms.seed}; everything is left in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    say(outcome.table())
    counts = outcome.judgement.counts
    note(
        "chaos on PostgreSQL",
        trials=terms.runs,
        landed={_MANY[kind]: count for kind, count in outcome.landed.items()},
        planned=sum(outcome.planned.values()),
        in_doubt=counts.get("attempts in doubt", 0),
        wrong=len(outcome.wrong),
    )
    return outcome


class Campaign:
    """Faults, then a quiet time in which everything must end, then judgement."""

    def __init__(self, scene: Scene, terms: Terms, say: Callable[[str], object]) -> None:
        self._scene, self._terms, self._say = scene, terms, say
        self._notes: list[str] = []

    def play(self) -> Outcome:
        terms, scene = self._terms, self._scene
        faults = plan(terms, kinds=self._possible_kinds())
        accepting = scene.start("starter", str(terms.runs), str(terms.seconds / 3))
        scene.wait_for_schema(accepting)
        settling = scene.start("person", scene.server.near_url, str(scene.folder / "outside.sock"))
        scene.fleet.look()
        scene.fleet.wait_until_all_work(60)
        injector = Injector(scene.fleet, scene.server, scene.network)
        self._endure(injector, faults)
        self._drain(accepting)
        scene.fleet.end()
        settling.kill()
        return self._judged(injector.landings)

    def _possible_kinds(self) -> tuple[str, ...]:
        if not self._scene.obstacle:
            return self._terms.kinds
        self._notes.append(f"no partitions: {self._scene.obstacle}")
        self._say(self._notes[-1])
        return tuple(kind for kind in self._terms.kinds if kind != "partition")

    def _endure(self, injector: Injector, faults: list[Fault]) -> None:
        began = told = time.monotonic()
        waiting = list(faults)
        while time.monotonic() - began < self._terms.seconds or injector.is_busy:
            now = time.monotonic() - began
            injector.undo_due()
            while waiting and waiting[0].at <= now:
                injector.inject(waiting.pop(0))
            self._scene.fleet.look()
            if time.monotonic() - told > _PROGRESS_SECONDS:
                told = time.monotonic()
                self._tell(now, injector.landings)
            time.sleep(0.05)

    def _drain(self, accepting: subprocess.Popen[bytes]) -> None:
        until = told = time.monotonic()
        until += self._terms.drain_seconds
        while time.monotonic() < until and not (accepting.poll() is not None and self._unfinished() == 0):
            self._scene.fleet.look()
            if time.monotonic() - told > _PROGRESS_SECONDS:
                told = time.monotonic()
                self._say(f"chaos: draining, {self._unfinished()} runs unfinished")
            time.sleep(0.5)

    def _judged(self, injected: list[Landing]) -> Outcome:
        terms = self._terms
        with self._scene.server.connected() as connection:
            found = judge(
                connection,
                runs=terms.runs,
                executions=self._scene.folder / "executions.log",
                outside=self._scene.folder / "outside.log",
            )
        found.wrong += self._unverified()
        found.wrong += self._wrong_leavings()
        found.wrong += self._tracebacks()
        planned = Counter(landing.fault.kind for landing in injected)
        landed = landings(injected, found.interrupted)
        return Outcome(terms, self._scene.folder, found, planned, landed, self._notes)

    def _unverified(self) -> list[str]:
        command = [sys.executable, "-P", "-m", "perdure", "verify", "--json"]
        where, environment = self._scene.folder, self._scene.near_environment
        done = subprocess.run(
            command, env=environment, cwd=where, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode == 0 and json.loads(done.stdout)["runs_whole"] >= self._terms.runs:
            return []
        return [f"perdure verify: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"]

    def _wrong_leavings(self) -> list[str]:
        """Workers leave by themselves only where they were started while the store was out of reach."""
        left = Counter(code for post in self._scene.fleet.posts for code in post.left)
        if left[STORE_AWAY]:
            self._notes.append(f"{left.pop(STORE_AWAY)} workers were started while the store was out of reach")
        return [f"{count} workers left by themselves with exit code {code}" for code, count in left.items() if count]

    def _tracebacks(self) -> list[str]:
        """What no user should ever see."""
        logs = {path: path.read_text() for path in self._scene.folder.glob("*.log") if "." in path.stem}
        return [
            f"{path.name}: {text[text.index('Traceback') :][:2000]}"
            for path, text in logs.items()
            if "Traceback" in text
        ]

    def _tell(self, now: float, injected: list[Landing]) -> None:
        with contextlib.suppress(psycopg.Error), self._scene.server.connected() as connection:
            states = dict(connection.execute("SELECT state, count(*) FROM perdure.runs GROUP BY state").fetchall())
            kinds = Counter(landing.fault.kind for landing in injected)
            shown = ", ".join(f"{count} {name}" for name, count in sorted(states.items()))
            self._say(f"chaos: {now:4.0f} s  {shown};  faults: {dict(kinds)}")

    def _unfinished(self) -> int:
        with contextlib.suppress(psycopg.Error), self._scene.server.connected() as connection:
            row = connection.execute("SELECT count(*) FROM perdure.runs WHERE state <> 'completed'").fetchone()
            return int(row[0]) if row else 1
        return 1
