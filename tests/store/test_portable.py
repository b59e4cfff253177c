"""A run as one file: everything it refers to is in it, and nothing of a file that cannot be proved reaches a store."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.bodies import Batch, Done, Kept, Listed, Listing, Opened, Tracked
from perdure.errors import CheckpointCorrupt, FormatTooNew, PerdureError, RunImported
from perdure.records import Kind, Run, RunState, WaitReason, run_digest
from perdure.store import blobs
from perdure.store.lease import read_park
from perdure.store.memory import MemoryStore
from perdure.store.parcel import read_parcel
from perdure.store.portable import adopted, lines_of
from perdure.store.protocol import Finding
from tests.store.journals import (
    PARDON,
    TERMS,
    append,
    claimed,
    created,
    ending,
    held_run,
    land,
    large_step,
    letter,
    step,
)

if TYPE_CHECKING:
    from perdure.store.protocol import Store
    from tests.store.places import Place

CONTENT = b"a page of text " * 3000


def rich_run(store: Store) -> Run:
    """A run with everything that can be referred to: values, batches, a kept directory, artifacts, mail."""
    file, artifact, lot = blobs.pack(b"content of a file"), blobs.pack(b"an artifact"), blobs.pack(b'{"values":[1]}')
    listing = blobs.pack(msgspec.json.encode(Listing((Listed("a.txt", "file", content=file[0].hex()),))))
    tracked = Tracked("directory", "/data", 1, listing=listing[0].hex(), kept=True)
    body = Done(resources=(tracked,), artifacts=(Kept("a", artifact[0].hex(), 11),))
    run = land(store, large_step(held_run(store), CONTENT))
    run = land(store, append(run, Kind.STEP, body, key=".1", stored=(file, artifact, listing)))
    batch = Batch(first=0, count=1, blob=lot[0].hex(), items="d" * 64)
    run = land(store, append(run, Kind.BATCH, batch, key=".2", stored=(lot,)))
    taken = store.post(letter(body='{"ü":"\\ud83d\\ude00 \\"quoted\\""}'))
    store.post(letter(body="{}"))
    return land(store, step(run, value='"ünï\\u0000\\u2028"', taken=(taken.mail_id,)))


def exported(store: Store, run_id: str = "run-1") -> bytes:
    return b"".join(lines_of(store.load_whole(run_id), store.load_blob))


def imported(store: Store, data: bytes) -> Run:
    parcel = read_parcel(io.BytesIO(data), "file")
    return store.import_run(adopted(parcel.whole, exported_at=parcel.first.exported_at), parcel.blobs())


def findings(store: Store) -> list[Finding]:
    return [item for item in store.check() if isinstance(item, Finding)]


class TestThereAndBack:
    @pytest.fixture
    def elsewhere(self) -> Store:
        return MemoryStore()

    def test_finished_run_comes_back_as_it_was(self, store: Store, elsewhere: Store) -> None:
        run = land(elsewhere, ending(rich_run(elsewhere)))
        assert imported(store, exported(elsewhere)) == run
        mine, theirs = store.load_whole("run-1"), elsewhere.load_whole("run-1")
        assert (mine.run, mine.records) == (theirs.run, theirs.records)
        assert mine.mail == theirs.mail
        assert findings(store) == []
        assert exported(store).splitlines()[1:-1] == exported(elsewhere).splitlines()[1:-1]

    def test_every_large_value_comes_along(self, store: Store, elsewhere: Store) -> None:
        rich_run(elsewhere)
        imported(store, exported(elsewhere))
        for content in (CONTENT, b"content of a file", b"an artifact", b'{"values":[1]}'):
            assert store.load_blob(blobs.pack(content)[0]) == content

    def test_run_of_a_live_process_is_exported_as_it_is_at_one_moment(self, store: Store, other: Store) -> None:
        run = rich_run(store)
        lines = lines_of(other.load_whole("run-1"), other.load_blob)
        first = next(lines)
        land(store, step(run))
        data = first + b"".join(lines)
        assert len(read_parcel(io.BytesIO(data), "file").whole.records) == run.length

    def test_unfinished_run_is_parked_and_goes_on_only_by_name(self, store: Store, elsewhere: Store) -> None:
        before = rich_run(elsewhere)
        run = imported(store, exported(elsewhere))
        assert (run.state, run.reason, run.holder) == (RunState.WAITING, WaitReason.PARKED, "")
        assert (run.suspects, run.steps, run.head) == (before.suspects + 1, before.steps, before.head)
        assert run.epoch > before.epoch
        assert read_park(run).code == RunImported.code
        with pytest.raises(RunImported, match="elsewhere it may have gone further"):
            claimed(store, terms=TERMS)
        assert store.list_due(now=4e9) == []
        resumed = claimed(store, terms=PARDON)
        assert (resumed.state, resumed.suspects) == (RunState.RUNNING, before.suspects + 1)
        assert findings(store) == []

    def test_failed_run_can_be_resumed_and_so_is_parked_too(self, store: Store, elsewhere: Store) -> None:
        land(elsewhere, ending(rich_run(elsewhere), RunState.FAILED))
        assert read_park(imported(store, exported(elsewhere))).code == RunImported.code

    def test_known_run_is_left_as_it_is(self, store: Store, elsewhere: Store) -> None:
        land(elsewhere, ending(rich_run(elsewhere)))
        data = exported(elsewhere)
        first = imported(store, data)
        assert imported(store, data) == first
        assert len(store.read_mail("run-1")) == 2

    def test_mail_gets_numbers_of_its_new_store(self, store: Store, elsewhere: Store) -> None:
        rich_run(elsewhere)
        created(store, "run-2")
        for _ in range(5):
            store.post(letter("run-2"))
        imported(store, exported(elsewhere))
        assert len(store.read_mail("run-2")) == 5
        assert [mail.mail_id for mail in store.read_mail("run-1")] == [6, 7]
        assert findings(store) == []

    def test_what_is_imported_is_counted_as_committed(self, place: Place, store: Store, elsewhere: Store) -> None:
        rich_run(elsewhere)
        imported(store, exported(elsewhere))
        store.close()
        again = place.open()
        assert (again.losses(), findings(again)) == ([], [])

    def test_missing_value_stops_the_import_without_a_trace(self, store: Store, elsewhere: Store) -> None:
        """The file may change between its proof and its use."""
        rich_run(elsewhere)
        file = io.BytesIO(exported(elsewhere))
        parcel = read_parcel(file, "file")
        changed = file.getvalue()
        at = changed.index(b'"line":"blob"') + 120
        file.seek(at)
        file.write(b"AAAAAAAA")
        with pytest.raises(CheckpointCorrupt):
            store.import_run(adopted(parcel.whole, exported_at=0.0), parcel.blobs())
        assert store.read_run("run-1") is None
        assert store.read_mail("run-1") == []
        assert findings(store) == []


def test_damaged_run_is_not_exported() -> None:
    store = MemoryStore()
    rich_run(store)
    store._shelf.blobs.clear()  # noqa: SLF001 - as if the disk had lost them
    with pytest.raises(CheckpointCorrupt, match="missing"):
        exported(store)


def test_children_that_are_waited_for_are_named() -> None:
    store = MemoryStore()
    run = held_run(store)
    for key, child in ((".1", "open"), (".2", "answered"), (".3", "never made")):
        run = land(store, append(run, Kind.WAIT, Opened("child", child=child), key=key))
    land(store, append(run, Kind.ANSWER, Done(), key=".2"))
    lines = lines_of(store.load_whole("run-1"), store.load_blob, children=("open", "answered"))
    assert read_parcel(io.BytesIO(b"".join(lines)), "file").open_children == ["open"]


@pytest.fixture(scope="module")
def data() -> bytes:
    store = MemoryStore()
    rich_run(store)
    return exported(store)


def refused(data: bytes) -> PerdureError:
    """The refusal of a file, of which nothing reaches a store."""
    store = MemoryStore()
    with pytest.raises(PerdureError) as caught:
        imported(store, data)
    assert store.list_runs() == []
    assert store.read_mail("run-1") == []
    assert caught.value.safe == "nothing was imported."
    assert caught.value.hint
    return caught.value


class TestHostileFiles:
    def test_file_cut_anywhere_is_refused(self, data: bytes) -> None:
        ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
        for end in {*ends[:-1], *(end - 1 for end in ends), *range(0, len(data) - 1, 997)}:
            assert isinstance(refused(data[:end]), CheckpointCorrupt)

    @settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(drawn=st.data())
    def test_flipped_bit_is_refused(self, data: bytes, drawn: st.DataObject) -> None:
        at = drawn.draw(st.integers(0, len(data) - 2))
        flipped = bytearray(data)
        flipped[at] ^= 1 << drawn.draw(st.integers(0, 7))
        refused(bytes(flipped))

    def test_line_left_out_doubled_or_moved_is_refused(self, data: bytes) -> None:
        lines = data.splitlines(keepends=True)
        for number in range(len(lines)):
            refused(b"".join(lines[:number] + lines[number + 1 :]))
            refused(b"".join(lines[: number + 1] + lines[number:]))
        refused(b"".join([*lines[:3], lines[4], lines[3], *lines[5:]]))

    def test_newer_layout_is_named(self, data: bytes) -> None:
        assert isinstance(refused(rewritten(data, 0, version=2)), FormatTooNew)

    @pytest.mark.parametrize(
        "junk",
        [b"", b"\n", b"{}\n", b"[]\n", b"null\n", b"\x00" * 100, b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"1e999\n"],
    )
    def test_what_is_no_export_is_named(self, junk: bytes) -> None:
        assert isinstance(refused(junk), CheckpointCorrupt)

    def test_record_rewritten_with_a_new_total_breaks_the_chain(self, data: bytes) -> None:
        """Whoever changes a file can sum it up anew; the chain still tells."""
        lines = [json.loads(line) for line in data.splitlines()]
        (number,) = [
            at for at, line in enumerate(lines) if line["line"] == "record" and line["record"]["kind"] == "delivery"
        ]
        body = lines[number]["record"]["body"].replace('"pid":', '"pid":1')
        changed = rewritten(data, number, record={**lines[number]["record"], "body": body})
        assert "record 1 is damaged" in refused(changed).message

    def test_value_rewritten_with_a_new_total_does_not_match_its_address(self, data: bytes) -> None:
        lines = [json.loads(line) for line in data.splitlines()]
        number = next(at for at, line in enumerate(lines) if line["line"] == "blob")
        stored = base64.b64encode(blobs.pack(b"another page " * 5000)[1]).decode()
        assert "damaged" in refused(rewritten(data, number, stored=stored)).message

    def test_mail_rewritten_with_a_new_total_is_refused(self, data: bytes) -> None:
        lines = [json.loads(line) for line in data.splitlines()]
        number = next(at for at, line in enumerate(lines) if line["line"] == "mail")
        changed = rewritten(data, number, mail={**lines[number]["mail"], "by": "somebody else"})
        assert "mail" in refused(changed).message

    def test_value_that_nobody_refers_to_is_refused(self, data: bytes) -> None:
        address, stored = blobs.pack(b"smuggled")
        lines = data.splitlines()[:-1]
        lines.append(msgspec.json.encode({"line": "blob", "address": address.hex(), "stored": stored}))
        first = json.loads(lines[0])
        changed = summed([msgspec.json.encode({**first, "blobs": first["blobs"] + 1}), *lines[1:]])
        assert "does not refer to" in refused(changed).message

    @pytest.mark.parametrize(
        "forged",
        [
            {"state": "completed"},
            {"state": "dancing"},
            {"reason": "because"},
            {"agent": "another.agent"},
            {"epoch": 2**70},
            {"deliveries": -1},
            {"detail": "not json"},
            {"tags": '{"a":1}'},
            {"run_id": ""},
            {"name": "\x1b[2Jgone"},
            {"length": 1},
        ],
    )
    def test_row_that_no_store_would_write_is_refused_though_its_digests_match(
        self, data: bytes, forged: dict[str, Any]
    ) -> None:
        run = msgspec.json.decode(data.splitlines()[1], type=_RunLine).run
        row = msgspec.structs.replace(run, **forged)
        sealed = msgspec.structs.replace(row, digest=digest_of(row))
        changed = rewritten(data, 1, run=msgspec.to_builtins(sealed))
        first = {name: forged[name] for name in ("state", "run_id", "name") if name in forged}
        assert isinstance(refused(rewritten(changed, 0, **first)), CheckpointCorrupt)

    def test_forged_values_of_other_types_are_refused(self, data: bytes) -> None:
        for name in Run.__struct_fields__:
            values: tuple[Any, ...] = (None, [], {}, "\x00" * 3, 1e308, -1, True)
            for value in values:
                line = json.loads(data.splitlines()[1])
                if line["run"][name] != value:
                    refused(rewritten(data, 1, run={**line["run"], name: value}))


class _RunLine(msgspec.Struct):
    run: Run


def digest_of(run: Run) -> bytes:
    try:
        return run_digest(run)
    except OverflowError:
        return run.digest


def rewritten(data: bytes, number: int, **changes: Any) -> bytes:
    """The file with another line, summed up anew."""
    lines = data.splitlines()[:-1]
    lines[number] = msgspec.json.encode({**json.loads(lines[number]), **changes})
    return summed(lines)


def summed(lines: list[bytes]) -> bytes:
    body = b"".join(line + b"\n" for line in lines)
    end = {"line": "end", "lines": len(lines), "sha256": hashlib.sha256(body).hexdigest()}
    return body + msgspec.json.encode(end) + b"\n"


def test_the_file_that_is_tampered_with_here_is_whole(data: bytes) -> None:
    store = MemoryStore()
    assert imported(store, summed(data.splitlines()[:-1])).run_id == "run-1"
    assert findings(store) == []


def test_large_values_are_read_one_at_a_time() -> None:
    """What is in memory while a file is written does not grow with the number of its large values."""
    store = MemoryStore()
    run = held_run(store)
    for number in range(5):
        run = land(store, large_step(run, CONTENT + bytes([number])))
    loaded: list[bytes] = []

    def load(address: bytes) -> bytes:
        loaded.append(address)
        return store.load_blob(address)

    lines = lines_of(store.load_whole("run-1"), load)
    counts = [len(loaded) for line in lines if line.startswith(b'{"line":"blob"')]
    assert counts == [6, 7, 8, 9, 10]
