"""The process that counts: which bodies began and returned, and what was really done to the outside.

A process under test tells it of every body before the body goes on, over one line of JSON and back, so that the dead
are counted too. At its second address, `PERDURE_CRASH_OUTSIDE`, it is the outside itself: `POST /NAME` with any payload
is done once the request has landed, after the outside's delay, whether or not its sender still lives. A request under
an `Idempotency-Key` that was seen before is answered and not done again. It can kill a sender on either side of that.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from msgspec import Struct, field

from perdure import clock, typed

if TYPE_CHECKING:
    from collections.abc import Callable

OUTSIDE: Final = "PERDURE_CRASH_OUTSIDE"
"""The variable that names the address of the outside."""

ANSWER_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.005


class Body(Struct):
    """One execution of the body of a step or an effect."""

    life: str
    """The process it ran in."""
    run_id: str
    name: str
    key: str
    """The call: of the main run its step key, of any other that run's label before it."""
    step_key: str
    effect_key: str
    attempt: int
    kind: str
    """`step`, `effect` or `check`."""
    keyed: bool = False
    state: str = "begun"
    """`begun`, `returned` or `raised`."""
    value: str | None = None
    """What it returned, as JSON; None where that cannot be stored."""
    requests: int = 0
    """How many requests to the outside were done while it was the newest open effect of its process."""


class Request(Struct):
    """Something that was asked of the outside."""

    life: str
    name: str
    payload: str
    key: str = ""
    state: str = "received"
    """`received`, `done`, `known` (its key was seen before) or `dropped` (its sender was killed before it was done)."""
    effect: str = ""
    """The effect key of the body that made it, where one was open."""


class Account(Struct):
    """Everything the oracle knows of one trial."""

    bodies: list[Body] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    passed: dict[str, list[tuple[str, str, str, int]]] = field(default_factory=dict)
    """The points that each traced process passed, in order: name, window, key, occurrence."""
    landed: list[tuple[str, str]] = field(default_factory=list)
    """The process and the text of the point, for each kill and each freeze."""
    main: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The main run of each process."""
    results: dict[str, str] = field(default_factory=dict)
    """What the agent returned in each process that came so far, as JSON."""
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each process ended with instead: code, message, hint, exit_code."""
    skipped_seconds: float = 0.0
    """By how much the clock of the processes is ahead, because they did not wait for a time to come."""


class Oracle:
    """A handle on the process; lives as long as the block."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._lock = threading.Lock()
        if self._process.stdout is None:
            raise AssertionError
        self.port, self.outside_port = map(int, self._process.stdout.readline().split())
        self._line = Line(self.port)
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """The process id of the oracle."""
        return self._process.pid

    def outside(self, trial: str, life: str) -> str:
        """The address at which a process finds the outside."""
        return f"http://127.0.0.1:{self.outside_port}/{trial}/{life}"

    def account(self, trial: str) -> Account:
        """Everything that is known of a trial now, once every request that was received has landed."""
        return typed.convert(self.ask(verb="account", trial=trial), Account)

    def delay(self, trial: str, seconds: float) -> None:
        """From now on, let requests of this trial land so long after they were received."""
        self.ask(verb="delay", trial=trial, seconds=seconds)

    def arm(self, trial: str, life: str, point: str) -> None:
        """Kill the process of this life at a point that the oracle alone can see."""
        self.ask(verb="arm", trial=trial, life=life, point=point)

    def forget(self, trial: str) -> None:
        """Nothing more will be asked about this trial."""
        self.ask(verb="forget", trial=trial)

    def ask(self, **question: Any) -> Any:
        """Ask one thing."""
        with self._lock:
            return self._line.ask(question)


class Line:
    """A connection to the oracle: a line of JSON, and the line that answers it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def ask(self, question: dict[str, Any]) -> Any:
        self._socket.sendall(json.dumps(question).encode() + b"\n")
        line = self._stream.readline()
        if not line:
            raise ConnectionResetError("the oracle has ended")
        return json.loads(line)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
            self._socket.close()


class Books:
    """What was told and done, by trial."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.is_all_read: Callable[[], bool] = lambda: True
        """Whether nothing that was sent to the outside is still unread."""
        self.accounts: dict[str, Account] = defaultdict(Account)
        self._delays: dict[str, float] = defaultdict(float)
        self._pids: dict[tuple[str, str], int] = {}
        self._armed: dict[tuple[str, str], str] = {}
        self._traced: set[tuple[str, str]] = set()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._open: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._senders: dict[tuple[str, int], int] = {}
        """Which body opened the connection that comes from this port."""

    def answer(self, question: dict[str, Any]) -> Any:
        """Act on what a process under test, or the campaign, says."""
        act = getattr(self, f"_{question['verb']}")
        with self.lock:
            return act(**{name: value for name, value in question.items() if name != "verb"})

    def _hello(self, *, trial: str, life: str, pid: int, traced: bool) -> None:
        self._pids[trial, life] = pid
        if traced:
            self._traced.add((trial, life))
            self.accounts[trial].passed.setdefault(life, [])

    def _begun(self, *, trial: str, body: dict[str, Any]) -> int:
        account = self.accounts[trial]
        account.bodies.append(Body(**body))
        number = len(account.bodies) - 1
        if body["kind"] == "effect":
            self._open[trial, body["life"]].append(number)
        return number

    def _ended(self, *, trial: str, number: int, state: str, value: str | None) -> None:
        body = self.accounts[trial].bodies[number]
        body.state, body.value = state, value
        with contextlib.suppress(ValueError):
            self._open[trial, body.life].remove(number)

    def _connected(self, *, trial: str, port: int, number: int) -> None:
        self._senders[trial, port] = number

    def _passed(self, *, trial: str, life: str, points: list[tuple[str, str, str, int]]) -> None:
        self.accounts[trial].passed.setdefault(life, []).extend(points)

    def _landed(self, *, trial: str, life: str, point: str) -> None:
        self.accounts[trial].landed.append((life, point))

    def _main(self, *, trial: str, life: str, main: tuple[str, str]) -> None:
        self.accounts[trial].main[life] = main

    def _result(self, *, trial: str, life: str, value: str) -> None:
        self.accounts[trial].results[life] = value

    def _error(self, *, trial: str, life: str, error: dict[str, Any]) -> None:
        self.accounts[trial].errors[life] = error

    def _skipped(self, *, trial: str, seconds: float) -> None:
        self.accounts[trial].skipped_seconds = max(seconds, self.accounts[trial].skipped_seconds)

    def _delay(self, *, trial: str, seconds: float) -> None:
        self._delays[trial] = seconds

    def _arm(self, *, trial: str, life: str, point: str) -> None:
        self._armed[trial, life] = point

    def _forget(self, *, trial: str) -> None:
        self.accounts.pop(trial, None)

    def _settle(self, *, trial: str) -> None:
        """Wait until nothing is on its way to the outside any more."""
        account = self.accounts[trial]
        until = clock.elapsed_seconds() + ANSWER_SECONDS
        while not (self.is_all_read() and all(request.state != "received" for request in account.requests)):
            if clock.elapsed_seconds() > until:
                return
            self.lock.wait(_LOOK_SECONDS)

    def _account(self, *, trial: str) -> Any:
        self._settle(trial=trial)
        return msgspec.to_builtins(self.accounts[trial])

    def perform(self, trial: str, life: str, asked: Request, *, port: int) -> dict[str, Any] | None:
        """Do something to the outside; None where its sender was killed, and gets no answer."""
        with self.lock:
            account = self.accounts[trial]
            account.requests.append(asked)
            self._counts[trial, life, asked.name] += 1
            number = self._counts[trial, life, asked.name]
            if self._reached(trial, life, asked.name, "before_request", number):
                asked.state = "dropped"
                self.lock.notify_all()
                return None
            delay = self._delays[trial]
            is_dead = delay > 0 and self._reached(trial, life, asked.name, "during_request", number)
        if delay:
            threading.Event().wait(delay)
        with self.lock:
            self._do(trial, asked, port)
            self.lock.notify_all()
            if is_dead or self._reached(trial, life, asked.name, "after_request", number):
                return None
            done = [other for other in account.requests if other.state == "done" and other.name == asked.name]
            place = next((at for at, other in enumerate(done, 1) if _is_same(other, asked)), len(done))
            return {"receipt": f"{asked.name}-{place}", "done": asked.state}

    def _do(self, trial: str, asked: Request, port: int) -> None:
        account = self.accounts[trial]
        is_known = bool(asked.key) and any(
            other.state == "done" and (other.name, other.key) == (asked.name, asked.key) for other in account.requests
        )
        asked.state = "known" if is_known else "done"
        number = self._sender(trial, asked.life, port)
        if number is not None:
            account.bodies[number].requests += 1
            asked.effect = account.bodies[number].effect_key

    def _sender(self, trial: str, life: str, port: int) -> int | None:
        """The body that opened the connection, even if it was cancelled since; or the newest that is open.

        A connection that was kept open when its body returned serves a later one.
        """
        sender = self._senders.get((trial, port))
        if sender is not None and self.accounts[trial].bodies[sender].state != "returned":
            return sender
        return next(reversed(self._open[trial, life]), None)

    def _reached(self, trial: str, life: str, name: str, window: str, number: int) -> bool:
        """Note a point that only we can see; whether the sender was killed there."""
        if (trial, life) in self._traced:
            self.accounts[trial].passed[life].append((name, window, "", number))
        text = f"{name}{f'#{number}' if number > 1 else ''}:{window}"
        if self._armed.get((trial, life)) != text or (trial, life) not in self._pids:
            return False
        self.accounts[trial].landed.append((life, text))
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pids[trial, life], signal.SIGKILL)
        return True


def _is_same(one: Request, other: Request) -> bool:
    return one is other or (bool(other.key) and (one.name, one.key) == (other.name, other.key))


class _Told(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, books: Books) -> None:
        self.books = books
        super().__init__(("127.0.0.1", 0), _Conversation)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A process that died is no news here."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Conversation(socketserver.StreamRequestHandler):
    server: _Told
    disable_nagle_algorithm = True

    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(json.dumps(self.server.books.answer(json.loads(line))).encode() + b"\n")


class Outside(ThreadingHTTPServer):
    """What effects are done to; it knows of every connection that it has let in."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, books: Books) -> None:
        self.books = books
        self._guard = threading.Lock()
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Deed)
        books.is_all_read = self.is_all_read

    def get_request(self) -> tuple[socket.socket, Any]:
        """Let somebody in."""
        with self._guard:
            connection, address = super().get_request()
            self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Nothing more comes from there."""
        with self._guard:
            self._connections.discard(request)
        super().shutdown_request(request)

    def is_all_read(self) -> bool:
        """Whether nobody waits to be let in, and nothing is left of what was sent, by the dead above all."""
        with self._guard, selectors.DefaultSelector() as unread:
            for each in (self.socket, *self._connections):
                unread.register(each, selectors.EVENT_READ)
            return not unread.select(0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that died is no news here: what it sent lands all the same."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Deed(BaseHTTPRequestHandler):
    server: Outside
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Do something: `/TRIAL/LIFE/NAME`."""
        length = int(self.headers.get("Content-Length") or 0)
        payload = self.rfile.read(length)
        if len(payload) < length:
            return  # a sender killed in the middle of its request has sent none
        _, trial, life, name = self.path.split("?")[0].split("/", 3)
        key = self.headers.get("Idempotency-Key") or ""
        asked = Request(life, name.strip("/"), payload.decode(errors="replace"), key)
        answer = self.server.books.perform(trial, life, asked, port=self.client_address[1])
        if answer is None:
            self.close_connection = True
            return
        self._reply(200, answer)

    do_PUT = do_DELETE = do_POST  # noqa: N815 - as http.server calls them

    def do_GET(self) -> None:
        """What was done under a name, for a script that looks: `/TRIAL/LIFE/NAME`."""
        _, trial, _, name = self.path.split("?")[0].split("/", 3)
        with self.server.books.lock:
            done = [each for each in self.server.books.accounts[trial].requests if each.state == "done"]
            found = [{"payload": each.payload, "key": each.key} for each in done if each.name == name.strip("/")]
        self._reply(200, found)

    def _reply(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve() -> None:
    """Serve until whoever started this process is gone."""
    books = Books()
    told, outside = _Told(books), Outside(books)
    for server in (told, outside):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{told.server_address[1]} {outside.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve()
