"""An agent that starts strands in every way there is. Runs as a script too, on Pythons that have no pytest:

python golden_agent.py record STORE            print the calls of a fresh run
python golden_agent.py replay STORE DUMP       put the dumped journal into a new store, resume it, print what it took
python golden_agent.py dump STORE              run, and print a dump of the journal up to the outcome
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

import perdure
from perdure.bodies import Ended, write_body
from perdure.engine.agent import spec_of
from perdure.engine.session import close_sessions, session
from perdure.records import Append, Kind, Record, Run, RunState, extended
from perdure.store.protocol import Terms

RUN_ID = "golden"
executed: list[str] = []


@perdure.step
def plus(label: str, number: int) -> int:
    executed.append(label)
    return number + 1


@perdure.step
async def plus_async(label: str, number: int) -> int:
    executed.append(label)
    await asyncio.gather(_ignored(), asyncio.to_thread(plus, "inside a body", 0))
    executed.remove("inside a body")
    return number + 1


@perdure.effect
def send(label: str) -> str:
    executed.append(label)
    return f"sent {label}"


@perdure.step(key=lambda label: label)
def keyed(label: str) -> str:
    executed.append(label)
    return label


async def _ignored() -> None:
    await asyncio.sleep(0)


async def strand(label: str, number: int) -> int:
    await asyncio.sleep(0.001 * (3 - number % 3))
    number = await plus_async(f"{label} async", number)
    return plus(f"{label} sync", number)


async def nested(label: str) -> list[int]:
    return list(await asyncio.gather(strand(f"{label} a", 1), strand(f"{label} b", 2)))


def thread_strand(label: str, number: int) -> int:
    return plus(f"{label} 2", plus(f"{label} 1", number))


class Worker(threading.Thread):
    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label
        self.answer = 0

    def run(self) -> None:
        self.answer = thread_strand(self.label, 5)


def in_threads(label: str) -> int:
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(thread_strand(f"{label} target", 1)))
    worker = Worker(f"{label} subclass")
    thread.start()
    worker.start()
    thread.join()
    worker.join()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(thread_strand, f"{label} submit", 2)
        answers += pool.map(thread_strand, [f"{label} map 0", f"{label} map 1"], [3, 4])
        return sum(answers) + worker.answer + first.result()


@perdure.agent
async def helper(label: str) -> int:
    return await plus_async(label, 1) + plus(label, 2)


@perdure.agent
def sync_helper(label: str) -> int:
    return asyncio.run(_gathered(label))


async def _gathered(label: str) -> int:
    return sum(await asyncio.gather(strand(f"{label} x", 1), strand(f"{label} y", 2)))


@perdure.agent
async def golden(number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"first": plus("first", number)}
    found["steps"] = await asyncio.gather(plus_async("gathered 0", 0), plus_async("gathered 1", 1))
    found["gather"] = await asyncio.gather(strand("gather 0", 0), strand("gather 1", 1), strand("gather 2", 2))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(strand(f"group {n}", n)) for n in range(2)]
    found["group"] = [task.result() for task in tasks]
    task = asyncio.create_task(nested("nested"))
    loop = asyncio.get_running_loop()
    other = loop.create_task(strand("other", 7))
    found["wait_for"] = await asyncio.wait_for(strand("wait_for", 1), 60)
    found["wait_for_step"] = await asyncio.wait_for(plus_async("wait_for step", 1), 60)
    found["wait_for_nested"] = await asyncio.wait_for(nested("wait_for nested"), 60)
    found["wait_for_loop"] = await asyncio.wait_for(_on_loop(), 60)
    found["task"] = await task
    found["other"] = await other
    found["to_thread"] = await asyncio.to_thread(thread_strand, "to_thread", 1)
    found["executor"] = await loop.run_in_executor(None, thread_strand, "executor", 2)
    found["threads"] = await asyncio.to_thread(in_threads, "threads")
    found["sent"] = send("receipt")
    found["keyed"] = keyed("explicit")
    found["helpers"] = [await helper("helper 0"), *await asyncio.gather(helper("helper 1"), helper("helper 2"))]
    found["sync_helper"] = await asyncio.to_thread(sync_helper, "sync helper")
    found["patched"] = perdure.patched("golden")
    found["late"] = plus("late", number)
    return found


async def _on_loop() -> int:
    return await asyncio.get_running_loop().create_task(strand("on the loop", 1))


def calls(records: list[Record]) -> list[list[str]]:
    """Kind, key and name of every call, in an order that timing does not change."""
    return sorted([record.kind, record.key, record.name] for record in records if record.key)


def record() -> dict[str, Any]:
    """A fresh run, its calls, and what it executed."""
    result = perdure.run(golden, 1, run_id=RUN_ID)
    return {"result": result, "calls": calls(session().store.load_journal(RUN_ID)), "executed": sorted(executed)}


def dump() -> dict[str, Any]:
    """A fresh run's journal up to its outcome, as JSON that knows of no database."""
    result = perdure.run(golden, 1, run_id=RUN_ID)
    kept = [found for found in session().store.load_journal(RUN_ID) if found.kind not in (Kind.DELIVERY, Kind.ENDED)]
    return {"result": result, "records": [_written(found) for found in kept]}


def load(dumped: dict[str, Any]) -> None:
    """Put a dumped journal into the store, as a run that was interrupted before its outcome."""
    store = session().store
    first, *others = [_read(found) for found in dumped["records"]]
    bare = Run(RUN_ID, "golden-1", spec_of(golden).name, first.arguments, "power", first.at, first.at)
    run, records = extended(bare, at=first.at, records=(first,))
    store.create_run(run, records[0])
    run = store.claim_run(RUN_ID, store.join().worker_id, Terms(3, 120.0))
    body = write_body(Ended(state=RunState.QUEUED, code="interrupted"))
    others.append(Record(0, Kind.ENDED, "", run.agent, b"", first.at, 0, body))
    placed = (msgspec.structs.replace(found, seq=run.length + n, epoch=run.epoch) for n, found in enumerate(others))
    run, records = extended(
        run, at=run.updated_at, records=tuple(placed), state=RunState.QUEUED, holder="", deliveries=0
    )
    assert store.append_all([Append(run, records)], power=True) == [None]


def replay(dumped: dict[str, Any]) -> dict[str, Any]:
    """Resume a dumped journal: what it returned, and what it executed anew."""
    load(dumped)
    result = perdure.run(golden, 1, run_id=RUN_ID)
    return {"result": result, "calls": calls(session().store.load_journal(RUN_ID)), "executed": sorted(executed)}


def _written(found: Record) -> dict[str, Any]:
    arguments = base64.b64encode(found.arguments).decode()
    return {
        "kind": found.kind,
        "key": found.key,
        "name": found.name,
        "arguments": arguments,
        "at": found.at,
        "body": json.loads(found.body),
    }


def _read(found: dict[str, Any]) -> Record:
    body = json.dumps(found["body"])
    arguments = base64.b64decode(found["arguments"])
    return Record(0, found["kind"], found["key"], found["name"], arguments, found["at"], 0, body)


def main() -> None:
    verb, where, *others = sys.argv[1:]
    perdure.configure(store=where)
    match verb:
        case "record":
            answer = record()
        case "dump":
            answer = dump()
        case _:
            with open(others[0]) as file:  # noqa: PTH123 - a script without further imports
                answer = replay(json.load(file))
    close_sessions()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
