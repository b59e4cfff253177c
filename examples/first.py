"""A first script of one's own: six pages are read one after the other, then one mail is sent.

    python first.py &                     in the background, so that the same shell can kill it
    kill -9 %1                            while it reads
    python first.py                       goes on at the page it was killed at

The model and the mail server are made up: reading takes a second, and the mail is a line in outbox.txt.
"""

import time
from pathlib import Path

import perdure


@perdure.step  # safe to run again, until its result is saved
def summarise(page: int) -> str:
    print(f"reading page {page}", flush=True)
    time.sleep(1)  # stands for a slow call of a model
    return f"page {page} in one sentence"


@perdure.effect  # must not happen twice
def send(to: str, text: str) -> str:
    with Path("outbox.txt").open("a") as outbox:
        outbox.write(f"to {to}: {text}\n")
    return f"sent to {to}"


@perdure.agent
def digest(pages: int) -> str:
    sentences = [summarise(page) for page in range(1, pages + 1)]
    return send("ada@example.com", "; ".join(sentences))


if __name__ == "__main__":
    print(perdure.run(digest, 6))
