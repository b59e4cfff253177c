"""A short errand for races and frozen holders: a step, a gate that the test opens, one effect, a step."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

import perdure
from tests.crash import killer
from tests.crash.agent50 import charge, executed, mail, plan, post

RUN_ID: Final = "errand"
POLL_SECONDS: Final = 0.01
_EFFECTS: Final = {"keyed": charge, "checked": mail, "plain": post}


@perdure.step
def pass_gate() -> str:
    """Say that this process has arrived, and wait until the gate is open."""
    executed()
    Path(f"arrived-{os.getpid()}").touch()
    while not Path(os.environ["CRASH_GATE"]).exists():
        time.sleep(POLL_SECONDS)
    return "through"


@perdure.agent
def errand(policy: str) -> list[str]:
    return [plan(1), pass_gate(), _EFFECTS[policy]("parcel"), plan(2)]


def main() -> None:
    killer.arm()
    policy = os.environ["CRASH_POLICY"]
    if "CRASH_WAIT" in os.environ:
        print("ready", flush=True)
        sys.stdin.readline()
    print(json.dumps(perdure.run(errand, policy, run_id=os.environ.get("CRASH_RUN_ID", RUN_ID))))


if __name__ == "__main__":
    main()
