"""`perdure repair`: set aside what cannot be trusted of a run, so that it can go on from what can."""

from __future__ import annotations

import sys

import click
from msgspec import Struct

from perdure.cli.options import command, looking, run_argument, store_option, writing
from perdure.cli.runs import find_run
from perdure.cli.screen import bold, dim, fail, good, say
from perdure.cli.status import resume_command
from perdure.errors import CommitsLost, PerdureError, StoreError, UsageError
from perdure.records import Run
from perdure.store.lease import read_park
from perdure.store.protocol import Finding, Store
from perdure.telemetry.text import counted, legible


class Patient(Struct, frozen=True):
    """A run that cannot go on as it is, and why."""

    run_id: str
    name: str
    why: str


@click.command()
@run_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="Every run that is damaged or parked by lost commits.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def repair(run: str | None, *, everything: bool, yes: bool) -> int:
    """Let a damaged run go on from its trusted records.

    The records after them are set aside. Pure steps among them run again; effects that may be among them are in doubt
    and are not started until their check or a person settles them.
    """
    if (run is None) is not everything:
        raise UsageError(
            "Name one RUN, or --all." if run is None else "RUN and --all exclude each other.",
            safe="nothing was changed.",
            hint="perdure verify lists what is damaged",
        )
    with looking() as store:
        patients = _patients(store)
        chosen = patients if run is None else _chosen(store, patients, run)
    if not chosen:
        say(f"{good('Nothing to repair')}: {'every run' if run is None else legible(run)} is whole.")
        return 0
    _confirm(chosen, yes=yes)
    with writing() as store:
        results = [_repair(store, patient) for patient in chosen]
    return 0 if all(results) else StoreError.exit_code


def _patients(store: Store) -> list[Patient]:
    found = []
    for item in store.check():
        if isinstance(item, Finding):
            if item.run_id:
                found.append(Patient(item.run_id, item.where.removeprefix("run "), item.what))
        elif read_park(item).code == CommitsLost.code:
            found.append(Patient(item.run_id, item.name, read_park(item).message))
    return found


def _chosen(store: Store, patients: list[Patient], wanted: str) -> list[Patient]:
    exact = [patient for patient in patients if wanted in (patient.run_id, patient.name)]
    begun = [patient for patient in patients if wanted and (patient.run_id + "\n" + patient.name).startswith(wanted)]
    matches = exact or begun or [patient for patient in patients if wanted and patient.name.startswith(wanted)]
    if len(matches) > 1:
        raise UsageError(
            f"{legible(wanted)!r} means several runs: {', '.join(patient.run_id for patient in matches)}.",
            safe="nothing was changed.",
            hint="name one of them by its id",
        )
    if not matches:
        whole: Run = find_run(store, wanted)
        matches = [patient for patient in patients if patient.run_id == whole.run_id]
    return matches


def _confirm(patients: list[Patient], *, yes: bool) -> None:
    for patient in patients:
        say(f"{bold(legible(patient.name))}  {legible(patient.why)}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"Repairing {counted(len(patients), 'run')} needs to be confirmed, and there is no terminal to ask on.",
            safe="nothing was changed.",
            hint="add --yes",
        )
    click.confirm("Set aside what cannot be trusted, and go on from what can?", abort=True)


def _repair(store: Store, patient: Patient) -> bool:
    try:
        set_aside = store.repair_run(patient.run_id)
        run = store.read_run(patient.run_id)
    except PerdureError as error:
        fail(*error.lines())
        return False
    say(f"{bold(legible(patient.name))}  {good('repaired')}: {counted(set_aside, 'record')} set aside")
    say("  pure steps among them run again; an effect that may be among them is in doubt until it is settled")
    say(f"  {dim('next:')} {resume_command(run) if run else command('show')}")
    return True
