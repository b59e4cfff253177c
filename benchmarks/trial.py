"""One trial: one contender does one piece of work once, in a process of its own, and says what it measured.

The process prints one line of JSON: the measurements, or `{"missing": package}` when the contender is not installed.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.commits import CommitCounter


def main() -> None:
    """Do the work named on the command line (`contender.scenario`, parameters as JSON) and report it."""
    work, parameters = sys.argv[1], json.loads(sys.argv[2])
    contender, _, scenario = work.partition(".")
    counter = CommitCounter() if parameters.pop("count_commits", False) else None
    try:
        module = importlib.import_module(f"benchmarks.contenders.{contender}")
    except ModuleNotFoundError as error:
        report({"missing": error.name or contender})
        return
    directory = Path(parameters.pop("directory"))
    measured = getattr(module, scenario)(directory=directory, **parameters)
    if counter is not None:
        measured = {**measured, "commits": counter.commits}
    report(measured)


def report(measured: Mapping[str, float | str]) -> None:
    """Print what was measured; a contender that is about to kill itself calls this first."""
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
