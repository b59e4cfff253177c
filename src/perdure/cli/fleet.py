"""`perdure resume --all`: every run that can go on now, several at once, a line for each as it ends."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct

from perdure.asked import Asked
from perdure.cli.contract import RunObject, run_object
from perdure.cli.mode import mode
from perdure.cli.options import command, looking
from perdure.cli.outcome import Interrupted, Moved, Saved, own_output, saved_of
from perdure.cli.screen import INTERRUPTED_EXIT_CODE, bad, bold, dim, doubtful, good, print_json, say, say_next, tell
from perdure.cli.status import status_of
from perdure.cli.typed import app_words
from perdure.engine import agent as engine
from perdure.engine.execute import goes_on_by_itself
from perdure.engine.session import session
from perdure.engine.whereabouts import newest
from perdure.errors import PerdureError, RunCancelled, RunHeld, RunWaits, StepFailed
from perdure.replay import Journal
from perdure.status import likely_app
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perdure.cli.choice import Choice
    from perdure.records import Run

    Agents = dict[str, Callable[..., Any]]

WORST_FIRST: Final = (6, 1, 5, 4, 3)
"""Exit codes from the worst outcome to the best: store, failed, parked, in doubt, waiting for somebody."""

_KINDS: Final = {3: "waiting", 4: "in doubt", 5: "parked", 6: "stopped by the store"}
_LOOK_SECONDS: Final = 0.2
_NAME_COLUMNS: Final = 18
_WORDS_CHARACTERS: Final = 160


class Left(Struct, frozen=True):
    """A run that was not resumed, and why."""

    run: Annotated[RunObject, Meta(description="the run")]
    why: Annotated[str, Meta(description="why it was not resumed")]


class Ended(Struct, frozen=True):
    """A run that was resumed, and how that ended."""

    run: Annotated[RunObject, Meta(description="the run as it stands now")]
    outcome: Annotated[str, Meta(description="how it ended here, in words")]
    saved: Annotated[Saved, Meta(description="what was not repeated")]
    exit_code: Annotated[int, Meta(description="what perdure resume of this run alone would have ended with")]


class Resumed(Moved, frozen=True):
    """What `perdure resume` did: of one run, or with --all of many."""

    resumed: Annotated[
        tuple[Ended, ...], Meta(description="with --all, the runs that were resumed, as they ended")
    ] = ()
    would_resume: Annotated[tuple[Left, ...], Meta(description="with --dry-run, the runs that would be, and why")] = ()
    left: Annotated[tuple[Left, ...], Meta(description="with --all, the runs that were not, and why")] = ()


class Outcome(Struct, frozen=True):
    """How the execution of one run ended."""

    run: Run
    words: str
    exit_code: int
    saved: Saved
    kind: str = ""
    """How it ended in a word or two, to be counted."""


def show_choices(choices: list[Choice]) -> None:
    """What a resume would do, without doing it."""
    going, left = _parted(choices)
    if mode.as_json:
        would = tuple(map(_left, going))
        print_json(Resumed(None, None, Saved(), would_resume=would, left=tuple(map(_left, left))))
        return
    for choice in going:
        say(f"  {good('▸')} {choice.run.name:<{_NAME_COLUMNS}} {_agent(choice.run)}  {choice.why}")
    for choice in left:
        say(_left_line(choice))
    say(f"{counted(len(going), 'run')} would be resumed, {len(left)} left alone; nothing was changed")
    if following := _with_code(left):
        say_next(following)


def resume_all(choices: list[Choice], agents: Agents, *, at_once: int) -> int:
    """Resume what can go on; the exit code is that of the worst outcome."""
    going, left = _parted(choices)
    for choice in left:
        tell(_left_line(choice))
    if going:
        tell(f"resuming {counted(len(going), 'run')}, {min(at_once, len(going))} at once")
    ended = _Pool(agents, at_once=at_once).run(going) if going else []
    code = _worst(ended)
    saved = sum((each.saved for each in ended), Saved())
    if mode.as_json:
        resumed, others = tuple(map(_ended, ended)), tuple(map(_left, left))
        print_json(Resumed(None, None, saved, code, resumed=resumed, left=others))
    else:
        _show_summary(ended, left, saved)
    return code


class _Pool:
    """So many threads, each with one run at a time; Ctrl-C stops all of them at their next call."""

    def __init__(self, agents: Agents, *, at_once: int) -> None:
        self._agents = agents
        self._threads = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="perdure-resume")
        self._is_stopping = False
        self._ended: list[Outcome] = []

    def run(self, choices: list[Choice]) -> list[Outcome]:
        session()  # a store that cannot be opened says so once, not once for each run
        with own_output(), self._heeding_interrupts():
            self._gather({self._threads.submit(self._resume, choice.run) for choice in choices})
        self._threads.shutdown()
        if self._is_stopping:
            raise self._interrupted(len(choices))
        return self._ended

    @contextlib.contextmanager
    def _heeding_interrupts(self) -> Iterator[None]:
        """Ctrl-C asks for an end; a second leaves at once, and then the runs are those of a process that died.

        It is noted and not raised, so that it cannot come between two lines of ours and be lost.
        """
        asked = Asked()

        def note(number: int, frame: object) -> None:
            asked.note(number, frame)
            if asked.is_impatient:
                os._exit(INTERRUPTED_EXIT_CODE)
            self._is_stopping = True

        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:  # whoever started us wants it ignored
            signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _gather(self, pending: set[Future[Outcome | None]]) -> None:
        """Show each run as it ends, until all have."""
        is_told = False
        while pending:
            done, pending = wait(pending, _LOOK_SECONDS, FIRST_COMPLETED)
            for future in done:
                outcome = None if future.cancelled() else future.result()
                if outcome is not None:
                    self._ended.append(outcome)
                    tell(_outcome_line(outcome))
                    _tell_next(outcome)
            if self._is_stopping:
                self._stop(pending, is_told=is_told)
                is_told = True

    def _stop(self, pending: set[Future[Outcome | None]], *, is_told: bool) -> None:
        """Stop what moves, also what was only just taken when this was asked before."""
        moving = [future for future in pending if not future.cancel()]
        session().stop_all()
        if moving and not is_told:
            tell(f"stopping {counted(len(moving), 'run')} at the next step; Ctrl-C again leaves at once")

    def _interrupted(self, count: int) -> Interrupted:
        completed = sum(outcome.words.startswith("completed") for outcome in self._ended)
        return Interrupted(
            f"Interrupted: {completed} of {counted(count, 'run')} completed.",
            safe="every completed step is saved, and what was not done is not lost.",
            hint="the same command resumes the rest",
        )

    def _resume(self, run: Run) -> Outcome | None:
        if self._is_stopping:
            return None
        store, saved = session().store, Saved()
        try:
            saved = saved_of(Journal(store.load_journal(run.run_id)))
            engine.resume(self._agents[run.agent], run, pardon=False, waits=False)
        except BaseException as error:  # noqa: BLE001 - one run's end, whatever it is, is no other run's
            words, code = _words_of(error, is_stopping=self._is_stopping)
            kind = _kind_of(error, words)
            saved = Saved() if isinstance(error, RunHeld) else saved
        else:
            words, code, kind = "completed", 0, "completed"
        with contextlib.suppress(PerdureError):  # how the run ended is said even where its row cannot be read
            run = newest(store, run.run_id) or run
        return Outcome(run, words, code, saved, kind)


def _words_of(error: BaseException, *, is_stopping: bool) -> tuple[str, int]:
    """How a run ended, and what that is worth as an exit code."""
    if isinstance(error, RunHeld):
        return f"left to others: {error.message}", 0
    if isinstance(error, RunWaits):
        if is_stopping:
            return "stopped, to be resumed", 0
        code = 0 if goes_on_by_itself(error) else error.exit_code
        return f"waits: {error.message}", code
    if isinstance(error, RunCancelled):
        return "cancelled", 1
    if isinstance(error, PerdureError):
        return error.message, error.exit_code
    return f"failed: {type(error).__name__}: {error}", 1


def _kind_of(error: BaseException, words: str) -> str:
    """The same in a word or two."""
    if isinstance(error, PerdureError) and not isinstance(error, (RunHeld, RunCancelled, StepFailed)):
        return _KINDS.get(error.exit_code, "failed")
    return words.partition(":")[0] if words.startswith(("left", "cancelled")) else "failed"


def _parted(choices: list[Choice]) -> tuple[list[Choice], list[Choice]]:
    return [each for each in choices if each.goes_on], [each for each in choices if not each.goes_on]


def _worst(ended: list[Outcome]) -> int:
    codes = {outcome.exit_code for outcome in ended}
    return next((code for code in WORST_FIRST if code in codes), max(codes, default=0))


def _outcome_line(outcome: Outcome) -> str:
    mark = good("✔") if outcome.words == "completed" else doubtful("▸") if outcome.exit_code != 1 else bad("✘")
    first = outcome.words.splitlines()[0].replace(f"Run {outcome.run.name} ", "", 1).rstrip(".")
    words = legible(first, _WORDS_CHARACTERS)
    saved = f"  {dim(outcome.saved.words)}" if outcome.saved.steps else ""
    return f"  {mark} {outcome.run.name:<{_NAME_COLUMNS}} {words}, {counted(outcome.run.steps, 'step')}{saved}"


def _tell_next(outcome: Outcome) -> None:
    """What a person can do for a run that was resumed and has stopped again."""
    if outcome.exit_code:
        with contextlib.suppress(PerdureError), looking() as store:
            following = status_of(store, store.read_run(outcome.run.run_id) or outcome.run).next
            if following:
                tell(f"    {dim('next:')} {following}")


def _left_line(choice: Choice) -> str:
    why = legible(choice.why.splitlines()[0], _WORDS_CHARACTERS) if choice.why else choice.status.words
    line = f"  {dim('·')} {choice.run.name:<{_NAME_COLUMNS}} {_agent(choice.run)}  not resumed: {why}"
    return f"{line}\n    {dim('next:')} {choice.next}" if choice.next else line


def _show_summary(ended: list[Outcome], left: list[Choice], saved: Saved) -> None:
    kinds = Counter(outcome.kind for outcome in ended)
    counts = ", ".join(f"{count} {legible(kind, 40)}" for kind, count in kinds.most_common()) or "none could go on"
    others = f"; {len(left)} left alone" if left else ""
    tell(f"{bold(counted(len(ended), 'run'))} resumed: {counts}{others}")
    if saved.steps:
        tell(f"  {saved.words}")
    if following := _with_code(left):
        tell(f"  {dim('next:')} {following}")


def _with_code(left: list[Choice]) -> str:
    """The command that names the code that was lacking, as far as it seems to be here."""
    lacking = sorted({likely_app(choice.run.agent) for choice in left if choice.lacks_code} - {""})
    return command("resume", "--all", *app_words(lacking)) if lacking else ""


def _ended(outcome: Outcome) -> Ended:
    with looking() as store:
        run = store.read_run(outcome.run.run_id) or outcome.run
        return Ended(run_object(run, status_of(store, run)), outcome.words, outcome.saved, outcome.exit_code)


def _left(choice: Choice) -> Left:
    return Left(run_object(choice.run, choice.status), choice.why)


def _agent(run: Run) -> str:
    return dim(legible(run.agent))
