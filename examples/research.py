"""Research that fans out: one run for each topic, all at once, and a summary when all are done.

    python research.py &                  in the background, so that the same shell can kill it
    kill -9 %1                            while the topics are researched: the children die with their parent
    python research.py                    goes on, the children too, and says what was saved

What was searched and written is not searched or written again. The search is made up, and so flaky that each first
attempt fails and is made again a moment later. The model is made up too, and so are its prices.
"""

import asyncio
import time

import perdure

TOPICS = ["owls", "otters", "moles", "herons"]
PATIENT = perdure.Retry(attempts=4, delay_seconds=0.2, on=(ConnectionError,))


@perdure.step(retry=PATIENT)
async def search(topic: str) -> list[str]:
    return await asyncio.to_thread(made_up_search, topic, perdure.current().attempt)


@perdure.step
async def write(topic: str, facts: list[str]) -> str:
    text = await asyncio.to_thread(made_up_model, topic, f"write about {len(facts)} facts")
    perdure.current().spent(dollars=0.02, tokens=1_800)
    return text


@perdure.agent
async def study(topic: str) -> str:
    facts = await search(topic)
    return await write(topic, facts)


@perdure.agent
async def research(topics: list[str]) -> str:
    plan = await write("a plan", topics)
    children = [perdure.start(study, topic) for topic in topics]  # each is a run of its own, and they run at once
    studies = await asyncio.gather(*children)
    return await write("a summary", [plan, *studies])


def made_up_search(topic: str, attempt: int) -> list[str]:
    print(f"searching for {topic}, attempt {attempt}", flush=True)
    time.sleep(0.3)
    if attempt == 1:
        raise ConnectionError("the search is overloaded")
    return [f"{topic}: fact {number}" for number in range(3)]


def made_up_model(about: str, request: str) -> str:
    print(f"writing {about}", flush=True)
    time.sleep(0.5)
    return f"{about}: {request}, done"


if __name__ == "__main__":
    print(perdure.run(research, TOPICS))
