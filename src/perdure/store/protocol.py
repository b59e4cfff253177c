"""The port every store implements: few verbs, each one transaction, each docstring a guarantee.

`memory` is the executable specification, `sqlite` the default. What a worker writes is fenced by (run, epoch) inside
the same transaction; everybody else writes to the mailbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from perdure.errors import PerdureError
    from perdure.records import Append, Debounce, Loss, Mail, Queue, Record, Run, Schedule, Worker
    from perdure.store.debounce import Start

ANYTHING: Final = frozenset({""})
"""As news: of any run there may be some."""

EVERY: Final = 2**31
"""As a limit: all there are."""

MOST_DEATHS: Final = 1000
"""So many workers whose death is on record are remembered, and those that runs still name as their holder."""


class Terms(Struct, frozen=True):
    """On which terms a run may be claimed."""

    deliveries: int
    stall_seconds: float
    pardon: bool = False
    """A person asked for this run by name: a park for deliveries or lost commits is forgiven."""
    gated: bool = True
    """The limits of its queue hold, as for every worker; not for whoever executes a run that is its own."""
    head: bytes | None = None
    """Only if its journal still ends with this digest: nobody wrote there since (otherwise `RunHeld`)."""


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
    queue: str = ""
    tenant: str = ""
    moved: bool | None = None
    """Whether they were moved away unfinished, and go on in another store."""


class Crowd(Struct, frozen=True):
    """A queue, and how many of its runs stand where."""

    queue: Queue
    ready: int = 0
    """Queued, and nothing but a worker with room is missing."""
    delayed: int = 0
    running: int = 0
    """Held by a process, dead or alive: a place that a dead one left is not free."""
    oldest_at: float = 0.0
    """When the oldest of the ready ones was accepted; 0 where there is none."""
    token_seconds: float = 0.0
    """After how long the next one may begin, where the rate is what it waits for."""


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


class Arrival(Struct, frozen=True):
    """A run on its way from another store: all of it as it is there, and the addresses of its large values."""

    whole: Whole
    source: str
    target: str
    token: str
    """What this move writes down in both stores."""
    blobs: tuple[bytes, ...] = ()


class Departure(Struct, frozen=True):
    """A run that came in elsewhere, as it was read here: its row, and the digests of its mail."""

    run: Run
    mail: tuple[bytes, ...]
    source: str
    target: str
    token: str


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
    def lease_seconds(self) -> float:
        """After how long without a beat others may take a living worker's runs; 0 where they can see that it lives."""

    @property
    def noticed(self) -> int:
        """How many synced records were found to be lost when this store was opened."""

    @property
    def lanes(self) -> int:
        """How many batches of appends may be under way at once, each of other runs."""

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
        One that is queued, and not delayed, gets its turn among the others.
        """

    def claim_run(self, run_id: str, worker_id: str, terms: Terms) -> Run:
        """Give the run to this worker: the epoch grows, the delivery is counted, both committed before this returns.

        A live holder is never robbed (`RunHeld`). A finished run is returned as it is. A run that has spent its
        deliveries is parked and `DeliveriesExhausted` raised. Claiming is a sign of life, like a beat.

        A run that was not running needs a place in its queue, and a token for its first delivery; without them nothing
        is written (`QueueFull`). However many claim at once, no more are let in. A pardoned run passes.
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

    def list_ready(
        self,
        *,
        agents: Sequence[str],
        queues: Sequence[str] = (),
        version: str = "",
        now: float,
        stall_seconds: float,
        limit: int = 100,
    ) -> list[Run]:
        """Runs of these agents that may go on now, at most so many of each kind.

        First those whose holder is gone, the oldest first; then waiting ones that are due, the soonest first; then
        queued ones: higher priority first, then those of each queue and agent in turn, each in the order of their own
        turns. Without `queues` those of every queue. Pinned to a version are only those of this one. A paused run is
        due once it was let go. A queue that is full shows only what goes on anyway. Nothing is claimed by it: whoever
        claims first has the run. A damaged one is named to whoever claims it, and keeps nobody from the others. What
        this costs does not depend on how many runs are queued, delayed, finished or of other agents.
        """

    def wake_due(self, *, now: float, limit: int = 100) -> int:
        """Let delayed runs whose time has come be ready: they get their turn; how many that were, the soonest first."""

    def declare_queue(self, queue: Queue) -> None:
        """Say what limits a queue has; from now on everybody is held to them, and the newest word counts."""

    def list_queues(self) -> list[Queue]:
        """Every queue that was declared or ever had a run, by name; the default one always."""

    def count_queues(self) -> list[Crowd]:
        """How many runs stand where in each queue that is known, by name, all of one moment."""

    def take_tokens(self, bucket: str, tokens: int = 1, *, rate: float, burst: int) -> float:
        """Take tokens out of a shared bucket, all of them or none: 0 where they were taken.

        Otherwise after how many seconds it is worth asking again. It fills with `rate` tokens a second up to `burst`,
        by one clock for everybody; however many take at once, no more come out than went in.
        """

    def now(self) -> float:
        """The time that everybody who shares this store goes by: a server's own, where there is one."""

    def list_schedules(self) -> list[Schedule]:
        """Every schedule, by name, as it is kept, whole or not."""

    def change_schedule(self, before: Schedule | None, after: Schedule | None) -> bool:
        """Put a schedule in place of another, if that is still what is kept; whether it was.

        Before or after it there may be none. However many try it with the same one before, one does it.
        """

    def debounce_run(self, start: Start) -> Run:
        """Accept a start of a key: when this returns, its arguments are committed, in a run that nobody has taken.

        While there is such a run of the key, it gets the newest start's arguments and keeps its id and name; otherwise
        the start becomes a run of its own. There are never two of a key that nobody has taken, and one that is claimed
        at the same moment has the start's arguments or the start has another run. It may be taken once no other start
        came for so long, and at the latest so long after the first, by the time everybody goes by.
        """

    def list_debounces(self, *, after: tuple[str, str] = ("", ""), limit: int = 1000) -> list[Debounce]:
        """So many of the keys of debounced starts that are kept, by agent and key, those after this one."""

    def keep_debounce(self, debounce: Debounce) -> bool:
        """Keep a key that comes from another store with the run it leads to, unless a newer start is known; if it is.

        The next start of the key then goes into that run, as it would have where it comes from.
        """

    def list_workers(self) -> list[Worker]:
        """Every worker that is known, in no order; whether one is alive is another question."""

    def ask_to_drain(self, worker_id: str) -> None:
        """Ask a worker to finish what it has and take nothing more; it sees that when it next looks at itself."""

    def record_death(self, worker_id: str, cause: str) -> None:
        """Keep how a worker's process ended, as told by whoever waited for it: from then on it is known to be dead.

        The first word counts. Of a worker that is not known nothing is kept, and of all others only so many deaths
        as `MOST_DEATHS` says, the newest.
        """

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

    def wait_for_news(self, seconds: float) -> frozenset[str]:
        """Wait for so long at most, or until somebody tells of runs that were accepted, ended or written to.

        It promises nothing: whoever waits looks all the same, only later. `ANYTHING` where some may have been missed.
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

    def pin_run(self, run_id: str, version: str, *, by: str) -> Run:
        """Let only workers of this version take the run from now on, or any where it is ""; a live holder keeps it.

        One that parked because the code had changed is queued again for that version. A finished run is refused.
        """

    def load_whole(self, run_id: str) -> Whole:
        """The run, its journal and its mail, verified, all of one moment."""

    def load_wholes(self, run_ids: Sequence[str]) -> dict[str, Whole | PerdureError]:
        """The same for several runs, by id; a damaged one is answered with the error, an unknown one not at all."""

    def import_run(self, whole: Whole, blobs: Iterable[tuple[bytes, bytes]] = ()) -> Run:
        """Take a run in that was kept elsewhere, with these large values, in one transaction.

        Its mail gets numbers of this store; one that is not finished has heard of all of it. A known id returns the row
        that is there, and writes nothing.
        """

    def receive_runs(self, arrivals: Sequence[Arrival], load_blob: Callable[[bytes], bytes]) -> list[Outcome]:
        """Take in runs that move here, in one transaction; each lands whole, or is refused and nothing of it is here.

        A finished one is as it was. Any other is parked until it is released; received again, it is as it is now. A run
        that can go on here is not touched.
        """

    def close_runs(self, families: Sequence[Sequence[Departure]]) -> list[Outcome]:
        """Close runs that came in elsewhere, in one transaction: from then on nobody claims them or writes to them.

        All runs of a family are closed, or none: one that a process may hold, or that changed since it was read, keeps
        them all. A finished run stays finished. Closed before by the same move counts as closed.
        """

    def release_runs(self, moves: Sequence[tuple[str, str]]) -> list[Outcome]:
        """Let runs go that came in and are closed where they were, each named by its id and its move's token.

        One that is not on its way here with this token is left as it is.
        """

    def close(self) -> None:
        """Let go of the store; what was acknowledged stays, and what was held is free."""
