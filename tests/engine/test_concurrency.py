"""Many runs at once, in one event loop and in threads, each with its own results."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import perdure
from tests.engine.journals import keys_of, records_of, runs, state_of


@perdure.step
async def plus(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


@perdure.step
def plus_sync(number: int) -> int:
    return number + 1


@perdure.effect
async def send(number: int) -> str:
    await asyncio.sleep(0)
    return f"{perdure.current().run_id} sent {number}"


@perdure.effect
def send_sync(number: int) -> str:
    return f"{perdure.current().run_id} sent {number}"


@perdure.agent
async def agent(number: int) -> list[str | int]:
    async def strand(start: int) -> int:
        return await plus(await plus(start))

    found: list[str | int] = [await plus(number), plus_sync(number)]
    found += await asyncio.gather(strand(number), strand(number + 10))
    return [*found, await send(number)]


@perdure.agent
def agent_sync(number: int) -> list[str | int]:
    with ThreadPoolExecutor(2) as pool:
        found: list[str | int] = list(pool.map(plus_sync, [number, number + 10]))
    return [*found, plus_sync(number), send_sync(number)]


def test_a_hundred_runs_in_one_event_loop_do_not_mix() -> None:
    async def main() -> list[list[str | int]]:
        return list(await asyncio.gather(*(agent(number) for number in range(100))))

    results = asyncio.run(main())
    by_arguments = {run.run_id: run for run in runs()}
    assert len(by_arguments) == 100
    for number, (*numbers, sent) in enumerate(results):
        run_id, _, of = str(sent).split(" ")
        assert numbers == [number + 1, number + 1, number + 2, number + 12]
        assert of == str(number)
        assert state_of(run_id) == "completed"
        assert len(keys_of(run_id)) == 7
    assert len({str(result[-1]).split(" ", maxsplit=1)[0] for result in results}) == 100


def test_twenty_threads_of_sync_runs_do_not_mix() -> None:
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda number: perdure.run(agent_sync, number, run_id=f"r{number}"), range(20)))
    for number, result in enumerate(results):
        assert result == [number + 1, number + 11, number + 1, f"r{number} sent {number}"]
        keys = ["main.0", "main.1", "main/plus_sync#0.0", "main/plus_sync#1.0"]
        assert sorted(keys_of(f"r{number}")) == keys
        assert [record.seq for record in records_of(f"r{number}")] == list(range(8))


def test_async_runs_in_several_threads_and_loops_do_not_mix() -> None:
    handles = [perdure.start(agent, number) for number in range(10)]
    for number, handle in enumerate(handles):
        assert handle.result(60)[-1] == f"{handle.run_id} sent {number}"
