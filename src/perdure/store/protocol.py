"""The port every store implements: few verbs, each one transaction, each docstring a guarantee.

`memory` is the executable specification, `sqlite` the default. What a worker writes is fenced by (run, epoch) inside
the same transaction; everybody else writes to the mailbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from perdure.records import Append, Loss, Mail, Record, Run, Worker

EVERY: Final = 2**31
"""As a limit: all there are."""


class Terms(Struct, frozen=True):
    """On which terms a run may be claimed."""

    deliveries: int
    stall_seconds: float
    pardon: bool = False
    """A person asked for this run by name: a park for deliveries or lost commits is forgiven."""


class Which(Struct, frozen=True):
    """Which runs are meant; what is left out does not narrow."""

    states: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    unfinished: bool = False
    agent: str = ""
    """The agent's name, or what follows a dot in it."""
    beginning: str = ""
    """Of the run's name or of its id."""
    since_at: float = 0.0
    until_at: float = 0.0
    tags: dict[str, str] = {}


class Old(Struct, frozen=True):
    """Which runs may be removed: completed and cancelled ones that ended before this; failed ones if asked for."""

    ended_before: float
    failed: bool = False
    named: bool = True
    """Those whose id somebody chose too: once they are gone, the same id begins anew."""


class Prunable(Struct, frozen=True):
    """What removing runs would mean."""

    runs: tuple[Run, ...] = ()
    """Those that would go, in the order in which they would."""
    failed: int = 0
    """So many are old enough and stay, because they failed and can be resumed."""
    named: int = 0
    """So many are old enough and stay, because somebody chose their id."""
    needed: int = 0
    """So many are old enough and stay, because a run that stays refers to them."""
    records: int = 0
    mail: int = 0
    blobs: int = 0
    size: int = 0
    """Bytes of what their records and mail say and of large values that nobody else refers to, as they are stored."""


class Pruned(Struct, frozen=True):
    """What one transaction removed."""

    runs: int = 0
    records: int = 0
    mail: int = 0
    blobs: int = 0
    size: int = 0


class Compacted(Struct, frozen=True):
    """How many bytes the file system got back, how many stay free in the file, and why, where they stay."""

    given_back: int = 0
    free: int = 0
    why: str = ""


class Whole(Struct, frozen=True):
    """A run with everything that is kept of it but its large values, as it was at one moment."""

    run: Run
    records: tuple[Record, ...]
    mail: tuple[Mail, ...] = ()


class Finding(Struct, frozen=True):
    """One thing `check` found: where, what, and how much of the run before it is trusted."""

    where: str
    what: str
    run_id: str = ""
    trusted: int = 0


Outcome = BaseException | None


class Store(Protocol):
    """Where records live."""

    @property
    def location(self) -> str:
        """Where the records are, as a person would write it."""

    @property
    def created(self) -> bool:
        """Whether opening this store made it."""

    @property
    def noticed(self) -> int:
        """How many synced records were found to be lost when this store was opened."""

    def join(self) -> Worker:
        """Make this process known as a worker, once; from then on its death can be noticed.

        Refused (`CheckpointCorrupt`) where damage could hide runs or mail from it.
        """

    def create_run(
        self, run: Run, first: Record, blobs: Sequence[tuple[bytes, bytes]] = (), *, claimed: Sequence[Record] = ()
    ) -> Run:
        """Accept a run: when this returns, its row and first record are committed.

        With `claimed`, the records of its first delivery, the creator holds it from the start: nobody can take it
        between. Those of a fork are the ones it inherits. A known id returns the row that is there, and writes nothing.
        """

    def claim_run(self, run_id: str, worker_id: str, terms: Terms) -> Run:
        """Give the run to this worker: the epoch grows, the delivery is counted, both committed before this returns.

        A live holder is never robbed (`RunHeld`). A finished run is returned as it is. A run that has spent its
        deliveries is parked and `DeliveriesExhausted` raised. Claiming is a sign of life, like a beat.
        """

    def append_all(self, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
        """Extend journals in one transaction, in this order; `power` syncs it to the device.

        Each append lands whole if its run's epoch and length are still what its holder believes, and not at all
        otherwise (`LeaseLost` in its place). Other appends of the batch are not affected. Mail it takes is taken with
        it, once. A store that cannot commit answers with the same error for all.
        """

    def holds(self, run_id: str, epoch: int) -> bool:
        """Whether this epoch is still the run's newest."""

    def beat(self, worker_id: str) -> None:
        """Renew every lease of this worker."""

    def read_worker(self, worker_id: str) -> Worker | None:
        """The worker as it last made itself known; None once it has closed its store."""

    def is_alive(self, worker_id: str, *, stall_seconds: float) -> bool:
        """Whether this worker is there, and gave a sign of life not longer ago than that."""

    def is_running(self, run: Run, *, stall_seconds: float) -> bool:
        """Whether a live process holds this run; a dead or stalled one does not."""

    def read_run(self, run_id: str) -> Run | None:
        """The run's row, verified."""

    def list_runs(self, *, agent: str = "", arguments: bytes = b"", name: str = "", limit: int = 1000) -> list[Run]:
        """Runs, newest first, verified; narrowed by agent and arguments, or by the run's name."""

    def find_runs(self, which: Which, *, limit: int = 1000, skip: int = 0) -> list[Run]:
        """The runs that are meant, newest first, verified; `skip` leaves out so many of the newest."""

    def count_runs(self, which: Which) -> int:
        """How many runs are meant."""

    def list_due(self, *, now: float, limit: int = 1000) -> list[Run]:
        """Waiting runs whose `wake_at` has come, or that have untaken mail newer than they had heard; soonest first."""

    def list_ready(self, *, agents: Sequence[str], now: float, stall_seconds: float, limit: int = 100) -> list[Run]:
        """Runs of these agents that may go on now, verified, at most so many of each kind.

        First those whose holder is gone, then waiting ones that are due, then queued ones, each oldest first. Nothing
        is claimed by it: whoever claims first has the run.
        """

    def list_workers(self) -> list[Worker]:
        """Every worker that is known, in no order; whether one is alive is another question."""

    def ask_to_drain(self, worker_id: str) -> None:
        """Ask a worker to finish what it has and take nothing more; it sees that when it next looks at itself."""

    def load_journal(self, run_id: str) -> list[Record]:
        """Every record of the run, the chain verified from the first to the head; damage raises `CheckpointCorrupt`.

        Row and records are of one moment: a journal that grows meanwhile is never mistaken for a damaged one.
        """

    def load_blob(self, digest: bytes) -> bytes:
        """A large value, verified against its address."""

    def post(self, mail: Mail, *, once: bool = False, heard: bool = False) -> Mail:
        """Put mail into the mailbox of a known run; it is committed, untaken, when this returns.

        With `once`, only the first mail of a kind and key counts: a second one is kept as `refused`, and returned so.
        With `heard`, a run that has finished is not written to (`RunDeaf`): nobody would ever read it.
        """

    def read_mail(self, run_id: str) -> list[Mail]:
        """All mail of the run, taken or not, oldest first, verified."""

    def losses(self) -> list[Loss]:
        """Every loss of acknowledged commits that was ever noticed here."""

    def check(self) -> Iterator[Finding | Run]:
        """Walk over everything kept, as it was at one moment: each run that is whole, and each finding of damage."""

    def repair_run(self, run_id: str) -> int:
        """Set everything after the trusted prefix aside, so that the run can go on; how many records that were.

        Every effect that may be among them is in doubt. A run without damage is left as it is; a live holder is not
        robbed (`RunHeld`).
        """

    def find_prunable(self, old: Old) -> Prunable:
        """What `prune` would remove, as it is at this moment; changes nothing.

        A run stays while one that is not finished refers to it as its parent, its child or its origin, and as long as
        the run that goes on in its place. Damage that could hide such a reference raises `CheckpointCorrupt`.
        """

    def prune(self, old: Old) -> Iterator[Pruned]:
        """Remove them, a few in each transaction: a run goes whole, with its journal and its mail, or stays whole.

        Large values that nobody refers to any more go last. Every transaction asks anew whether a run may go: one that
        was resumed or referred to meanwhile stays. No other journal changes, and the commit counter never shrinks.
        """

    def compact(self) -> Compacted:
        """Give free room back to the file system, where no other process would have to wait for that."""

    def load_whole(self, run_id: str) -> Whole:
        """The run, its journal and its mail, verified, all of one moment."""

    def import_run(self, whole: Whole, blobs: Iterable[tuple[bytes, bytes]] = ()) -> Run:
        """Take a run in that was kept elsewhere, with these large values, in one transaction.

        Its mail gets numbers of this store; one that is not finished has heard of all of it. A known id returns the row
        that is there, and writes nothing.
        """

    def close(self) -> None:
        """Let go of the store; what was acknowledged stays, and what was held is free."""
