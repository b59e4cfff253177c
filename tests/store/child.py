"""A worker in a process of its own, which does what it is told on standard input and answers on standard output."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from perdure.errors import PerdureError, Signal
from perdure.records import Run
from perdure.store.sqlite import SqliteStore
from tests import warm
from tests.store.journals import TERMS, created, land, letter, step

if TYPE_CHECKING:
    from types import TracebackType

_ROOT = Path(__file__).parents[2]


class Child:
    """The parent's end. Every answer is awaited, so no test has to guess how far a child is."""

    def __init__(self, path: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "src")])}
        self.process: subprocess.Popen[str] = warm.Popen(
            [sys.executable, "-m", "tests.store.child", str(path)],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def tell(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(shlex.join(words) + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, *words: str) -> str:
        self.tell(*words)
        return self.hear()

    def kill(self) -> None:
        """As the kernel would for lack of memory; when this returns, the process is gone."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            pass

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class Obedient:
    """The child's end."""

    def __init__(self, path: str) -> None:
        self.store = SqliteStore(path)
        self.runs: dict[str, Run] = {}

    def join(self) -> str:
        return self.store.join().worker_id

    def create(self, run_id: str) -> str:
        return created(self.store, run_id).state

    def claim(self, run_id: str) -> str:
        self.runs[run_id] = self.store.claim_run(run_id, self.store.join().worker_id, TERMS)
        return str(self.runs[run_id].epoch)

    def step(self, run_id: str, count: str = "1") -> str:
        for _ in range(int(count)):
            self.runs[run_id] = land(self.store, step(self.runs[run_id]))
        return str(self.runs[run_id].length)

    def quick_step(self, run_id: str, count: str = "1") -> str:
        """Steps that a power cut may take back."""
        for _ in range(int(count)):
            one = step(self.runs[run_id], power=False)
            assert self.store.append_all([one], power=False) == [None]
            self.runs[run_id] = one.run
        return str(self.runs[run_id].length)

    def late_step(self, run_id: str) -> str:
        (outcome,) = self.store.append_all([step(self.runs[run_id])], power=True)
        return type(outcome).__name__

    def post(self, run_id: str) -> str:
        return str(self.store.post(letter(run_id)).mail_id)

    def beat(self) -> str:
        self.store.beat(self.store.join().worker_id)
        return "beaten"

    def fork(self) -> str:
        """Leave a grandchild behind that lives until it is killed."""
        reading, writing = os.pipe()
        grandchild = os.fork()
        if grandchild == 0:
            os.write(writing, b"!")
            signal.pause()
        os.read(reading, 1)
        return str(grandchild)

    def close(self) -> str:
        self.store.close()
        return "closed"


def main(path: str) -> None:
    obedient = Obedient(path)
    for line in sys.stdin:
        verb, *arguments = shlex.split(line)
        try:
            answer = getattr(obedient, verb)(*arguments)
        except (PerdureError, Signal) as error:
            answer = f"{type(error).__name__}: {error}"
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
