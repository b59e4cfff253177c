"""What of a store cannot be trusted, as lists name it and `perdure verify` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from perdure.cli.options import command
from perdure.cli.screen import bad, dim
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from perdure.store.protocol import Finding


class Damage(Struct, frozen=True):
    """One thing that cannot be trusted."""

    where: Annotated[str, Meta(description="what is damaged: a run, the file, its mark, a mail")]
    what: Annotated[str, Meta(description="what is wrong with it")]
    run_id: Annotated[str, Meta(description="the run it belongs to; empty where it is none's")]
    trusted: Annotated[int, Meta(description="how many records of that run, from the first, are trusted")]
    next: Annotated[str, Meta(description="the command that mends it; empty where none does")]


def damage_of(finding: Finding) -> Damage:
    """A finding as programs get it."""
    return Damage(finding.where, finding.what, finding.run_id, finding.trusted, mending(finding))


def mending(finding: Finding) -> str:
    """The command that mends it, where one does."""
    name = finding.where.removeprefix("run ")
    return command("repair", name if name.isprintable() and name else finding.run_id) if finding.run_id else ""


def damage_lines(damaged: Iterable[Damage]) -> Iterator[str]:
    """What a list of runs says of damage below it."""
    for damage in damaged:
        yield f"{bad('damaged')}  {legible(damage.where)}: {legible(damage.what)}"
        yield f"  {dim('next:')} {command('verify')}"
