"""The page of the format on disk names every table, column, kind of record and field there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import apsw
import msgspec
import pytest
from msgspec import Struct

from perdure import bodies
from perdure.bodies import BODY_OF
from perdure.records import Kind, Mail
from perdure.store import open_store
from tests.docs.transcripts import DOCS

PAGE = (DOCS / "reference" / "on-disk.md").read_text(encoding="utf-8")
PARTS: dict[str, type[Struct]] = {
    "failure": bodies.Failure,
    "tracked": bodies.Tracked,
    "question": bodies.Question,
    "origin": bodies.Origin,
}
INLINE = (
    bodies.Ancestor,
    bodies.Change,
    bodies.Cost,
    bodies.Kept,
    bodies.Listed,
    bodies.Listing,
    bodies.Lot,
    bodies.Passed,
)


def test_every_table_and_column_of_the_schema_is_described(tmp_path: Path) -> None:
    open_store(str(tmp_path / "made.db")).close()
    schema = apsw.Connection(str(tmp_path / "made.db"))
    tables = [name for (name,) in schema.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert {"runs", "records"} <= set(tables)
    for table in tables:
        columns = [column for (_, column, *_) in schema.execute(f"PRAGMA table_info({table})")]
        section = _section(table)
        if table == "set_aside":
            assert [column for column in columns if f"`{column}`" not in section] == []
        else:
            assert _described(section) == columns, table


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_record_and_every_field_of_its_body_is_described(kind: Kind) -> None:
    section = _section(kind)
    body = BODY_OF.get(kind)
    if body is None:
        assert "no body" in section
        return
    assert f"`{body.__name__}`" in section
    if "as for a step" not in section:
        assert _described(section) == list(body.__struct_fields__)


@pytest.mark.parametrize("title", PARTS)
def test_every_field_of_the_parts_of_bodies_is_described(title: str) -> None:
    assert _described(_section(title)) == list(PARTS[title].__struct_fields__)


def test_every_struct_inside_a_body_is_described_somewhere() -> None:
    inside = {struct for body in BODY_OF.values() for struct in _structs(body)} - set(BODY_OF.values())
    assert inside <= {*PARTS.values(), *INLINE}
    for struct in INLINE:
        assert [field for field in struct.__struct_fields__ if f"`{field}`" not in PAGE] == [], struct


def test_every_kind_of_mail_is_named() -> None:
    section = _section("mailbox")
    kinds = get_args(get_type_hints(Mail)["kind"])
    assert [kind for kind in kinds if f"`{kind}`" not in section] == []


def _structs(struct: type[Struct]) -> set[type[Struct]]:
    found: set[type[Struct]] = set()
    for field in msgspec.structs.fields(struct):
        for inner in (field.type, *get_args(field.type)):
            if isinstance(inner, type) and issubclass(inner, Struct):
                found |= {inner} | _structs(inner)
    return found


def _described(section: str) -> list[str]:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
    assert all(meaning.strip() for _, meaning in rows)
    return [name for name, _ in rows]


def _section(title: str) -> str:
    found = re.search(rf"^### {title}\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]
