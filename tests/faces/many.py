"""Many command lines at the price of one start: each in a process forked from one that has loaded perdure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from tests import warm
from tests.faces.conftest import SECONDS, Result

FORKING = """
import importlib, json, os, sys, tempfile
from perdure.cli import COMMANDS, main

lines = json.load(sys.stdin)
for module in {COMMANDS[words[0]].module for words in lines if words and words[0] in COMMANDS}:
    importlib.import_module(f"perdure.cli.{module}")

def spoil(stream="", how=""):
    # As a shell would leave a stream: with nothing behind it, with no room, with nobody who reads.
    number = ["stdin", "stdout", "stderr"].index(stream) if stream else -1
    if how == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), number)
    elif how == "unread":
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, number)
    elif how == "closed":
        os.close(number)
        setattr(sys, stream, None)

def typed(words, out, err):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    spoil(*os.environ.get("SPOILED", "").split())
    sys.argv = ["perdure", *words]
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

told = []
for words in lines:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            typed(words, out, err)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0), err.seek(0)
        told.append([words, code, out.read().decode(), err.read().decode()])
json.dump(told, sys.stdout)
"""


def many(place: Any, lines: Iterable[list[str]], **environment: str) -> list[Result]:
    """What each of these command lines left."""
    done = warm.run(
        [sys.executable, "-P", "-c", FORKING],
        cwd=place.folder,
        env={**place.environment, **environment},
        input=json.dumps(list(lines)),
        capture_output=True,
        text=True,
        timeout=5 * SECONDS,
        check=True,
    )
    return [
        Result(subprocess.CompletedProcess(words, code, out, err)) for words, code, out, err in json.loads(done.stdout)
    ]
