"""`perdure repair`: set aside what cannot be trusted of a run, so that it can go on from what can."""

from __future__ import annotations

from typing import Annotated

import click
from msgspec import Meta, Struct

from perdure.cli.mode import mode
from perdure.cli.options import command, confirm, json_option, looking, run_argument, store_option, writing, yes_option
from perdure.cli.runs import find_run
from perdure.cli.screen import bold, fail, good, print_json, say, say_next
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


class RepairedRun(Struct, frozen=True):
    """A run that could not go on as it was."""

    run_id: Annotated[str, Meta(description="the run's id")]
    name: Annotated[str, Meta(description="its readable name")]
    why: Annotated[str, Meta(description="what was wrong with it")]
    repaired: Annotated[bool, Meta(description="whether it can go on now")]
    set_aside: Annotated[int, Meta(description="how many records were set aside; effects among them are in doubt")]
    error: Annotated[str, Meta(description="why it could not be repaired; empty where it was")]
    next: Annotated[str, Meta(description="the command that takes it further")]


class Repaired(Struct, frozen=True):
    """What `perdure repair` did."""

    runs: Annotated[list[RepairedRun], Meta(description="each run that was not whole; none where nothing was to do")]


@click.command()
@run_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="Every run that is damaged or parked by lost commits.")
@yes_option
@json_option(Repaired)
@store_option
def repair(run: str | None, *, everything: bool, sure: bool, as_json: bool) -> int:
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
        whole = "every run" if run is None or chosen else legible(find_run(store, run).name)
    if chosen:
        _confirm(chosen, sure=sure)
        with writing() as store:
            results = [_repair(store, patient) for patient in chosen]
    else:
        results = []
    if as_json:
        print_json(Repaired(results))
    elif not chosen:
        say(f"{good('Nothing to repair')}: {whole} is whole.")
    return 0 if all(result.repaired for result in results) else StoreError.exit_code


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


def _confirm(patients: list[Patient], *, sure: bool) -> None:
    if not mode.as_json:
        for patient in patients:
            say(f"{bold(legible(patient.name))}  {legible(patient.why)}")
    confirm(f"Set aside what cannot be trusted of {counted(len(patients), 'run')}, and go on from what can?", sure=sure)


def _repair(store: Store, patient: Patient) -> RepairedRun:
    try:
        set_aside = store.repair_run(patient.run_id)
        run = store.read_run(patient.run_id)
    except PerdureError as error:
        if not mode.as_json:
            fail(*error.lines())
        return RepairedRun(patient.run_id, patient.name, patient.why, False, 0, error.message, error.hint)  # noqa: FBT003
    following = resume_command(run) if run else command("ls")
    if not mode.as_json:
        say(f"{bold(legible(patient.name))}  {good('repaired')}: {counted(set_aside, 'record')} set aside")
        say("  pure steps among them run again; an effect that may be among them is in doubt until it is settled")
        say_next(following)
    return RepairedRun(patient.run_id, patient.name, patient.why, True, set_aside, "", following)  # noqa: FBT003
