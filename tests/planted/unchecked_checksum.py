"""Bug: records, rows and mail are believed without their digests being compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.records import Record
from perdure.store import chain
from perdure.store.chain import Prefix
from tests.planted.soil import replace


def believed(run_id: str, rows: Iterable[tuple[Any, ...]]) -> Prefix:
    return Prefix([Record(*row) for row in rows], "")


replace(chain, "walked", believed)
replace(chain, "is_whole", lambda run: True)
replace(chain, "is_whole_mail", lambda mail: True)
