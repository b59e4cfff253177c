"""A script under `perdure run` is the process that it is without: streams, arguments, exit codes, signals, threads."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import pytest

ENDS = {
    "arguments": "import os, sys; print(sys.argv, __name__, __file__, sys.path[0] == os.path.dirname(__file__))",
    "exit with a code": "import sys; print('before'); sys.exit(3)",
    "exit with a text": "import sys; sys.exit('no such city')",
    "exit with nothing": "raise SystemExit",
    "large code": "import sys; sys.exit(259)",
    "os._exit": "import os; os._exit(5)",
    "an exception": "def fall():\n    raise ValueError('down')\n\nfall()",
    "a chain of exceptions": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error",
    "a group of exceptions": "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])",
    "wrong syntax": "print('never')\nif",
    "input": "import sys; print(input('name? '), sys.stdin.read().upper())",
    "no input left": "print(input()); print(input())",
    "a thread that goes on": (
        "import threading, sys\n"
        "def late():\n    main.join(); print('late')\n"
        "main = threading.main_thread()\n"
        "class Main:\n    def join(self):\n        gate.wait()\n"
        "main, gate = Main(), threading.Event()\n"
        "threading.Thread(target=late).start()\nthreading.Timer(0.05, gate.set).start()\nprint('end of main')"
    ),
    "a pool that nobody closes": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(2)\nprint(pool.submit(pow, 2, 10).result())"
    ),
    "asyncio": "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print('done')\nasyncio.run(main())",
    "at exit": "import atexit; atexit.register(print, 'bye'); print('hello')",
    "at exit, after the threads": (
        "import atexit, sys, threading\ngate = threading.Event()\n"
        "class Odd:\n    __repr__ = lambda self: 'odd'\n    def __call__(self):\n        sys.exit(4)\n"
        "def seen():\n    kept = [each.name for each in threading.enumerate() if not each.daemon]\n"
        "    print(threading.main_thread().is_alive(), kept, __name__)\n"
        "atexit.register(seen)\natexit.register(Odd())\n"
        "threading.Thread(target=lambda: (gate.wait(), print('late'))).start()\n"
        "threading.Timer(0.05, gate.set).start()\nsys.exit('no such city')"
    ),
    "at exit of a forked process": (
        "import atexit, os, sys\natexit.register(lambda: print('bye', os.getpid() == parent))\n"
        "parent = os.getpid()\nif not os.fork():\n    sys.exit(0)\nos.wait()\nprint('waited')"
    ),
    "a file that nobody closes": (
        "import atexit\nfile = open('left.txt', 'w')\nfile.write('all of it')\n"
        "atexit.register(lambda: print(open('left.txt').read() == ''))"
    ),
    "output that cannot be written": "import os; print('lost'); os.close(1)",
    "pickling": (
        "import pickle\nclass Point:\n    x = 1\n"
        "print(pickle.loads(pickle.dumps(Point)) is Point, Point.__module__, pickle.dumps(Point) and 'ok')"
    ),
    "processes": (
        "import multiprocessing\ndef double(x):\n    return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        print(pool.map(double, [1, 2]))"
    ),
    "a program": "import subprocess; print(subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout)",
    "own handler of exceptions": (
        "import sys\nsys.excepthook = lambda kind, error, trace: print('caught', error)\nraise KeyError(1)"
    ),
    "source": (
        "import inspect\ndef f(a: int, b=2) -> str:\n    'Doc.'\n    return a\n"
        "print(inspect.getsource(f), inspect.signature(f), f.__doc__)"
    ),
}
"""Programs without anything of a model in them."""
RARE = (
    *("exit with nothing", "large code", "a chain of exceptions", "a group of exceptions", "no input left"),
    *("a pool that nobody closes", "asyncio", "at exit", "a program"),
)
"""Each has one like it among the others, which are executed every time."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive) if name in RARE else name for name in ENDS]
)
def test_a_script_ends_and_writes_as_without_perdure(bare: Any, name: str) -> None:
    bare.write(ENDS[name])
    alone = bare.plain("agent.py", "-x", "two words", typed="ada\nrest\n")
    left = bare.lines("left.txt")
    (bare.folder / "left.txt").unlink(missing_ok=True)
    run = bare.run("agent.py", "-x", "two words", typed="ada\nrest\n")
    assert (run.code, run.out) == (alone.code, alone.out), run
    assert run.own == alone.err
    assert bare.lines("left.txt") == left


def test_a_process_that_dies_after_the_end_of_its_run_is_said_to(bare: Any) -> None:
    bare.write(
        "import os\nclass Last:\n    def __del__(self, kill=os.kill, pid=os.getpid()):\n        kill(pid, 9)\n"
        "last = Last()"
    )
    ended = bare.run("agent.py")
    assert ended.code == -signal.SIGKILL, ended
    assert "was ended by SIGKILL; " in ended.err
    assert " was completed by then: the same command is a new run" in ended.err


def test_modules_beside_the_script_are_found_from_any_folder(bare: Any) -> None:
    bare.write("import helper; print(helper.NAME, helper.__file__)", "deep/agent.py")
    bare.write("NAME = 'beside'", "deep/helper.py")
    alone, run = bare.plain("deep/agent.py"), bare.run("deep/agent.py")
    assert run.out == alone.out
    assert run.code == 0
    assert not (bare.folder / "deep" / "__pycache__").exists() or run.out == bare.plain("deep/agent.py").out


def test_a_script_alone_is_run(bare: Any) -> None:
    bare.write("import sys; print(sys.argv); sys.exit(4)")
    ended = bare.perdure("agent.py", "--json", "x")
    assert (ended.code, ended.out) == (4, "['agent.py', '--json', 'x']\n")


WAITS = """
import signal, sys, time
{before}
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""
AT_A_LINE = re.compile(r"line \d+, in <module>\n.*(?=\n)")
"""Where a signal finds that script is chance: at its print still, or asleep."""


@pytest.mark.parametrize(
    ("number", "before"),
    [
        (signal.SIGINT, ""),
        pytest.param(signal.SIGTERM, "", marks=pytest.mark.exhaustive),
        (signal.SIGHUP, ""),
        (signal.SIGTERM, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"),
        pytest.param(
            signal.SIGINT,
            "signal.signal(signal.SIGINT, lambda *_: (print('stopping', flush=True), sys.exit(0)))",
            marks=pytest.mark.exhaustive,
        ),
        (signal.SIGUSR1, "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))"),
    ],
)
def test_a_signal_does_to_a_script_what_it_does_without_perdure(bare: Any, number: int, before: str) -> None:
    bare.write(WAITS.replace("{before}", before))
    ends = []
    for command in (["agent.py"], ["-P", "-m", "perdure", "run", "agent.py"]):
        process = bare.start(*command)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
        own = "".join(line for line in err.splitlines(keepends=True) if not line.startswith("perdure: "))
        ends.append((process.returncode, out, AT_A_LINE.sub("at a line of its own", own)))
    assert ends[1] == ends[0]


def test_a_script_that_was_asked_to_stop_has_all_its_deliveries_again(bare: Any) -> None:
    """It is parked when it has ended three workers in a row: whoever stops a service does not count."""
    bare.write(WAITS.replace("{before}", ""))
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        process = bare.start("-P", "-m", "perdure", "run", "agent.py")
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == -number
        assert "The same command resumes it." in err
        found = json.loads(bare.perdure("ls", "--json").out)["runs"]
        assert [(run["state"], run["deliveries"]) for run in found] == [("queued", 0)]


STORM = """
import atexit, os, signal, sys, threading

def storm():
    while True:
        os.kill(os.getpid(), signal.SIGINT)

atexit.register(threading.Thread(target=storm, daemon=True).start)
sys.exit(CODE)
"""


EXITS = "signal.signal(signal.SIGINT, lambda *_: sys.exit(9))"


@pytest.mark.parametrize(
    ("code", "handler"),
    [
        (0, EXITS),
        (7, ""),
        pytest.param(0, "", marks=pytest.mark.exhaustive),
        pytest.param(7, EXITS, marks=pytest.mark.exhaustive),
    ],
)
def test_signals_while_the_end_is_recorded_change_neither_the_end_nor_the_exit_code(
    bare: Any, code: int, handler: str
) -> None:
    bare.write(STORM.replace("CODE", str(code)).replace("def storm", f"{handler}\n\ndef storm"))
    ended = bare.run("agent.py")
    assert ended.code == code, ended
    assert "ScriptFailed" not in ended.err
    found = json.loads(bare.perdure("ls", "--json").out)["runs"]
    assert [run["state"] for run in found] == ["failed" if code else "completed"]


def test_ctrl_c_at_a_terminal_reaches_the_script_once(bare: Any) -> None:
    """The terminal signals the whole group: the script and us."""
    handler = "signal.signal(signal.SIGINT, lambda *_: print('one', flush=True))"
    leaves = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))"
    bare.write(WAITS.replace("{before}", f"{handler}\n{leaves}"))
    process = bare.start("-P", "-m", "perdure", "run", "agent.py")
    os.kill(process.pid, signal.SIGINT)
    assert process.stdout.readline() == "one\n"
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
