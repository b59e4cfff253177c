"""The line of one process to the store: every verb is a point, and what lands is seen by the witness."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from perdure.records import Append, Mail, Run, Worker
from perdure.store.protocol import Outcome, Store, Terms

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.scheduler import Strand

_OWN: Final = frozenset({"join", "close", "append_all", "claim_run", "create_run", "post", "wait_for_news"})
_READS: Final = [
    name for name, verb in vars(Store).items() if inspect.isfunction(verb) and name not in _OWN and name[0] != "_"
]


class Line:
    """A store, as far as one process can reach it."""

    location = "simulated:"
    created = False
    noticed = 0
    lanes = 1

    def __init__(self, store: Store, process: Process) -> None:
        self.store = store
        self.process = process
        self._told: set[str] = set()
        self._listener: Strand | None = None

    @property
    def lease_seconds(self) -> float:
        play = self.process.play
        return play.settings.stall_seconds if play.plan.is_distant else 0.0

    def join(self) -> Worker:
        worker = self.store.join()
        if not self.process.worker_id:
            self.process.worker_id = worker.worker_id
            self.process.play.workers[worker.worker_id] = self.process
        return worker

    def close(self) -> None:
        self.store.close()

    def claim_run(self, run_id: str, worker_id: str, terms: Terms) -> Run:
        def act() -> Run:
            before = witness.row(run_id)
            try:
                return self.store.claim_run(run_id, worker_id, terms)
            finally:
                witness.claimed(self.process, run_id, terms, before)

        witness = self.process.play.witness
        return self.process.through("claim_run", act, about=run_id)

    def create_run(self, run: Run, first: Any, *args: Any, **kwargs: Any) -> Run:
        def act() -> Run:
            created = self.store.create_run(run, first, *args, **kwargs)
            play.witness.look(self.process, run.run_id)
            play.spread(run.run_id)
            return created

        play = self.process.play
        return self.process.through("create_run", act, about=run.run_id)

    def append_all(self, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
        def act() -> list[Outcome]:
            outcomes = self.store.append_all(batch, power=power)
            play.witness.appended(self.process, batch, outcomes)
            for append in batch:
                if append.run.state != "running":
                    play.spread(append.run.run_id)
            return outcomes

        play = self.process.play
        about = " ".join(f"{append.run.run_id}:{append.records[-1].kind}" for append in batch)
        return self.process.through("append_all", act, about=about, lost=lambda error: [error] * len(batch))

    def post(self, mail: Mail, **options: Any) -> Mail:
        def act() -> Mail:
            posted = self.store.post(mail, **options)
            play.witness.posted(posted)
            play.spread(mail.run_id)
            return posted

        play = self.process.play
        return self.process.through("post", act, about=f"{mail.run_id}:{mail.kind}")

    def wait_for_news(self, seconds: float) -> frozenset[str]:
        """Others may tell, and may not: nobody relies on it."""
        scheduler = self.process.play.scheduler
        if not self._told:
            self._listener = scheduler.current
            scheduler.wait(seconds)
            self._listener = None
        told, self._told = frozenset(self._told), set()
        return told

    def tell(self, run_id: str) -> None:
        """Something may have happened to this run."""
        self._told.add(run_id)
        if self._listener is not None:
            self.process.play.scheduler.wake(self._listener)


def _verb(name: str) -> Callable[..., Any]:
    def call(self: Line, *args: Any, **kwargs: Any) -> Any:
        return self.process.through(name, functools.partial(getattr(self.store, name), *args, **kwargs))

    return call


for _name in _READS:
    setattr(Line, _name, _verb(_name))
