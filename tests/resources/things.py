"""One real thing for each kind of resource, and what can become of it: changed, gone, out of reach, slow."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from perdure import resources
from perdure.resources import Resource

ENDLESS = 1 << 40
"""The size of a file of holes that takes far longer to read than any test may wait."""


class Thing(ABC):
    """Something outside."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        folder.mkdir(parents=True)
        self.make()

    @abstractmethod
    def make(self) -> None: ...

    @abstractmethod
    def resource(self) -> Resource: ...

    @abstractmethod
    def change(self) -> None: ...

    @abstractmethod
    def remove(self) -> None: ...

    def hide(self) -> None:
        pytest.skip("it cannot be out of reach")

    def slow_down(self) -> None:
        pytest.skip("looking at it takes no time")

    def end(self) -> None:  # noqa: B027 - most things hold nothing up
        """Let looks that were left behind come to an end."""


class File(Thing):
    def make(self) -> None:
        self.path = self.folder / "report.txt"
        self.path.write_text("first")

    def resource(self) -> Resource:
        return resources.file(self.path)

    def change(self) -> None:
        self.path.write_text("other")

    def remove(self) -> None:
        self.path.unlink()

    def hide(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.symlink_to(self.folder)

    def slow_down(self) -> None:
        os.truncate(self.path, ENDLESS)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            os.truncate(self.path, 0)


class Directory(File):
    def make(self) -> None:
        self.path = self.folder / "inner" / "report.txt"
        self.path.parent.mkdir()
        self.path.write_text("first")
        (self.folder / "empty").mkdir()

    def resource(self) -> Resource:
        return resources.directory(self.folder)

    def remove(self) -> None:
        shutil.rmtree(self.folder)


class Branch(Thing):
    def make(self) -> None:
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit("one")
        self.git("branch", "fix/issue-284")

    def resource(self) -> Resource:
        return resources.git_branch(self.folder, "fix/issue-284")

    def change(self) -> None:
        self.commit("two")
        self.git("branch", "--force", "fix/issue-284", "main")

    def remove(self) -> None:
        self.git("branch", "-D", "fix/issue-284")

    def hide(self) -> None:
        (self.folder / ".git").rename(self.folder.with_name("elsewhere"))
        (self.folder / ".git").write_text("nonsense")

    def slow_down(self) -> None:
        tools = self.folder.with_name("tools")
        tools.mkdir()
        (tools / "git").write_text("#!/bin/sh\nexec sleep 60\n")
        (tools / "git").chmod(0o755)
        self.monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    def commit(self, message: str) -> None:
        who = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
        self.git(*who, "commit", "--quiet", "--allow-empty", "--message", message)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(self.folder), *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()


class Commit(Branch):
    def resource(self) -> Resource:
        return resources.git_commit(self.folder)

    def change(self) -> None:
        self.commit("two")

    def remove(self) -> None:
        self.git("update-ref", "-d", "HEAD")


class Address(Thing):
    def make(self) -> None:
        self.status, self.tag = 200, '"one"'
        self.methods: list[str] = []
        self.knows_head = True
        self.has_tag = True
        self.released = threading.Event()
        self.released.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def resource(self) -> Resource:
        return resources.url(f"http://127.0.0.1:{self.server.server_port}/data.csv")

    def change(self) -> None:
        self.tag = '"two"'

    def remove(self) -> None:
        self.status = 404

    def hide(self) -> None:
        self._close()

    def slow_down(self) -> None:
        self.released.clear()

    def end(self) -> None:
        self.released.set()
        self._close()

    def _close(self) -> None:
        if self.thread.is_alive():
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()


def _handler(address: Address) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            address.methods.append(self.command)
            if not address.knows_head:
                self._answer(405)
                return
            address.released.wait()
            self._answer(address.status)

        def do_GET(self) -> None:
            address.methods.append(self.command)
            self._answer(address.status, b"body of " + address.tag.encode())

        def _answer(self, status: int, body: bytes = b"") -> None:
            with contextlib.suppress(OSError):
                self.send_response(status)
                if address.knows_head and address.has_tag:
                    self.send_header("ETag", address.tag)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            """Nothing is logged."""

    return Handler


class Variable(Thing):
    def make(self) -> None:
        self.monkeypatch.setenv("DEPLOY_TARGET", "secret-staging")

    def resource(self) -> Resource:
        return resources.env("DEPLOY_TARGET")

    def change(self) -> None:
        self.monkeypatch.setenv("DEPLOY_TARGET", "secret-production")

    def remove(self) -> None:
        self.monkeypatch.delenv("DEPLOY_TARGET")


class Here(Thing):
    def make(self) -> None:
        self.monkeypatch.chdir(self.folder)

    def resource(self) -> Resource:
        return resources.cwd()

    def change(self) -> None:
        self.monkeypatch.chdir(self.folder.parent)

    def remove(self) -> None:
        pytest.skip("a process without a working directory cannot find its store")


class Yours(Thing):
    def make(self) -> None:
        self.value: object = {"version": 3}
        self.released = threading.Event()
        self.released.set()

    def resource(self) -> Resource:
        return resources.custom("schema", self._fingerprint)

    def change(self) -> None:
        self.value = {"version": 4}

    def remove(self) -> None:
        self.value = None

    def hide(self) -> None:
        self.value = ConnectionError("the database is away")

    def slow_down(self) -> None:
        self.released.clear()

    def end(self) -> None:
        self.released.set()

    def _fingerprint(self) -> object:
        self.released.wait()
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Things:
    """One of each."""

    KINDS: ClassVar[dict[str, type[Thing]]] = {
        "file": File,
        "directory": Directory,
        "git_branch": Branch,
        "git_commit": Commit,
        "url": Address,
        "env": Variable,
        "cwd": Here,
        "custom": Yours,
    }

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self.made: dict[str, Thing] = {}

    def get(self, kind: str) -> Any:
        if kind not in self.made:
            self.made[kind] = self.KINDS[kind](self._folder / kind, self._monkeypatch)
        return self.made[kind]

    def end(self) -> None:
        for thing in self.made.values():
            thing.end()
