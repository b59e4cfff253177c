"""The digests that make damage visible, and the bodies of records."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from perdure.bodies import (
    BODY_OF,
    Attempt,
    Batch,
    Delivery,
    Done,
    Doubt,
    Ended,
    Failure,
    Intended,
    Note,
    Observed,
    Opened,
    Question,
    Repaired,
    Settled,
    Started,
    Tracked,
    read_body,
    write_body,
)
from perdure.records import (
    NO_DIGEST,
    Kind,
    Mail,
    Record,
    Run,
    blob_digest,
    extended,
    mail_digest,
    record_digest,
    run_digest,
    sealed_run,
)

RECORD = Record(3, Kind.STEP, ".2", "search", b"\x01\x02", 12.5, 4, '{"value":1}')
RUN = Run(
    "run-1", "calm-otter", "shop:outreach", b"\x03", "power", 10.0, 11.0, "running", "", "", 4, "worker", 1, 2, 0, 4
)
MAIL = Mail(7, "run-1", "verdict", ".2", '{"outcome":"happened"}', "ada", 13.5)
FAILURE = Failure(type="builtins.OSError", message="no route", arguments=Raw(b'["no route"]'), plain=True)
BODIES: dict[Kind, Struct] = {
    Kind.STARTED: Started(agent="shop:outreach", arguments=Raw(b'{"to":"ada"}'), code="v1", python="3.11"),
    Kind.DELIVERY: Delivery(worker="w", pid=7, host="h", delivery=2, before="its process died"),
    Kind.STEP: Done(value=Raw(b"[1,2.50,null]"), attempt=2, seconds=0.5, shown="search()", state={"plan": Raw(b"1")}),
    Kind.ATTEMPT: Attempt(attempt=1, failure=FAILURE, next_at=3.0),
    Kind.INTENT: Intended(effect_key="k", attempt=1, arguments=Raw(b"{}"), blob="ab" * 32),
    Kind.RECEIPT: Done(failure=FAILURE, dropped=("plan",)),
    Kind.WAIT: Opened(reason="human", due_at=5.0, question=Question(text="Send?", options=("yes", "no"))),
    Kind.ANSWER: Done(value=Raw(b'{"choice":"yes"}'), by="ada"),
    Kind.BATCH: Batch(first=100, count=50, blob="ab" * 32, items="cd" * 16, failed=1, seconds=0.5),
    Kind.OBSERVED: Observed(resources=(Tracked(kind="file", identity="/a", look=1, digest="ab"),), by="ada"),
    Kind.NOTE: Note(about="progress", text="transform", done=47, total=50),
    Kind.DOUBT: Doubt(attempt=1, why="timed out", lost=True),
    Kind.VERDICT: Settled(attempt=1, outcome="did_not_happen", by="check"),
    Kind.REPAIRED: Repaired(set_aside=4, why="record 3 is damaged"),
    Kind.ENDED: Ended(state="failed", failure=FAILURE, reopened=(".2",), undone=True),
}


def other(value: Any) -> Any:
    """A value of the same type that differs by as little as it can."""
    match value:
        case str():
            return value + " "
        case bytes():
            return value[:-1] + bytes([value[-1] ^ 1]) if value else b"\x00"
        case float():
            return value + 0.0001
        case _:
            return value + 1


def changed(struct: Any, field: str) -> Any:
    return msgspec.structs.replace(struct, **{field: other(getattr(struct, field))})


class TestDigests:
    @pytest.mark.parametrize("field", [name for name in Record.__struct_fields__ if name != "digest"])
    def test_of_a_record_covers_every_field(self, field: str) -> None:
        assert record_digest("run-1", NO_DIGEST, changed(RECORD, field)) != record_digest("run-1", NO_DIGEST, RECORD)

    def test_of_a_record_covers_its_run_and_the_record_before(self) -> None:
        digests = {
            record_digest("run-1", NO_DIGEST, RECORD),
            record_digest("run-2", NO_DIGEST, RECORD),
            record_digest("run-1", b"\x01" * 16, RECORD),
        }
        assert len(digests) == 3

    @pytest.mark.parametrize("field", [name for name in Run.__struct_fields__ if name != "digest"])
    def test_of_a_run_covers_every_field(self, field: str) -> None:
        assert run_digest(changed(RUN, field)) != run_digest(RUN)

    @pytest.mark.parametrize("field", [name for name in Mail.__struct_fields__ if name not in {"digest", "mail_id"}])
    def test_of_mail_covers_what_it_says_and_whether_it_was_taken(self, field: str) -> None:
        assert mail_digest(changed(MAIL, field)) != mail_digest(MAIL)

    def test_of_the_digest_itself_is_never_part(self) -> None:
        assert run_digest(msgspec.structs.replace(RUN, digest=b"x" * 16)) == run_digest(RUN)
        assert mail_digest(msgspec.structs.replace(MAIL, digest=b"x" * 16)) == mail_digest(MAIL)
        sealed = msgspec.structs.replace(RECORD, digest=b"x" * 16)
        assert record_digest("run-1", NO_DIGEST, sealed) == record_digest("run-1", NO_DIGEST, RECORD)

    def test_fields_cannot_flow_into_each_other(self) -> None:
        one = msgspec.structs.replace(RECORD, key="ab", name="c")
        two = msgspec.structs.replace(RECORD, key="a", name="bc")
        assert record_digest("run-1", NO_DIGEST, one) != record_digest("run-1", NO_DIGEST, two)

    def test_are_what_stores_already_hold(self) -> None:
        """A change here would make every store that exists look damaged: it needs a new format, not a new number."""
        assert record_digest("run-1", NO_DIGEST, RECORD).hex() == "4943c4be4f5f7762f3915a868a6b12fa"
        assert run_digest(RUN).hex() == "5fc533e1349669902bc72086aedddada"
        assert mail_digest(MAIL).hex() == "1ceb954f195dde26dc18794bf39c36c7"

    def test_of_a_blob_is_its_address(self) -> None:
        assert blob_digest(b"content") == hashlib.sha256(b"content").digest()


class TestChain:
    @given(st.lists(st.text(max_size=20), min_size=1, max_size=8), st.data())
    def test_change_of_any_record_breaks_it_there(self, bodies: list[str], data: st.DataObject) -> None:
        plain = tuple(msgspec.structs.replace(RECORD, seq=seq, body=body) for seq, body in enumerate(bodies))
        _, chain = extended(RUN, at=20.0, records=plain)
        place = data.draw(st.integers(0, len(chain) - 1))
        field = data.draw(st.sampled_from(Record.__struct_fields__[:-1]))
        damaged = [*chain[:place], changed(chain[place], field), *chain[place + 1 :]]
        before, holds = RUN.head, []
        for record in damaged:
            holds.append(record.digest == record_digest(RUN.run_id, before, record))
            before = record.digest
        assert holds.index(False) == place

    def test_extended_row_names_the_new_end(self) -> None:
        plain = tuple(msgspec.structs.replace(RECORD, seq=seq) for seq in (4, 5))
        after, chain = extended(RUN, at=20.0, records=plain, steps=9)
        assert (after.length, after.head, after.updated_at, after.steps) == (RUN.length + 2, chain[-1].digest, 20.0, 9)
        assert after.digest == run_digest(after)

    def test_sealing_twice_is_sealing_once(self) -> None:
        assert sealed_run(sealed_run(RUN)) == sealed_run(RUN)


class TestBodies:
    def test_every_kind_has_one_but_the_patch_mark(self) -> None:
        assert set(BODY_OF) == set(Kind) - {Kind.PATCHED} == set(BODIES)

    @pytest.mark.parametrize("kind", BODIES)
    def test_come_back_as_they_went_in(self, kind: Kind) -> None:
        record = msgspec.structs.replace(RECORD, kind=kind, body=write_body(BODIES[kind]))
        assert read_body(record) == BODIES[kind]

    def test_values_are_kept_byte_for_byte(self) -> None:
        body = write_body(Done(value=Raw(b'{"a": 1.50, "b":"\\u00e9"}')))
        assert bytes(read_body(msgspec.structs.replace(RECORD, body=body)).value) == b'{"a": 1.50, "b":"\\u00e9"}'

    def test_field_of_a_newer_minor_version_is_passed_over(self) -> None:
        record = msgspec.structs.replace(RECORD, body='{"value":1,"colour":"red"}')
        assert read_body(record) == Done(value=Raw(b"1"))

    @pytest.mark.parametrize("kind", BODIES)
    @pytest.mark.parametrize(
        "text", ["", "not json", "[]", "null", '"text"', "{", '{"attempt":"x","state":7,"pid":{}}']
    )
    def test_that_are_none_raise_a_plain_error(self, kind: Kind, text: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            read_body(msgspec.structs.replace(RECORD, kind=kind, body=text))


def test_intents_of_journals_that_also_name_a_boot_still_load() -> None:
    text = '{"effect_key":"k","attempt":2,"arguments":{},"key_at":1.0,"boot_id":"b","boot_at":7.5,"shown":"s"}'
    record = Record(1, Kind.INTENT, "main.0", "send", b"", 1.0, 1, text)
    assert read_body(record) == Intended("k", 2, Raw(b"{}"), key_at=1.0, shown="s")
