"""One model call of a script: answered from the journal where it was made before, else sent, and recorded.

Whatever library sends it, it walks the same way: `routed` says that it is one; `begun` finds its place in the journal;
`call.answer` is what was recorded there; else the library sends the request, and `commit` records the answer before
the script sees the end of it. That nothing came back is recorded, too: a script may have gone another way for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure import clock, codec
from perdure.adapters.http import wire
from perdure.adapters.http.body import Body
from perdure.adapters.http.conversation import difference, shared
from perdure.adapters.http.endpoints import Dialect, dialect_of
from perdure.adapters.http.record import GIVEN_UP, Answer
from perdure.adapters.http.usage import dollars, usage_of
from perdure.adapters.script.conduct import conducted
from perdure.adapters.userland.values import STRAY
from perdure.bodies import Cost
from perdure.engine.call import Prepared, Spec
from perdure.engine.drive import drive, drive_async
from perdure.engine.scope import current_frame
from perdure.engine.step import record_value
from perdure.errors import PerdureError, Signal
from perdure.hooks import catch_up
from perdure.policy import ONCE
from perdure.records import Kind
from perdure.replay import Replayed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from perdure.adapters.http.canonical import Asked
    from perdure.adapters.script.conduct import Conduct
    from perdure.engine.drive import Operation
    from perdure.engine.scope import Frame

_ENCODING: Final = "content-encoding"
"""How a body was packed on its way; what is recorded is unpacked."""

_OK: Final = 200
_EVENTS: Final = "text/event-stream"
_FRAMES: Final = "application/vnd.amazon.eventstream"
_FRAMED: Final = frozenset({Dialect.BEDROCK, Dialect.BEDROCK_INVOKE})
_is_sending: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("perdure_is_sending", default=False)


def _request(digest: str) -> Answer:
    """The arguments and the value of a model call as its record has them."""
    raise NotImplementedError(digest)


@functools.lru_cache(maxsize=100)
def _spec(model: str) -> Spec:
    return Spec(_request, name=model, retry=ONCE, timeout=None, key=None)


class ModelCall(Prepared[Spec]):
    """One model call with its place in the journal taken."""

    def __init__(self, conduct: Conduct, frame: Frame, asked: Asked) -> None:
        self.conduct = conduct
        self.asked = asked
        self._is_inside = is_inside_body()
        self._trouble = ""
        self._began = clock.elapsed_seconds()
        super().__init__(_spec(asked.model or asked.dialect), frame, (asked.digest.hex(),), {})
        self.answer: Answer | None = None
        if isinstance(self.decision, Replayed):
            self.answer = self.recorded(self.decision.done)
            self._learn(self.answer)

    def shown(self) -> str:
        """The call as a person would write it."""
        became = f" → {self._trouble}" if self._trouble else ""
        return self.conduct.redactor.text(f"{self.spec.name}({self.asked.about!r}){became}")

    def sealed(self, value: Answer) -> tuple[bytes, Answer]:
        """The stored form of an answer, which comes back as it is: it is made of texts and numbers."""
        return codec.seal(msgspec.structs.asdict(value)), value

    def body(self) -> Body:
        """What a streamed answer to this request is gathered in."""
        return Body(self.asked.dialect, self._break_off)

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """What is sent meanwhile belongs to this call; where nothing comes back, that is recorded."""
        token = _is_sending.set(True)
        try:
            yield
        except asyncio.CancelledError:
            self._commit_broken(Answer(0, {}, broke=GIVEN_UP))
            raise
        except Exception as error:
            kind = type(error)
            self._commit_broken(Answer(0, {}, text=str(error), broke=f"{kind.__module__}.{kind.__qualname__}"))
            raise
        finally:
            _is_sending.reset(token)

    async def wait_if_given_up(self) -> None:
        """Let a script that gave up waiting for this answer do so again."""
        if self.answer is not None and self.answer.was_given_up:
            await asyncio.get_running_loop().create_future()

    def _break_off(self, body: bytes) -> None:
        """A stream broke, or was given up, when so much of it had come."""
        kind = _FRAMES if self.asked.dialect in _FRAMED else _EVENTS
        made = self._made(_OK, {"content-type": kind}, body, is_cut=True, has_failed=True)
        self._commit_broken(made)

    def _commit_broken(self, answer: Answer) -> None:
        """Record that there is no answer: a program may go another way for it. Where that is so, it is not hidden."""
        request = answer.request or self._stored_request()
        clean = msgspec.structs.replace(answer, text=self.conduct.redactor.text(answer.text), request=request)
        with contextlib.suppress(PerdureError, Signal):  # the run has stopped: the script is told at its next call
            drive(self._recorded(clean))

    def commit(self, status: int, headers: Mapping[str, str], body: bytes, **how: bool) -> Answer:
        """Record the answer, and give back what was recorded; when this returns, it is never asked for again."""
        return drive(self._recorded(self._made(status, headers, body, **how)))

    async def commit_async(self, status: int, headers: Mapping[str, str], body: bytes, **how: bool) -> Answer:
        """The same, letting the event loop go on."""
        return await drive_async(self._recorded(self._made(status, headers, body, **how)))

    def _made(
        self, status: int, headers: Mapping[str, str], body: bytes, *, is_cut: bool = False, has_failed: bool = False
    ) -> Answer:
        redactor = self.conduct.redactor
        kept = {name: value for name, value in redactor.headers(headers).items() if name.lower() != _ENCODING}
        clean = redactor.text(body)
        try:
            text, data = clean.decode(), b""
        except UnicodeDecodeError:
            text, data = "", clean
        request = self._stored_request()
        return Answer(status, kept, text, data, is_cut=is_cut, has_failed=has_failed, request=request)

    def _stored_request(self) -> str:
        return msgspec.json.encode(shared(self.asked, self.conduct.requests, self.conduct.redactor)).decode()

    def _recorded(self, answer: Answer) -> Generator[Operation, Any, Answer]:
        self._trouble = answer.trouble
        usage = usage_of(self.asked.dialect, answer.status, answer.body, is_stream=self.asked.is_stream)
        if usage.tokens:
            self.active.spend(self.call.key, Cost(usage.tokens, dollars(usage, self.conduct.prices)))
        self.conduct.write_notes()
        seconds = clock.seconds_since(self._began)
        yield from record_value(self, Kind.STEP, answer, attempt=1, seconds=seconds)
        self._learn(answer)
        return answer

    def _learn(self, answer: Answer) -> None:
        """Know what was asked, so that the next request builds on it, and what the model asked for in turn."""
        self.conduct.requests.note(self.call.key, self.asked)
        if not (answer.is_error or self._is_inside):
            calls = wire.asked_for(self.asked.dialect, answer.body, is_stream=self.asked.is_stream)
            self.conduct.pending.note(self.call.key, calls)

    def _key(self, digest: bytes) -> str:
        scope, recorded = self.frame.scope.path, self.conduct.recorded
        found = recorded.take(scope, digest)
        is_strand = scope != STRAY  # calls of threads that nobody knows the order of
        if found is None and is_strand and (expected := recorded.expected(scope)) is not None:
            raise self._other_way(expected)
        return found or recorded.new_key(scope)

    def _other_way(self, expected: str) -> BaseException:
        """Park: of what this strand asked when it was recorded, this is nothing."""
        entry = self.active.journal.entries[expected]
        differs = ""
        if (before := self.conduct.stored_request(expected)) is not None:
            differs = difference(before, self.asked, self.conduct.stored_request, self.conduct.redactor)
        return self.active.diverge(entry.shown_call(), "\n".join(filter(None, (self.shown(), differs))))


def is_inside_body() -> bool:
    """Whether this is done inside a tool, which is protected, or in doubt, as a whole."""
    frame = current_frame()
    return frame is not None and bool(frame.body)


class Route(Struct, frozen=True):
    """A request that is a model call, on its way."""

    conduct: Any
    dialect: Dialect
    method: str
    url: str

    def begun(self, headers: Mapping[str, str], body: bytes) -> ModelCall | None:
        """The call that this request is; None where its body says that it is something else."""
        conduct: Conduct = self.conduct
        catch_up()
        conduct.redactor.learn(self.url, headers)
        asked = conduct.reader.read(self.dialect, self.method, self.url, body)
        if not asked.fits:
            return None
        if not is_inside_body() and conduct.coverage.audit(conduct.pending, wire.results_in(asked)):
            conduct.keep_notes()
        call = ModelCall(conduct, conduct.frame(), asked)
        error = None if call.answer is None else call.answer.error()
        if error is not None:
            raise error
        return call


def routed(method: str, url: str) -> Route | None:
    """How this request goes; None where it is no model call, is part of one, or nobody records here."""
    conduct = conducted()
    if conduct is None or _is_sending.get():
        return None
    dialect = dialect_of(method, url)
    return None if dialect is None else Route(conduct, dialect, method, url)
