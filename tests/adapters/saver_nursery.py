"""A process that imports LangGraph once and forks children which use a saver until they are killed.

`python -m tests.adapters.saver_nursery STORE FOLDER`; each line of its input is a trial: its name, and the moment at
which the child kills itself (0 for never, `~N` for N milliseconds after it began, by its parent). A child tells what
was acknowledged to it in FOLDER/NAME, a line for each call. Each trial is answered with the signal that ended it, 0
for none, and how many moments there were.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from perdure.adapters.langgraph import PerdureSaver
from perdure.store.sqlite import cabinet, transaction
from tests.adapters.conversations import STEPS, checkpoint, config, message

moments = 0


def main(store: str, folder: str) -> None:
    """Do each trial that is asked for."""
    for line in sys.stdin:
        name, moment = line.split()
        child = os.fork()
        if not child:
            converse(store, Path(folder), name, moment=0 if moment.startswith("~") else int(moment))
            os._exit(0)
        if moment.startswith("~"):
            time.sleep(int(moment[1:]) / 1000)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        told = Path(folder, f"{name}.moments")
        count = told.read_text() if told.exists() else ""  # which it also is where the kill came before it was told
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, count or "0", flush=True)


def converse(store: str, folder: Path, name: str, *, moment: int) -> None:
    """Put checkpoints that grow, each with the writes of two tasks, and say what was acknowledged."""
    acknowledged = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    saver = PerdureSaver(store)
    saver.get_tuple(config(name))  # the moments are those of writing
    lay_traps(moment)
    above = config(name)
    messages: list[BaseMessage] = []
    for step in range(STEPS):
        messages = [*messages, message(step)]
        made = checkpoint(step, messages=messages)
        above = saver.put(above, made, {"source": "loop", "step": step, "parents": {}}, {})
        os.write(acknowledged, f"put {step}\n".encode())
        for task in range(2):
            writes = [("messages", [message(10 * step + task)]), ("task", task)]
            saver.put_writes(above, writes, f"task-{task}", f"~{task}")
            os.write(acknowledged, f"writes {step} {task}\n".encode())
    (folder / f"{name}.moments").write_text(str(moments))


def lay_traps(moment: int) -> None:
    """Kill this process at one moment: before or after something done inside a transaction, or its commit."""

    def trapped(act: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            meet(moment)
            answer = act(*arguments, **named)
            meet(moment)
            return answer

        return call

    for verb in ("hold", "get", "keep", "put"):
        setattr(cabinet._Rows, verb, trapped(getattr(cabinet._Rows, verb)))  # noqa: SLF001 - the innermost of our verbs
    for verb in ("__enter__", "__exit__"):
        setattr(transaction.Transaction, verb, trapped(getattr(transaction.Transaction, verb)))


def meet(moment: int) -> None:
    """One more moment."""
    global moments  # noqa: PLW0603 - of this process
    moments += 1
    if moments == moment:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
