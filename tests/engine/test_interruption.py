"""An exception that a signal handler raises in the middle of perdure, and an agent that catches it and goes on."""

from __future__ import annotations

import asyncio
import gc

import pytest

import perdure
from perdure.engine.drive import Perform
from perdure.engine.scope import current_frame
from tests.engine.journals import calls_of
from tests.interrupting import interrupted_at, lines_of


@perdure.step
def look(label: str) -> str:
    return label


@perdure.step
async def look_later(label: str) -> str:
    await asyncio.sleep(0)
    return label


def performing() -> int:
    frame = current_frame()
    assert frame is not None
    assert frame.active is not None
    assert not frame.body, "the agent is no body"
    return frame.active.performing


@pytest.mark.parametrize("line", lines_of(Perform.now))
def test_step_after_an_interruption_is_recorded_and_nothing_is_taken_to_go_on(line: int) -> None:
    @perdure.agent
    def agent() -> int:
        with interrupted_at(Perform.now, line):
            look("first")
        look("second")
        return performing()

    run_id = f"interrupted-{line}"
    assert perdure.run(agent, run_id=run_id) == 0
    kind, _, name = calls_of(run_id)[-1]
    assert (kind, name) == ("step", "look")


@pytest.mark.filterwarnings("ignore:coroutine 'look_later' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("line", lines_of(Perform.later))
def test_the_same_holds_for_coroutines(line: int) -> None:
    @perdure.agent
    async def agent() -> int:
        with interrupted_at(Perform.later, line):
            await look_later("first")
        await look_later("second")
        return performing()

    run_id = f"interrupted-later-{line}"
    assert perdure.run(agent, run_id=run_id) == 0
    gc.collect()  # a coroutine that was made and never awaited is told of when it goes
    kind, _, name = calls_of(run_id)[-1]
    assert (kind, name) == ("step", "look_later")
