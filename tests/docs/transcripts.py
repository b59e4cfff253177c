"""Pages whose blocks are executed in order: files are written, scripts are run, commands are typed into one shell.

`python -m tests.docs.transcripts [PAGE …]` writes what the commands print today into the pages, where it differs.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests import warm

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
EVERY_PAGE: Final = sorted(DOCS.glob("*.md")) + sorted(DOCS.glob("*/*.md"))
_FENCED: Final = re.compile(r"^```(python|toml|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_FILE_NAME: Final = re.compile(r"# ([\w.]+\.(?:py|toml))\n")
_DOTS: Final = re.compile(r"^ *…\n", re.MULTILINE)
PRETENDED: Final = "/agents"
"""Where the pages say that everything happens."""

_SECONDS: Final = 90.0
_OTHERWISE: Final = ("PERDURE_", "PYTEST_", "CI", "BUILD_NUMBER")
"""What changes how perdure or pytest print: pytest shortens no line where a service runs it."""
_PYTEST: Final = "-p no:langsmith_plugin -p no:hypothesispytest -p no:anyio"
"""Plugins that happen to be installed here: a reader need not have them, and they take longer than the tests."""
UNBUFFERED: Final = {"PYTHONUNBUFFERED": "1"}
_IMPORTED: Final = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)
_BACKGROUND: Final = re.compile(r"(?<![&>])&(?![&>])")
_JOB: Final = re.compile(r"^((?:bash|main): line \d+: +\d+ .*|\[\d+\].*)\n", re.MULTILINE)
_IS_INSTALLED: Final = "import sys, importlib.metadata as found; [found.version(name) for name in sys.argv[1:]]"
_WARM: Final = """
python() {{ if [ "$2" = pytest ]; then command python "$@"; else {client} "$@"; fi; }}
perdure() {{ python -P -m perdure "$@"; }}
"""
"""pytest rewrites what it loads, and complains of what somebody has loaded before."""
_VOLATILE: Final = (
    (re.compile(r"\S*/perdure-crash-\w+/\d+"), "FOLDER"),  # first, as chance may make it look like any of the others
    (re.compile(r"\b[a-z]+-[a-z]+-\d+\b"), "NAME"),
    (re.compile(r"\bpid \d+ on [\w.-]+"), "HOLDER"),
    (re.compile(r"\b[0-9a-z]{12}-[0-9a-z]{12}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+Z)?)?( UTC)?"), "INSTANT"),
    (re.compile(r"\bPython \d+\.\d+\.\d+\b"), "PYTHON"),
    # Whatever versions of the frameworks are installed.
    (re.compile(r"\b(openai|openai-agents|pydantic-ai-slim|langchain-core|langgraph|mcp) \d+(\.\d+)+\b"), "LIBRARY"),
    # How Python points at the place in a line, and with how many lines, differs between its versions.
    (re.compile(r"^[ ^~]+\n", re.MULTILINE), ""),
    (re.compile(r"… \d+ more lines"), "… MORE LINES"),
    (re.compile(r"\b\d{10}\.\d+\b"), "INSTANT"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "KEY"),
    (re.compile(r"\bmail-[0-9a-f]{8}\b"), "MAIL"),
    (re.compile(r"\bworker [0-9a-z]{12}\b"), "WORKER"),
    (re.compile(r"^[0-9a-z]{12} +\d+ on [\w.-]+", re.MULTILINE), "WORKER"),
    (re.compile(r" *\+?\d+(\.\d+)? ?(ms|s|min|m|h)\b( ago)?"), " TIME"),
    (re.compile(r"\bby [\w-]+@[\w.-]+"), "by WHO"),
    (re.compile(r":\n +"), ": "),
    (re.compile(r"^ *~ seconds .*\n", re.MULTILINE), ""),
    # A run that waits has said so a moment before its worker has let go of it.
    (re.compile(r"^draining: \d+ runs? to leave .*\n", re.MULTILINE), ""),
    (re.compile(r"[ \t]{2,}"), "  "),
    (re.compile(r" +$", re.MULTILINE), ""),
)


class File(NamedTuple):
    """A block that is a file: its name stands in its first line."""

    name: str
    text: str


class Script(NamedTuple):
    """A block of Python without a name: it is run, and must end well."""

    text: str


class Said(NamedTuple):
    """A command of a page and what the page says that it prints."""

    command: str
    printed: str


def steps_of(page: str) -> list[File | Script | Said]:
    """Everything that a page wants done, in order."""
    found: list[File | Script | Said] = []
    for language, text in _FENCED.findall(page):
        if language == "console":
            found += [Said(*said) for said in _said(text)]
        elif named := _FILE_NAME.match(text):
            found.append(File(named[1], text))
        else:
            assert language == "python", f"a block begins with the name of its file: {text[:60]!r}"
            found.append(Script(text))
    return found


def libraries_of(steps: list[File | Script | Said]) -> set[str]:
    """The modules that the files and scripts of a page load, of others and of our own adapters to them."""
    written = [step.text for step in steps if isinstance(step, (File, Script))]
    own = {step.name.removesuffix(".py") for step in steps if isinstance(step, File)}
    found = {name for text in written for name in _IMPORTED.findall(text)}
    return {name for name in found if name.partition(".")[0] not in {*sys.stdlib_module_names, *own, "perdure"}}


def perform(steps: list[File | Script | Said], folder: Path, *, server: str = "") -> list[tuple[Said, str]]:
    """Do all of it in this folder; gives every command with what it printed.

    Where a warm server is named, it starts every `python` and `perdure` that is waited for.
    """
    heard = []
    with Shell(folder, server) as shell:
        for step in steps:
            if isinstance(step, File):
                shell.write(step.name, step.text)
            elif isinstance(step, Script):
                shell.write("block.py", step.text)
                printed = shell.type("python block.py || echo FAILED")
                assert "FAILED" not in printed, f"{step.text}\n{printed}"
            else:
                heard.append((step, shell.type(step.command, until=step.printed)))
    return heard


def settled(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return text.strip()


def agrees(said: str, printed: str) -> bool:
    """Whether this is what a page says; a line of dots there stands for any lines."""
    parts = [re.escape(settled(part)) for part in _DOTS.split(said)]
    return re.fullmatch(r"\s*.*?\s*".join(parts), settled(printed), re.DOTALL) is not None


class Shell:
    """One bash for a whole page, so that its jobs and variables are there for the next command."""

    def __init__(self, folder: Path, server: str = "") -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERWISE)}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        quiet = {"PATH": programs, **UNBUFFERED, "COLUMNS": "100", "NO_COLOR": "1", "LOGNAME": "ada"}
        self._bash = subprocess.Popen(
            ["bash"],
            cwd=folder.resolve(),
            env=kept | quiet | {"PYTEST_ADDOPTS": _PYTEST},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._folder = str(folder.resolve())
        self._heard = ""
        self._changed = threading.Condition()
        self._marks = 0
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        # The package under test is installed already; what a reader installs must be called what it is called.
        self._write(f'pip() {{ command python -c {shlex.quote(_IS_INSTALLED)} "${{@:2}}"; }}')
        self._warm = _WARM.format(client=f"{sys.executable} -IS {warm.CLIENT} {server}") if server else ""
        self._write(self._warm)

    def type(self, command: str, *, until: str = "") -> str:
        """What a command prints; one in the background is heard until it has said the last line of `until`."""
        with self._changed:
            before = len(self._heard)
        self._marks += 1
        mark = f"==mark {self._marks}=="
        if _BACKGROUND.search(command):  # what it kills, and what ends with this shell, must be a process of this shell
            self._write("unset -f python perdure")
        if command.endswith("&"):
            self._write(f"{command[:-1]} </dev/null &\nspoken=$!\n{self._warm}")
            if not until.strip():
                return ""  # one that says nothing is not waited for
            last = settled(until).splitlines()[-1]
            return _JOB.sub("", self._wait(before, lambda text: last in settled(text).splitlines(), command))
        self._write(f"(exit $ended); {{ {command}\n}} </dev/null; ended=$?; echo {mark}\n{self._warm}")
        printed = self._wait(before, lambda text: f"{mark}\n" in text, command)
        return _JOB.sub("", printed.partition(f"{mark}\n")[0]).replace(self._folder, PRETENDED)

    def write(self, name: str, text: str) -> None:
        """Make a file where the shell is."""
        folder = self.type("pwd").strip().replace(PRETENDED, self._folder)
        Path(folder, name).write_text(text, encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._listener.join(_SECONDS)
        self._bash.__exit__(None, None, None)

    def _write(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{line}\n")
        self._bash.stdin.flush()

    def _listen(self) -> None:
        assert self._bash.stdout is not None
        for line in self._bash.stdout:
            with self._changed:
                self._heard += line
                self._changed.notify_all()

    def _wait(self, before: int, said: object, command: str) -> str:
        assert callable(said)
        with self._changed:
            came = self._changed.wait_for(lambda: said(self._heard[before:]), _SECONDS)
            assert came, f"$ {command}\n{self._heard[before:]}"
            return self._heard[before:]


def recorded(page: str) -> str:
    """The page with what its commands print today; the page itself where nothing of weight differs."""
    with tempfile.TemporaryDirectory() as folder:
        heard = perform(steps_of(page), Path(folder))
    if all(agrees(said.printed, printed) for said, printed in heard):
        return page
    written = iter(_shortened(printed, said.printed) for said, printed in heard)

    def anew(block: re.Match[str]) -> str:
        if block[1] != "console":
            return block[0]
        parts = [f"$ {command}\n{_tidy(next(written))}" for command, _ in _said(block[2])]
        return "```console\n" + "\n".join(parts) + "```"

    return _FENCED.sub(anew, page)


def _said(text: str) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


def _shortened(printed: str, said: str) -> str:
    """What was printed, with dots where the page had them: after as many lines, and before as many."""
    if not _DOTS.search(said) or _DOTS.search(printed):
        return printed
    before, after = (part.count("\n") for part in _DOTS.split(said.strip("\n") + "\n", maxsplit=1))
    lines = printed.strip("\n").splitlines(keepends=True)
    return "".join([*lines[:before], "  …\n", *lines[len(lines) - after :]])


def _tidy(printed: str) -> str:
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or EVERY_PAGE:
        before = path.read_text(encoding="utf-8")
        after = recorded(before)
        path.write_text(after, encoding="utf-8")
        print(path, "as it was" if after == before else "recorded anew")
