"""What others write to a run, as its readers need it: under which key a wait is written to, and what a verdict says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Raw, Struct

from perdure.bodies import NULL

if TYPE_CHECKING:
    from perdure.records import Record


class Letter(Struct, frozen=True):
    """The body of a verdict or of evidence in the mailbox."""

    attempt: int = 0
    outcome: Literal["happened", "did_not_happen", "fail"] = "happened"
    value: Raw = NULL


def mail_key(wait: Record) -> str:
    """The key of mail to a wait: its call, and the record that opened it, so that a question asked anew is another."""
    return f"{wait.key}@{wait.seq}"
