"""The agents of the workers that are measured: one does nothing, the other takes steps and writes down when and where.

A worker loads this file: `perdure worker benchmarks/postgres/errands.py`.
"""

from __future__ import annotations

import os
import time

import perdure

LOG = "BENCHMARK_LOG"
STRIDE_SECONDS = 0.02
STRIDES = 1_000_000


@perdure.agent
def nothing(_number: int) -> None:
    """Be accepted, claimed and completed."""


@perdure.step
def stride(number: int) -> int:
    """Write down who takes this step, and when by the clock that all processes of a machine share."""
    log = os.open(os.environ[LOG], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(log, f"{os.getpid()} {time.monotonic_ns()} {number}\n".encode())
    os.close(log)
    time.sleep(STRIDE_SECONDS)
    return number


@perdure.agent
def wander() -> None:
    """Walk on, whoever carries it."""
    for number in range(STRIDES):
        stride(number)
