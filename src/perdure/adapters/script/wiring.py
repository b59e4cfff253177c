"""What a script is wired with before its first line: the journal's answers, and the hooks on what it will import."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from perdure import clock, codec
from perdure.adapters.http import aiohttp, httpx, urllib3
from perdure.adapters.http.canonical import Reader
from perdure.adapters.http.matching import MODEL, Recorded
from perdure.adapters.http.prices import Prices, current_prices
from perdure.adapters.http.record import Answer
from perdure.adapters.http.redact import Redactor
from perdure.adapters.script.conduct import Conduct, begin, end
from perdure.adapters.script.coverage import Coverage
from perdure.adapters.tools import seams
from perdure.adapters.tools.context import Memory
from perdure.adapters.tools.pending import Pending
from perdure.adapters.tools.perform import perform, perform_async
from perdure.adapters.tools.policy import Policies
from perdure.adapters.userland import source, values
from perdure.adapters.userland.functions import guard
from perdure.adapters.userland.modules import roots_of
from perdure.adapters.userland.outside import audit_processes, watch
from perdure.adapters.userland.values import Values, merged
from perdure.bodies import Note
from perdure.errors import Signal
from perdure.hooks import when_imported
from perdure.records import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.engine.active import Active

_SEED_CHARACTERS: Final = 64


class Project(Struct, frozen=True):
    """What pyproject.toml says of a script's tools and models."""

    policies: Policies
    prices: Prices

    @classmethod
    def load(cls, folder: Path) -> Project:
        """What the project in this folder says; nothing where it says nothing."""
        return cls(Policies.load(folder), current_prices(folder))


def conduct_of(active: Active, project: Project, *, strict: bool, redactor: Redactor | None = None) -> Conduct:
    """Everything known of a run, with what its journal can answer."""
    redactor = Redactor() if redactor is None else redactor
    active.mending = "restore the script and what it reads, and run the same command; or start over: add --fresh"
    entries = active.journal.entries
    for key in entries:
        if key.startswith(MODEL):
            active.unvisited.pop(key, None)  # whether a request is made again is said where it is made

    def is_error(key: str) -> bool:
        done = entries[key].done
        if done is None:
            return True
        answer: Answer = codec.unseal(active.load_value(done.value, done.blob), Answer)
        return answer.is_error

    return Conduct(
        active,
        reader=Reader(),
        recorded=Recorded(entries, is_error=is_error),
        redactor=redactor,
        pending=Pending(_heed),
        policies=project.policies,
        coverage=Coverage(active, strict=strict, clean=redactor.text),
        values=_values_of(active),
        prices=project.prices,
        seams=seams.SEAMS,
    )


def _values_of(active: Active) -> Values:
    """Time and chance as the run has them: its seed is drawn once, and written with its first record."""
    notes = [note for _, note in active.journal.notes]
    seed = next((note.text for note in notes if note.about == "seed"), "")
    if not seed:
        seed = clock.new_token(_SEED_CHARACTERS)
        active.submit(Kind.NOTE, None, Note(about="seed", text=seed))
    return Values(seed.encode(), merged(msgspec.json.decode(note.text) for note in notes if note.about == "drawn"))


@contextlib.contextmanager
def installed(conduct: Conduct, path: str) -> Iterator[None]:
    """Put the hooks in place, each of which takes hold when its library is imported; afterwards nothing is recorded."""
    for name in ("httpx", "httpx2"):
        when_imported(name, httpx.patch)
    when_imported("aiohttp", aiohttp.patch)
    when_imported("urllib3", urllib3.patch)
    when_imported("multiprocessing.process", audit_processes)
    guard.connect(find=conduct.pending.of_name, perform=perform, perform_async=perform_async)
    userland = source.install(roots_of(Path(path)), script=Path(path))
    conduct.memory = Memory(userland.owns, conduct.coverage)
    seams.install()
    begin(conduct)
    values.begin(conduct.values)
    store = Path(conduct.active.store.location)
    unwatch = watch(userland, conduct.coverage.outside, declared=conduct.policies.silent(), ignored=[store])
    try:
        yield
    finally:
        unwatch()
        values.end()
        end()
        with contextlib.suppress(Signal):  # the run has stopped, and ends with what it has
            conduct.write_notes()


def _heed(any_awaited: bool) -> None:  # noqa: FBT001 - what is heard is whether there are any
    guard.any = any_awaited
