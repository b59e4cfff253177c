"""`perdure doctor`: is everything as runs need it? Each line says how it is, and what to do where it is not well."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import click
from msgspec import Meta, Struct

from perdure import clock
from perdure.cli.options import command, json_option, looking, store_option
from perdure.cli.screen import bad, dim, doubtful, good, print_json, say
from perdure.cli.status import resume_command
from perdure.errors import InvalidSettings, PerdureError, StoreError
from perdure.records import RunState, WaitReason
from perdure.settings import Settings, current_settings
from perdure.store import examined_server, file_of
from perdure.store.health import Level, Sign, room_bytes
from perdure.store.protocol import Which
from perdure.telemetry.text import age, counted, legible, utc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Run, Worker
    from perdure.store.protocol import Store

_STYLES: Final = {"ok": good, "warning": doubtful, "problem": bad}
_WIDTH: Final = max(map(len, _STYLES))
_NAMED: Final = 3
_NEWEST: Final = 100
_DRIFT_SECONDS: Final = 60.0
_PLAUSIBLE_SINCE: Final = 1_704_067_200.0
"""The beginning of 2024: a clock that shows less was never set."""


class Check(Struct, frozen=True):
    """One thing that was looked at."""

    about: Annotated[str, Meta(description="what was looked at: settings, engine, place, disk, sync, store, mark, …")]
    level: Annotated[str, Meta(description="ok, warning or problem")]
    message: Annotated[str, Meta(description="how it is")]
    fix: Annotated[str, Meta(description="what to do; empty where it is well")]


class Checkup(Struct, frozen=True):
    """What `perdure doctor` found."""

    ready: Annotated[bool, Meta(description="whether runs can be started here: there are no problems")]
    store: Annotated[str, Meta(description="the store that was looked at")]
    problems: Annotated[int, Meta(description="how many problems there are")]
    warnings: Annotated[int, Meta(description="how many warnings")]
    checks: Annotated[list[Check], Meta(description="everything that was looked at")]


@click.command()
@click.option("--quiet", "-q", is_flag=True, help="Print nothing: the exit code answers.")
@json_option(Checkup)
@store_option
def doctor(*, quiet: bool, as_json: bool) -> int:
    """Look whether runs are safe here: the store, its disk and its rights, the clock, and who needs somebody.

    Exit code 0: ready, also with warnings. 6: there is a problem. Nothing is changed.
    """
    location, signs = _examined()
    problems = sum(sign.level == "problem" for sign in signs)
    warnings = sum(sign.level == "warning" for sign in signs)
    if as_json:
        checks = [Check(sign.about, sign.level, sign.what, sign.fix) for sign in signs]
        print_json(Checkup(not problems, location, problems, warnings, checks))
    elif not quiet:
        _show(location, signs, problems=problems, warnings=warnings)
    return StoreError.exit_code if problems else 0


def _examined() -> tuple[str, list[Sign]]:
    try:
        settings = current_settings()
    except InvalidSettings as error:
        return "", [Sign("settings", "problem", error.message, error.hint)]
    signs = [Sign("settings", "ok", f"durability {settings.durability}")]
    file = file_of(settings.store)
    if settings.store.startswith("memory:"):
        fix = "name a path with --store or PERDURE_STORE"
        return settings.store, [*signs, Sign("store", "warning", "memory: ends with the process that made it", fix)]
    if file is None:
        location, more = _server_signs(settings)
        return location, [*signs, *more]
    from perdure.store.sqlite.health import Examined  # loads the engine only when it is used

    examined = Examined(
        Path(file).expanduser().absolute(), busy_seconds=settings.open_seconds, room_bytes=room_bytes(settings.room_mb)
    )
    signs += map(_pasteable, examined.signs)
    newest = _newest_at() if examined.is_readable else 0.0
    signs += _clock_signs(examined.workers, newest)
    if examined.is_readable:
        signs += _run_signs(settings, examined.dead_workers)
    return settings.store, signs


def _server_signs(settings: Settings) -> tuple[str, list[Sign]]:
    """A store on a server, which answers for its own disk; its location is shown without a password."""
    try:
        examined = examined_server(settings)
    except PerdureError as error:
        return "", [Sign("store", "problem", error.message, error.hint)]
    signs = [_pasteable(sign) for sign in examined.signs]
    newest = _newest_at() if examined.is_readable else 0.0
    signs += _clock_signs([], newest)
    if examined.is_readable:
        signs += [*_worker_signs(settings), *_run_signs(settings, [])]
    return examined.location, signs


def _worker_signs(settings: Settings) -> Iterator[Sign]:
    """How many processes are at work, by their own signs of life."""
    try:
        with looking() as store:
            workers = store.list_workers()
            alive = sum(store.is_alive(each.worker_id, stall_seconds=settings.stall_seconds) for each in workers)
    except PerdureError as error:
        yield Sign("workers", "problem", error.message, error.hint)
        return
    words = "1 live process" if alive == 1 else f"{alive} live processes"
    silent = len(workers) - alive
    yield Sign("workers", "ok", f"{words}{f', {silent} silent and not forgotten yet' if silent else ''}")


def _pasteable(sign: Sign) -> Sign:
    """With a command that looks at the same store, where it is one of ours."""
    if not sign.fix.startswith("perdure "):
        return sign
    first, comma, rest = sign.fix.partition(",")
    return Sign(sign.about, sign.level, sign.what, f"{command(*first.split()[1:])}{comma}{rest}")


def _newest_at() -> float:
    try:
        with looking() as store:
            return _newest(store)
    except PerdureError:
        return 0.0


def _newest(store: Store) -> float:
    """When the last of the newest runs was written to."""
    return max((run.updated_at for run in store.find_runs(Which(), limit=_NEWEST)), default=0.0)


def _clock_signs(workers: list[Worker], newest_at: float) -> Iterator[Sign]:
    """Leases do not depend on the wall clock; sleeps, deadlines and what people read do."""
    now = clock.wall_seconds()
    mend = "set the clock: timedatectl set-ntp true"
    shown, skew = utc(now), clock.skew_seconds()
    here = [worker for worker in workers if worker.boot_id and worker.boot_id == clock.boot_id()]
    moved = max((abs(now - clock.boot_seconds() - (worker.beat_at - worker.beat_boot)) for worker in here), default=0.0)
    if skew:
        side = "ahead of" if skew > 0 else "behind"
        yield Sign(
            "clock", "warning", f"it is {age(abs(skew))} {side} the server's; for runs the server's time counts", mend
        )
    elif now < _PLAUSIBLE_SINCE:
        yield Sign("clock", "warning", f"it shows {shown}: it was never set", mend)
    elif newest_at > now + _DRIFT_SECONDS:
        what = f"it shows {shown}, and records of {age(newest_at - now)} later are kept: it was set back"
        yield Sign("clock", "warning", what, mend)
    elif moved > _DRIFT_SECONDS:
        what = (
            f"it was moved by {age(moved)} since a process that lives made itself known; sleeps may end late or early"
        )
        yield Sign("clock", "warning", what, mend)
    else:
        yield Sign("clock", "ok", f"it shows {shown}")


def _run_signs(settings: Settings, dead: list[Worker]) -> Iterator[Sign]:
    try:
        with looking() as store:
            found = [*_held_signs(store, settings, dead), *_stopped_signs(store), *_loss_signs(store)]
    except PerdureError as error:
        yield Sign("runs", "problem", error.message, error.hint)
        return
    yield from found


def _held_signs(store: Store, settings: Settings, dead: list[Worker]) -> Iterator[Sign]:
    running = store.find_runs(Which(states=(RunState.RUNNING,)))
    left = [run for run in running if not store.is_running(run, stall_seconds=settings.stall_seconds)]
    if left:
        pids = ", ".join(str(worker.pid) for worker in dead if worker.worker_id in {run.holder for run in left})
        by = f" (pid {pids})" if pids else ""
        what = f"{_named(left)} held by a process that died or gave no sign of life{by}"
        yield Sign("leases", "warning", what, resume_command(left[0]))
    else:
        yield Sign("leases", "ok", f"{counted(len(running), 'run')} held, all by living processes")


def _stopped_signs(store: Store) -> Iterator[Sign]:
    for reason, words, fix in (
        (WaitReason.PARKED, "parked", "ps"),
        (WaitReason.IN_DOUBT, "in doubt", "ps"),
        (WaitReason.HUMAN, "waiting for a person", "inbox"),
    ):
        which = Which(states=(RunState.WAITING,), reasons=(reason,), moved=False)
        count = store.count_runs(which)
        if count:
            named = _named(store.find_runs(which, limit=_NAMED), of=count)
            level: Level = "ok" if reason is WaitReason.HUMAN else "warning"
            yield Sign("runs", level, f"{named} {words}", command(fix))
    gone = store.count_runs(Which(moved=True))
    moved = f", {gone:,} of them moved to another store, where they go on" if gone else ""
    yield Sign("runs", "ok", f"{counted(store.count_runs(Which()), 'run')} kept{moved}")


def _loss_signs(store: Store) -> Iterator[Sign]:
    losses = store.losses()
    if losses:
        when = utc(losses[-1].at)
        gone = sum(loss.expected - loss.found for loss in losses)
        what = f"{counted(gone, 'acknowledged commit')} lost in all, last noticed on {when}"
        yield Sign("losses", "warning", what, command("verify"))


def _named(runs: list[Run], *, of: int = 0) -> str:
    count = of or len(runs)
    names = ", ".join(legible(run.name) for run in runs[:_NAMED])
    return f"{counted(count, 'run')} ({names}{', …' if count > _NAMED else ''})"


def _show(location: str, signs: list[Sign], *, problems: int, warnings: int) -> None:
    for sign in signs:
        level = _STYLES[sign.level](f"{sign.level:{_WIDTH}}")
        say(f"{level}  {sign.about}: {legible(sign.what)}")
        if sign.fix:
            say(f"{' ' * _WIDTH}  {dim('fix:' if sign.level != 'ok' else 'see:')} {legible(sign.fix)}")
    where = f"in {location}" if location else "here"
    if problems:
        say(bad(f"Not ready: {counted(problems, 'problem')} {where}."))
    else:
        say(good(f"Ready: runs can be started {where}.") + (f" {counted(warnings, 'warning')}." if warnings else ""))
