"""Many runs in one process, whose commits share transactions: each does two steps, a payment, a notice and a step."""

from __future__ import annotations

import json
import os
from typing import Final

import perdure
from perdure.errors import EffectInDoubt
from tests.crash import killer
from tests.crash.agent50 import charge, plan, post

RUNS: Final = tuple(f"run-{number}" for number in range(6))


@perdure.agent
def member(name: str) -> list[str]:
    return [plan(0), plan(1), charge(name), post(name), plan(2)]


def main() -> None:
    """Start the crowd, or go on with it, and tell of each run its result or that it is in doubt."""
    killer.arm()
    handles = {name: perdure.start(member, name, run_id=name) for name in RUNS}
    told: dict[str, list[str] | str] = {}
    for name, handle in handles.items():
        try:
            told[name] = handle.result()
        except EffectInDoubt as error:
            told[name] = error.code
    print(json.dumps(told), flush=True)
    os._exit(0)
