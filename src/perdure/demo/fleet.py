"""`perdure demo fleet`: many runs in several processes, some of which are killed."""

from __future__ import annotations

import threading
from typing import Final

import perdure
from perdure.demo import stage

NAME: Final = "perdure.demo.fleet"
PROCESSES: Final = 4
RUNS: Final = 5
"""In each process."""
STEPS: Final = 8
PARTS: Final = 4
LETTERS: Final = "demo-letters.jsonl"
_FIRST_DEATH: Final = 3

_doomed = threading.Barrier(RUNS)
"""Where the runs of a process that is to be killed wait for each other: each inside another step."""


@perdure.step
def read(customer: int) -> str:
    """What is known of a customer."""
    _take(customer, 1)
    return f"customer {customer}"


@perdure.step
def outline(facts: str, customer: int) -> str:
    """Ask the model how to begin."""
    _take(customer, 2)
    perdure.current().spent(tokens=320, dollars=0.0008)
    return f"a letter to {facts}"


@perdure.step
def write_part(part: int, customer: int) -> str:
    """Ask the model for a part of the letter."""
    _take(customer, 3 + part)
    perdure.current().spent(tokens=540, dollars=0.0027)
    return f"part {part}"


@perdure.effect(in_flight_seconds=0)
def post_letter(customer: int, letter: list[str]) -> str:
    """Post the letter: the world remembers this one."""
    key = perdure.current().key
    stage.write(LETTERS, key=key, customer=str(customer), letter=" ".join(letter))
    _take(customer, 7)
    return f"letter-{key[:8]}"


@post_letter.check
def was_posted(intent: perdure.Intent) -> perdure.Verdict:
    """Look for the letter among those that were posted."""
    return stage.verdict(LETTERS, intent, f"letter-{intent.key[:8]}")


@perdure.step
def file_copy(letter: str, customer: int) -> str:
    """Put a copy away."""
    _take(customer, 8)
    return f"{letter} filed"


@perdure.agent(name=NAME)
def write_to(customer: int) -> str:
    """Read, outline, write a letter part by part, post it once, file a copy."""
    outline(read(customer), customer)
    parts = [write_part(part, customer) for part in range(PARTS)]
    return file_copy(post_letter(customer, parts), customer)


AGENT: Final = write_to


def play(first: str) -> None:
    """Run the agent for some customers at once, until all are done or all are where they die."""
    handles = [perdure.start(write_to, int(first) + number) for number in range(RUNS)]
    for handle in handles:
        handle.result()


def dies_in(customer: int) -> int:
    """Inside which step a doomed run dies."""
    return _FIRST_DEATH + customer % RUNS


def _take(customer: int, step: int) -> None:
    """Take a while; where the run is doomed and this is the step, wait for its fellows and die with them."""
    stage.take(2 * stage.STEP_SECONDS + customer % RUNS * 0.02)
    if stage.death == "together" and step == dies_in(customer):
        _doomed.wait()
        stage.die()
