"""The command `perdure`, also as `python -m perdure`: one that is asked to end while it still loads ends well."""

import os
import signal
import sys

INTERRUPTED_EXIT_CODE = 130


def main() -> int:
    """Run one command; the exit code says how it ended."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave_interrupted)
    if _command(sys.argv[1:]) == "worker":
        _end_well()
    from perdure.cli import main as run_command  # only now: loading it is most of what a short command does

    signal.signal(signal.SIGINT, usual)
    return run_command()


def _end_well() -> None:
    """A worker that has not begun has nothing to drain: asked to end, it has."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)


def _command(arguments: list[str]) -> str:
    """What is to be done; options may come before it."""
    given = iter(arguments)
    for each in given:
        if not each.startswith("-"):
            return each
        if each == "--store":
            next(given, None)
    return ""


def _leave(number: int, frame: object) -> None:
    del number, frame
    os._exit(0)


def _leave_interrupted(number: int, frame: object) -> None:
    del number, frame
    os._exit(INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    sys.exit(main())
