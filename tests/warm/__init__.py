"""Starts Python programs as `subprocess` does, from a process that has loaded perdure and what it stands on.

Each is a process of its own and may be killed like any other; it only does not pay for the loading, which is most of
what a short command does. What the server cannot do the same way is started anew: options of the interpreter,
inherited descriptors. That perdure loads from cold is for the tests of the README and the tutorial, and in the long
campaigns for those of every page: they type what a reader types. What is started like that may start others the same
way, where its environment says at which addresses: `addresses`.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import perdure
from tests.warm.client import STATUS, ask

SERVER: Final = Path(__file__).parent / "server.py"
CLIENT: Final = SERVER.with_name("client.py")
HASH_SEEDS: Final = ("", "1", "2")
"""None, which is what an interpreter takes the empty one for, and those of the crash kit."""
_SAME: Final = ("PYTHON", "LC_", "LANG", "LD_", "TZ")
"""Settings that an interpreter reads once, when it starts."""
_ADDRESSES: Final = "WARM_ADDRESSES"
_HASH_SEED: Final = "PYTHONHASHSEED"
_TEMPORARY: Final = tempfile.gettempdir()
"""Asked for when this is loaded: a test that moves temporary files would move the addresses of all tests after it."""
_OWN: Final = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", _HASH_SEED)
"""And those of them that each process may have its own way: the first two are set anew, a seed has its own server."""
_starting: Final = threading.Lock()


def run(arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end, as `subprocess.run` does."""
    given, timeout, check = options.pop("input", None), options.pop("timeout", None), options.pop("check", False)
    if given is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(arguments, **options) as process:
        try:
            out, err = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class Popen(subprocess.Popen[Any]):
    """A program that was started, as `subprocess.Popen` has it."""

    _ended: int | None = None

    def _execute_child(self, *given: Any) -> None:
        """Have the server start it, where that comes to the same."""
        names = (
            "args executable preexec_fn close_fds pass_fds cwd env startupinfo creationflags shell p2cread p2cwrite "
            "c2pread c2pwrite errread errwrite restore_signals gid gids uid umask start_new_session process_group"
        )
        asked = dict(zip(names.split(), given, strict=True))
        if not _is_alike(asked):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        streams = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        inherited = [fd if fd != -1 else number for number, fd in enumerate(streams)]
        request = {
            "arguments": [os.fspath(each) for each in asked["args"]],
            "folder": os.fspath(asked["cwd"] or Path.cwd()),
            "environment": dict(os.environ if asked["env"] is None else asked["env"]),
            "session": asked["start_new_session"],
            "group": asked["process_group"],
        }
        self.pid, self._ended = _start(request, inherited)
        self._child_created = True
        pipes = (asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *given: Any, **options: Any) -> int | None:
        if self._ended is None:
            return super()._internal_poll(*given, **options)  # type: ignore[misc, no-any-return]
        if self.returncode is None and self._try_wait(os.WNOHANG)[0]:
            self._handle_exitstatus(self._status)  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._ended is None:
            return super()._try_wait(flags)  # type: ignore[misc, no-any-return]
        if self._ended >= 0:
            if flags & os.WNOHANG and not select.select([self._ended], [], [], 0)[0]:
                return 0, 0
            told = os.read(self._ended, STATUS.size)
            os.close(self._ended)
            self._ended = -1
            (self._status,) = STATUS.unpack(told)
        return self.pid, self._status


def addresses() -> dict[str, str]:
    """The setting with which a process finds the servers of this one."""
    with _starting:
        for hash_seed in HASH_SEEDS:
            _server(hash_seed)
    return {_ADDRESSES: str(_folder())}


@contextmanager
def serving(*modules: str, **environment: str) -> Iterator[str]:
    """The address of a server that has loaded these as well, while it is needed, in this environment."""
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        address = Path(folder, "server")
        process = _begun(address, {**os.environ, **environment}, *modules)
        try:
            yield str(address)
        finally:
            process.communicate()


def _start(request: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, int]:
    """The number of the new process, and where it is told how that ended."""
    with _starting:
        address = _server(request["environment"].get(_HASH_SEED, ""))
    return ask(address, request, streams)


@functools.cache
def _server(hash_seed: str) -> str:
    """The address of one that puts what it hashes in this order; it ends with the process that started it."""
    address = _folder() / (hash_seed or "any")
    if _ADDRESSES not in os.environ:
        process = _begun(address, {**os.environ, _HASH_SEED: hash_seed})
        atexit.register(process.communicate)
    return str(address)


def _begun(address: Path, environment: Mapping[str, str], *modules: str) -> subprocess.Popen[bytes]:
    """A server that may be asked from now on; it ends when its standard input does."""
    plain = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
        requests.bind(str(address))
        source = str(Path(perdure.__file__).parents[1])
        command = [sys.executable, str(SERVER), str(requests.fileno()), source, *modules]
        return subprocess.Popen(command, pass_fds=[requests.fileno()], stdin=subprocess.PIPE, env=plain)


@functools.cache
def _folder() -> Path:
    """Where the addresses are."""
    if _ADDRESSES in os.environ:
        return Path(os.environ[_ADDRESSES])
    folder = tempfile.mkdtemp(prefix="warm-", dir=_TEMPORARY)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _is_alike(asked: Mapping[str, Any]) -> bool:
    """Whether a process of the server is what a new interpreter would be."""
    args = asked["args"]
    if isinstance(args, (str, bytes)) or asked["shell"] or asked["pass_fds"] or asked["preexec_fn"] is not None:
        return False
    words = [os.fspath(each) for each in args]
    is_plain = words[0] == sys.executable and _is_known(words[1:], Path(asked["cwd"] or "."))
    environment = os.environ if asked["env"] is None else asked["env"]
    return is_plain and _read_once(environment) == _read_once(os.environ) and not _is_sigint_ignored()


def _is_known(words: Sequence[str], folder: Path) -> bool:
    """Whether these words name a module, give code, or name a file that is there."""
    what = next((word for word in words if word != "-P"), "")
    return what in {"-m", "-c"} or (not what.startswith("-") and (folder / what).is_file())


def _read_once(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_SAME) and name not in _OWN}


def _is_sigint_ignored() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN
