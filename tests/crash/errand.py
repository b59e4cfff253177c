"""A short errand for races and frozen holders: a step, gates that the test opens, one effect, a step."""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import perdure
from tests.crash import killer
from tests.crash.agent50 import charge, executed, mail, plan, post

RUN_ID: Final = "errand"
POLL_SECONDS: Final = 0.01
_EFFECTS: Final = {"keyed": charge, "checked": mail, "plain": post}


@perdure.step
def pass_gate(strand: int) -> str:
    """Say that this strand of the process has arrived, and wait until the gate is open."""
    executed()
    Path(f"arrived-{os.getpid()}-{strand}").touch()
    while not Path(os.environ["CRASH_GATE"]).exists():
        time.sleep(POLL_SECONDS)
    return "through"


@perdure.agent
def errand(policy: str, strands: int) -> list[str]:
    done = [plan(1)]
    with ThreadPoolExecutor(max_workers=strands) as pool:
        done += pool.map(pass_gate, range(strands))
    return [*done, _EFFECTS[policy]("parcel"), plan(2)]


def main() -> None:
    killer.arm()
    policy, strands = os.environ["CRASH_POLICY"], int(os.environ.get("CRASH_STRANDS", "1"))
    if "CRASH_WAIT" in os.environ:
        print("ready", flush=True)
        sys.stdin.readline()
    print(json.dumps(perdure.run(errand, policy, strands, run_id=os.environ.get("CRASH_RUN_ID", RUN_ID))))


if __name__ == "__main__":
    main()
