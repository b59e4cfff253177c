"""Records somebody forged, with digests that match: they end in an error, and nothing they name is imported or run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from perdure.bodies import Ended, write_body
from perdure.errors import CheckpointCorrupt, FormatTooNew
from perdure.records import Append, Kind, Record, Run, extended
from perdure.replay import Call, Journal, decide
from perdure.store import blobs
from perdure.store.protocol import Finding
from tests.store.journals import AGENT, created, ending, held_run, land, new_run, step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.store.protocol import Store

DEEP = "[" * 100_000 + "]" * 100_000
CALL = Call(key=".0", name="search", arguments=b"", kind="step")
UNREADABLE = {
    "not json": "Dear Ada",
    "empty": "",
    "another shape": '{"attempt":"first","seconds":[]}',
    "a list": "[1, 2, 3]",
    "deep": f'{{"value":{DEEP}}}',
    "another body": write_body(Ended(state="failed")),
    "a blob that is none": '{"blob":"not an address"}',
    "a blob that is missing": '{"blob":"' + "ab" * 32 + '"}',
}


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store) -> Iterator[None]:
    """A module that would be noticed if anything imported it; what is imported once a store is in use is counted."""
    store.join()
    store.losses()
    (tmp_path / "perdure_trap.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield
    assert "perdure_trap" not in sys.modules
    assert {name for name in set(sys.modules) - before if not name.startswith(("perdure", "_", "encodings"))} == set()


def forged(run: Run, kind: str, body: str, *, name: str = "search") -> Append:
    record = Record(run.length, kind, ".0", name, b"", 1.0, run.epoch, body)
    after, records = extended(run, at=1.0, records=(record,), steps=run.steps + 1)
    return Append(after, records)


def findings(store: Store) -> list[Finding]:
    return [found for found in store.check() if isinstance(found, Finding)]


@pytest.mark.usefixtures("trap")
class TestForgery:
    @pytest.mark.parametrize("what", UNREADABLE)
    def test_body_that_cannot_be_read_is_named_and_cut_off_by_repair(self, store: Store, what: str) -> None:
        land(store, ending(land(store, forged(held_run(store), Kind.STEP, UNREADABLE[what]))))
        (finding,) = findings(store)
        assert (finding.run_id, finding.trusted) == ("run-1", 2)
        assert "record 2" in finding.what
        assert store.repair_run("run-1") == 2
        assert findings(store) == []
        assert [record.kind for record in store.load_journal("run-1")] == ["started", "delivery", "repaired"]

    @pytest.mark.parametrize("what", [what for what in UNREADABLE if not what.startswith("a blob")])
    def test_body_that_cannot_be_read_is_never_replayed(self, store: Store, what: str) -> None:
        land(store, forged(held_run(store), Kind.STEP, UNREADABLE[what]))
        journal = Journal(store.load_journal("run-1"))
        with pytest.raises((ValueError, RecursionError)):
            decide(journal, CALL)

    @pytest.mark.parametrize("what", UNREADABLE)
    def test_first_record_that_cannot_be_read_is_named(self, store: Store, what: str) -> None:
        run, _ = new_run()
        first = Record(0, Kind.STARTED, "", AGENT, run.arguments, 1.0, 0, UNREADABLE[what])
        bare = Run("run-1", "name", AGENT, run.arguments, "power", 1.0, 1.0)
        after, (record,) = extended(bare, at=1.0, records=(first,))
        store.create_run(after, record)
        with pytest.raises(CheckpointCorrupt, match="record 0"):
            store.load_journal("run-1")
        assert findings(store)
        with pytest.raises(CheckpointCorrupt):
            store.repair_run("run-1")

    def test_journal_that_begins_with_something_else_is_named(self, store: Store) -> None:
        bare = Run("run-1", "name", AGENT, b"", "power", 1.0, 1.0)
        after, (record,) = extended(bare, at=1.0, records=(step(bare).records[0],))
        store.create_run(after, record)
        with pytest.raises(CheckpointCorrupt, match="first record is of kind 'step'"):
            store.load_journal("run-1")
        assert findings(store)

    @pytest.mark.parametrize("kind", ["teleported", "", "STEP", "os.system"])
    def test_unknown_kind_is_left_to_a_newer_perdure(self, store: Store, kind: str) -> None:
        run = land(store, forged(held_run(store), kind, "{}"))
        with pytest.raises(FormatTooNew, match="kind"):
            store.load_journal("run-1")
        assert ["newer perdure" in finding.what for finding in findings(store)] == [True]
        assert store.repair_run("run-1") == 0
        assert store.read_run("run-1") == run

    def test_newer_format_is_left_to_a_newer_perdure(self, store: Store) -> None:
        body = '{"agent":"a","arguments":{},"code":"v1","format":99}'
        bare = Run("run-1", "name", AGENT, b"", "power", 1.0, 1.0)
        first = Record(0, Kind.STARTED, "", AGENT, b"", 1.0, 0, body)
        after, (record,) = extended(bare, at=1.0, records=(first,))
        store.create_run(after, record)
        with pytest.raises(FormatTooNew, match="format 99"):
            store.load_journal("run-1")

    @pytest.mark.parametrize(
        "body",
        [
            '{"value":{"$":"perdure_trap:Trap"}}',
            '{"value":{"py/object":"perdure_trap.Trap","__reduce__":["os.system",["true"]]}}',
            '{"failure":{"type":"perdure_trap.Trap","message":"m","arguments":["a"],"plain":true}}',
        ],
    )
    def test_record_that_names_a_module_imports_nothing(self, store: Store, body: str) -> None:
        land(store, forged(held_run(store), Kind.STEP, body, name="perdure_trap:main"))
        assert findings(store) == []
        decide(Journal(store.load_journal("run-1")), CALL)
        decide(Journal(store.load_journal("run-1")), Call(".0", "perdure_trap:main", b"", "step"))

    def test_run_of_an_agent_nobody_knows_imports_nothing(self, store: Store) -> None:
        created(store, agent="perdure_trap:main")
        assert [run.agent for run in store.list_runs(agent="perdure_trap:main", arguments=new_run()[0].arguments)]
        assert findings(store) == []


def test_large_value_that_expands_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    digest, stored = blobs.pack(bytes(1_000_000))
    monkeypatch.setattr(blobs, "MAX_CONTENT_BYTES", 1000)
    with pytest.raises(CheckpointCorrupt):
        blobs.unpack(digest, stored)


def test_large_value_that_could_not_be_read_back_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_CONTENT_BYTES", 1000)
    with pytest.raises(Exception, match="1,001 bytes"):
        blobs.pack(bytes(1001))
    blobs.pack(bytes(1000))


@pytest.mark.parametrize("stored", [b"", b"x", b"z", b"zgarbage", b"r", b"q123"])
def test_large_value_in_no_known_form_is_damage(stored: bytes) -> None:
    with pytest.raises(CheckpointCorrupt, match="damaged"):
        blobs.unpack(blobs.pack(b"content")[0], stored)
