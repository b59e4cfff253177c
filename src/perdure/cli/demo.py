"""`perdure demo`: watch agents be killed, and go on."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated, Final

import click
from msgspec import Meta, Struct

from perdure import events
from perdure.cli.options import command, json_option, store_option
from perdure.cli.scene import Process, Watched, line, ours, passing
from perdure.cli.screen import bad, bold, dim, good, print_json, spread
from perdure.demo import SCENARIOS, STEPS, effect, fleet, stage
from perdure.errors import InternalError, UsageError
from perdure.settings import current_settings
from perdure.store import file_of, open_store
from perdure.telemetry.text import counted, legible

_KILLED: Final = "(SIGKILL, that was us)"


class Played(Struct, frozen=True):
    """A scenario that was played."""

    scenario: Annotated[str, Meta(description="crash, approval, effect or fleet")]
    runs: Annotated[list[str], Meta(description="the names of its runs, in the order in which they were accepted")]
    killed: Annotated[int, Meta(description="how many processes were killed")]
    next: Annotated[list[str], Meta(description="the commands that go on from here, in their order")]


class Playing(Struct, frozen=True):
    """How a scenario is played."""

    store: str
    pace: str
    after_send: bool


@click.command()
@click.argument("scenario", type=click.Choice(SCENARIOS), default=SCENARIOS[0])
@click.option("--after-send", is_flag=True, help="crash: kill it after the mail was sent, before that was recorded.")
@click.option("--fast", is_flag=True, help="Without the pauses that let you watch.")
@json_option(Played)
@store_option
def demo(scenario: str, *, after_send: bool, fast: bool, as_json: bool) -> None:
    """Watch an agent be killed (SIGKILL, for real), and go on where it stopped.

    \b
    crash     an agent of 50 steps dies while it sends a mail
    approval  an agent dies while it waits for your approval
    effect    an agent dies after it paid, before that was recorded
    fleet     20 runs in 4 processes, two of which die

    The model, its tokens and its prices are made up. The kill, the journal and the files are real; all of them lie in
    the store's folder.
    """  # noqa: D301 - \b is click's mark for text that is not rewrapped
    if after_send and scenario != "crash":
        raise UsageError(
            f"--after-send belongs to crash, not to {scenario}.",
            safe="nothing was started.",
            hint=command("demo", "--after-send"),
        )
    playing = Playing(_file_store(), "0" if fast else "1", after_send)
    played = _SCENES[scenario](playing)
    if as_json:
        print_json(played)


def _crash(playing: Playing) -> Played:
    """Fifty steps; the process dies inside the 47th."""
    death = "after" if playing.after_send else "before"
    process = _play(playing, "crash", death, words=f"{STEPS} steps")
    following = command("resume")
    line(spread(f"  {bad('killed')} {_KILLED}.", f"next: {bold(following)}"))
    return Played("crash", process.names, 1, [following])


def _approval(playing: Playing) -> Played:
    """A question outlives the process that asked it."""
    process = _play(playing, "approval", "asked", words="may it refund?")
    (name,) = process.names
    line(f"  {bad('killed')} {_KILLED} while it waited. The question is still open.")
    approve, resume = command("approve", name), command("resume", name)
    _say_next((approve, "or: reject"), (resume, "the refund happens once"))
    return Played("approval", process.names, 1, [approve, resume])


def _effect(playing: Playing) -> Played:
    """The same payment twice: one whose outcome can be checked, one of which only a person can know."""
    names: list[str] = []
    for kind, words in (("checked", "with a check"), ("blind", "without a check")):
        process = _play(playing, "effect", "after", kind, words=words, is_first=not names)
        line(f"  {bad('killed')} {_KILLED}: paid, and nobody recorded it.")
        names += process.names
        _show_command("resume", process.names[0])
    paid = stage.written(effect.PAYMENTS)[-1]["payment"]
    line("The first found out by its check. The second waits for you, unrepeated.")
    line(f"{_shown_folder()}/{effect.PAYMENTS} has {paid}, so it happened:")
    settle, resume = command("settle", names[1], "--happened", f'"{paid}"'), command("resume", names[1])
    _say_next((settle, ""), (resume, ""))
    return Played("effect", names, 2, [settle, resume])


def _fleet(playing: Playing) -> Played:
    """Many runs in several processes; every second process dies."""
    total = fleet.PROCESSES * fleet.RUNS
    _say_title(f"{bold(counted(total, 'run'))}  {fleet.NAME}  {fleet.PROCESSES} processes, {fleet.STEPS} steps a run")
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(_member(playing, number)) for number in range(fleet.PROCESSES)]
        readers = [threading.Thread(target=_count, args=(process, processes)) for process in processes]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    passing("")
    for number, process in enumerate(processes):
        _say_member(number, process)
    listed, resume = command("ps"), command("resume", "--all")
    _say_next((listed, "what is there"), (resume, "every run goes on where it stopped"))
    killed = sum(process.was_killed for process in processes)
    return Played("fleet", [name for process in processes for name in process.names], killed, [listed, resume])


_SCENES: Final = {"crash": _crash, "approval": _approval, "effect": _effect, "fleet": _fleet}


def _play(playing: Playing, scenario: str, death: str, *more: str, words: str, is_first: bool = True) -> Process:
    """One process, watched to its death."""
    watched = Watched()
    with Process(playing.store, scenario, death, playing.pace, *more) as process:
        for event in process.heard():
            if isinstance(event, events.RunStarted):
                headline = f"run {bold(event.run_name)}  {event.agent}  {words}"
                _say_title(headline) if is_first else line(headline)
            watched.show(event)
        watched.settle()
    _refuse_alive(process)
    return process


def _member(playing: Playing, number: int) -> Process:
    death = "together" if _is_doomed(number) else "never"
    return Process(playing.store, "fleet", death, playing.pace, str(number * fleet.RUNS + 1))


def _is_doomed(number: int) -> bool:
    return number % 2 == 1


def _count(process: Process, fellows: list[Process]) -> None:
    for _ in process.heard():
        steps = sum(fellow.steps for fellow in fellows)
        passing(f"  {steps} of {fleet.PROCESSES * fleet.RUNS * fleet.STEPS} steps done")


def _say_member(number: int, process: Process) -> None:
    who = f"pid {process.child.pid:<8} {counted(len(process.names), 'run')}"
    steps = f"{process.steps:>3} of {fleet.RUNS * fleet.STEPS} steps done"
    if _is_doomed(number):
        _refuse_alive(process)
        line(f"  {bad('✘')} {who}  {steps}  {bad('killed')} {_KILLED}")
    elif process.child.returncode:
        _refuse_alive(process)
    else:
        line(f"  {good('✔')} {who}  {steps}")


def _show_command(*words: str) -> None:
    """A command of ours as somebody would type it, with what it says; a refusal is told by the demo itself."""
    line()
    line(f"$ {command(*words)}")
    arguments = [sys.executable, "-P", "-m", "perdure", *words]
    done = subprocess.run(  # noqa: S603 - our own command
        arguments,
        env=ours(current_settings().store),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    told = done.stdout.decode(errors="replace").splitlines()
    for each in itertools.takewhile(lambda each: not each.startswith("perdure: "), told):
        line(legible(each))
    line()


def _say_title(left: str) -> None:
    line(spread(left, f"state: {_shown_folder()}"))
    line(dim("  a demo: the model, its tokens and its prices are made up"))


def _say_next(*following: tuple[str, str]) -> None:
    """The commands to type, one below the other, each with what it is for."""
    width = max(len(words) for words, _ in following)
    for number, (words, note) in enumerate(following):
        head = dim("next:") if not number else dim("then:")
        line(f"  {head} {bold(f'{words:<{width}}') if note else bold(words)}{f'  {dim(note)}' if note else ''}")


def _shown_folder() -> str:
    folder = Path(file_of(current_settings().store) or "").parent
    return str(folder) if folder.is_absolute() else f"./{folder}"


def _file_store() -> str:
    """The store, where it is a file that outlives processes and has a folder."""
    settings = current_settings()
    if file_of(settings.store) is None:
        scheme = settings.store.partition(":")[0]
        raise UsageError(
            f"The store is {scheme}:…, and the demo needs one in a file: it keeps what it did beside it.",
            safe="nothing was started.",
            hint="perdure demo --store ./.perdure/perdure.db",
        )
    open_store(settings.store, seconds=settings.open_seconds).close()
    return settings.store


def _refuse_alive(process: Process) -> None:
    """A child that was not killed has said on standard error what went wrong, unless it simply went on."""
    if process.was_killed:
        return
    raise InternalError(
        f"The demo's process ended with {process.child.returncode} instead of being killed.",
        safe="nothing but the demo's own runs was touched.",
        hint=f"{command('ls')}; then {command('demo')} again",
    )
