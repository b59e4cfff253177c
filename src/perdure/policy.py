"""Retry arithmetic and the reading of exceptions, pure: what to do next, never doing it."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure.errors import UsageError

if TYPE_CHECKING:
    from perdure.records import Run

DEFAULT_KEY_TTL_SECONDS: Final = 24 * 3600.0
DEFAULT_IN_FLIGHT_SECONDS: Final = 10.0
RESUMABLE_SECONDS: Final = 24 * 3600.0
"""A run left alone for longer is named, not resumed, unless somebody asks for it."""

ExceptionTypes = tuple[type[BaseException], ...]

_CERTAIN: Final[ExceptionTypes] = (ConnectionRefusedError,)
_CERTAIN_NAMES: Final = frozenset(
    {
        "socket.gaierror",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "httpx.UnsupportedProtocol",
        "httpx2.ConnectError",
        "httpx2.ConnectTimeout",
        "aiohttp.client_exceptions.ClientConnectorError",
        "requests.exceptions.ConnectTimeout",
        "urllib3.exceptions.NewConnectionError",
    }
)
_CLIENT_ERRORS: Final = range(400, 500)
_UNSETTLED_CLIENT_ERRORS: Final = frozenset({408, 409, 425})
"""Answers below 500 after which the request may still have been, or be, carried out."""


class Retry(Struct, frozen=True, kw_only=True):
    """How often a call is attempted, how long between attempts, and after which exceptions."""

    attempts: int = 3
    delay_seconds: float = 0.5
    factor: float = 2.0
    max_delay_seconds: float = 60.0
    jitter: float = 0.1
    on: ExceptionTypes = (Exception,)
    deadline_seconds: float = math.inf
    """No attempt begins later than so long after the first one did, whatever died in between."""

    def __post_init__(self) -> None:
        """Refuse a policy that could never act as written."""
        if self.attempts < 1:
            raise UsageError(
                f"Retry(attempts={self.attempts}): at least one attempt is needed.", hint="Retry(attempts=3)"
            )
        numbers = (self.delay_seconds, self.max_delay_seconds, self.factor, self.jitter)
        if not all(map(math.isfinite, numbers)) or min(numbers) < 0 or self.factor < 1 or self.jitter > 1:
            raise UsageError(
                f"{self!r}: delays must not be negative, factor at least 1, jitter between 0 and 1.",
                hint="Retry(attempts=3, delay_seconds=0.5, factor=2, jitter=0.1)",
            )
        if not self.deadline_seconds > 0:
            raise UsageError(
                f"Retry(deadline_seconds={self.deadline_seconds}) leaves no time.", hint="deadline_seconds=300"
            )
        if not are_exceptions(self.on):
            raise UsageError(
                f"Retry(on={self.on!r}): only exception classes can be listed.", hint="Retry(on=(OSError,))"
            )


_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LONG: Final = 100 * 366 * 86400.0
"""No wait of more than a hundred years is meant."""


def _examples(what: str) -> str:
    """How a duration is written, in Python or on a command line."""
    if what.startswith("--"):
        return f'{what} 90s, {what} 8h, {what} "1d 12h"'
    return f'{what}=90, {what}="8h", {what}="1d 12h", or a timedelta'


Duration = float | int | str | timedelta
"""Seconds, a timedelta, or a text such as "90s", "8h", "1d 12h"."""


def seconds_of(duration: Duration, *, what: str) -> float:
    """A duration in seconds; `what` names it in the error where it is none."""
    seconds = _parsed_seconds(duration)
    if seconds is None or not math.isfinite(seconds) or not 0 <= seconds <= _LONG:
        raise UsageError(
            f"{what}={duration!r} is no duration between 0 seconds and a hundred years.",
            safe="nothing was recorded.",
            hint=_examples(what),
        )
    return seconds


def _parsed_seconds(duration: object) -> float | None:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        return float(duration) if abs(duration) <= _LONG else math.inf
    if not isinstance(duration, str):
        return None
    parts = re.findall(r"([0-9]+(?:[.][0-9]+)?)\s*([smhdw])", duration)
    written = "".join(f"{number}{unit}" for number, unit in parts)
    if not parts or written != re.sub(r"\s+", "", duration):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def are_exceptions(kinds: object) -> bool:
    """Whether this is a tuple of exception classes."""
    return isinstance(kinds, tuple) and all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds)


ONCE: Final = Retry(attempts=1)
SAME_KEY: Final = Retry(attempts=4, delay_seconds=0.5)
"""How a keyed effect is sent again after an ambiguous answer, before a person is asked."""


def delay_seconds(retry: Retry, *, failed_attempts: int, fraction: float) -> float:
    """How long to wait after the given number of failed attempts; `fraction` in [0, 1) spreads the herd."""
    try:
        plain = min(retry.delay_seconds * retry.factor ** (failed_attempts - 1), retry.max_delay_seconds)
    except OverflowError:
        from fractions import Fraction  # rarely needed, and slow to load

        grown = Fraction(retry.delay_seconds) * Fraction(retry.factor) ** (failed_attempts - 1)
        plain = retry.max_delay_seconds if grown >= retry.max_delay_seconds else float(grown)
    return plain * (1 + retry.jitter * (2 * fraction - 1))


def may_retry(retry: Retry, *, failed_attempts: int, error: BaseException, elapsed_seconds: float = 0.0) -> bool:
    """Whether another attempt is allowed after this error, so long after the first attempt began."""
    if failed_attempts >= retry.attempts or not isinstance(error, retry.on):
        return False
    begins_after = elapsed_seconds + delay_seconds(retry, failed_attempts=failed_attempts, fraction=0.5)
    return begins_after < retry.deadline_seconds


def proves_nothing_happened(error: BaseException, *, certain: ExceptionTypes, ambiguous: ExceptionTypes) -> bool:
    """Whether this exception shows that the effect did not take place; anything unknown does not."""
    if isinstance(error, ambiguous):
        return False
    if isinstance(error, (*certain, *_CERTAIN)):
        return True
    return any(_qualified_name(kind) in _CERTAIN_NAMES for kind in type(error).__mro__) or _is_refusal(error)


def seconds_in_flight(*, over_seconds: float, in_flight_seconds: float, unproven_seconds: float) -> float:
    """How long `did_not_happen` does not count yet: the request may land, or its sender may live and send it.

    As far as is known here the attempt ended so long ago, and its sender may have lived for so long after that. When it
    began says nothing: a body may send with its last breath.
    """
    return max(0.0, in_flight_seconds + unproven_seconds - over_seconds)


def is_spent(run: Run, *, limit: int) -> bool:
    """Whether the run has ended as many workers in a row as it may without completing a step."""
    return run.deliveries >= limit


def is_recent(run: Run, *, now: float) -> bool:
    """Whether a run was touched recently enough to be resumed without being named."""
    return now - run.updated_at <= RESUMABLE_SECONDS


def _is_refusal(error: BaseException) -> bool:
    """An HTTP answer that says the request was not carried out (httpx, requests, aiohttp, urllib)."""
    answer = getattr(error, "response", None)
    for holder, attribute in (
        (answer, "status_code"),
        (answer, "status"),
        (error, "status_code"),
        (error, "status"),
        (error, "code"),
    ):
        status = getattr(holder, attribute, None)
        if isinstance(status, int) and status in _CLIENT_ERRORS:
            return status not in _UNSETTLED_CLIENT_ERRORS
    return False


def _qualified_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
