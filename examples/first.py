"""A first script of one's own: six pages are read one after the other, then one mail is sent.

Run it, kill it from another shell while it reads (`pkill -9 -f first.py`), and run it again: it goes on at the page it
was killed at. No model and no mail server is needed: both are made up, and the mail is a line in outbox.txt.
"""

import time
from pathlib import Path

import perdure


@perdure.step  # safe to run again, until its result is saved
def summarise(page: int) -> str:
    print(f"reading page {page}", flush=True)
    time.sleep(0.5)  # stands for a slow call of a model
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
