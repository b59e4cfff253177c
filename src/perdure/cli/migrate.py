"""`perdure migrate`: bring a store's tables up to date, or move every run from one store to another."""

from __future__ import annotations

from typing import Annotated

import click
from msgspec import Meta, Struct

from perdure.cli.options import complete_files, json_option, making, refuse_memory, store_option
from perdure.cli.relocation import Relocated, relocate, show
from perdure.cli.screen import good, print_json, say
from perdure.errors import RunHeld, UsageError
from perdure.settings import current_settings
from perdure.store import schema_versions


class Migrated(Struct, frozen=True):
    """What `perdure migrate` did."""

    store: Annotated[str, Meta(description="the store that is up to date now; the target where runs were moved")]
    created: Annotated[bool, Meta(description="whether it was made")]
    before: Annotated[int, Meta(description="the schema version it had; 0 where there was no store")]
    version: Annotated[int, Meta(description="the schema version it has now")]
    moved: Annotated[Relocated | None, Meta(description="with --from and --to: what was moved")]


@click.command()
@click.option("--from", "source", metavar="STORE", shell_complete=complete_files, help="Move the runs of this store …")
@click.option("--to", "target", metavar="STORE", shell_complete=complete_files, help="… to that one.")
@click.option("--unfinished", is_flag=True, help="Only runs that are not finished, and those that belong to them.")
@click.option("--dry-run", is_flag=True, help="Only say what would be moved.")
@json_option(Migrated)
@store_option
def migrate(*, source: str | None, target: str | None, unfinished: bool, dry_run: bool, as_json: bool) -> int:
    """Bring the tables of a store up to date; with --from and --to, move its runs to another store.

    A store is a path or postgresql://…, either way. Every record, mail and large value is verified before it is written
    and read back after. A run that is not finished is closed where it was before it can go on where it is now. Stopped
    at any point, the same command goes on.
    """
    if source is not None and target is not None:
        moved = relocate(source, target, unfinished=unfinished, dry_run=dry_run)
        if as_json:
            print_json(Migrated(moved.target, created=False, before=0, version=0, moved=moved))
        else:
            show(moved)
        return RunHeld.exit_code if moved.left else 0
    if source is not None or target is not None or unfinished or dry_run:
        raise UsageError(
            "--from and --to belong together.",
            safe="nothing was changed.",
            hint="perdure migrate --from ./.perdure/perdure.db --to postgresql://user@host/database",
        )
    settings = current_settings()
    refuse_memory(settings.store)
    before, known = schema_versions(settings)
    with making() as store:
        done = Migrated(store.location, store.created, before, known, None)
    if as_json:
        print_json(done)
    else:
        say(f"{done.store}: {good(_words(done))}")
    return 0


def _words(done: Migrated) -> str:
    """What became of the tables."""
    if not done.before:
        return f"the tables were made, schema version {done.version}"
    if done.before < done.version:
        return f"schema version {done.before} → {done.version}"
    return f"the tables are up to date, schema version {done.version}"
