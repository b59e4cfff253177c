"""What the user's modules get for the functions of `datetime`, `os`, `random`, `secrets`, `time` and `uuid`.

Each stand-in gives what the function of the library would give, of exactly its type, from the time and the chance of
the run (`userland.values`). One of the two modules beside `perdure.clock` that import these: it stands in for them.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import time
import uuid
import warnings
from datetime import UTC, date, datetime, timedelta, tzinfo
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.userland.values import here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NANOSECONDS: Final = 1_000_000_000


class StandIns:
    """What the user's modules get where they load something that has the name of a source of time or chance."""

    __slots__ = ("_by_original", "_classes", "_methods")

    def __init__(self) -> None:
        self._by_original: dict[Any, Any] = {}
        self._classes: dict[type, Any] = {}
        self._methods: dict[Any, str] = {}

    def __reduce__(self) -> str:
        """Code that is sent to another process by value finds the stand-ins of that process."""
        return "stand_ins"

    def add(self, original: Any, stand_in: Any, *, method: str = "") -> None:
        """Have this given for that: a class only where it is called, a method of the scope's generator as it is."""
        (self._classes if isinstance(original, type) else self._by_original)[original] = stand_in
        if method:
            self._methods[original] = method

    def value(self, found: Any) -> Any:
        """What stands in for this very function of the library; anything else is what it is."""
        if type(found) in _FUNCTIONS:
            try:
                return self._by_original.get(found, found)
            except TypeError:  # a method of something that has no hash
                return found
        return found

    def called(self, found: Any) -> Any:
        """The same where it is called at once: what the library raises then shows no frame of ours."""
        if type(found) is type:
            return self._classes.get(found, found)
        stand_in = self.value(found)
        if stand_in is found or found not in self._methods:
            return stand_in
        values, scope = here()
        return found if values is None else getattr(values.chance.generator(scope), self._methods[found])


_FUNCTIONS: Final = frozenset({BuiltinFunctionType, FunctionType, MethodType})
stand_ins: Final = StandIns()


def _named(original: Any, stand_in: Any, *, method: str = "") -> None:
    """Let the stand-in look like what it stands in for; classes are made where they are called, and stay themselves."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(stand_in, name, getattr(original, name, None))
    stand_in.__wrapped__ = original
    stand_ins.add(original, stand_in, method=method)


def _stand_in_for_clock(original: Callable[..., Any], kind: str, made: Callable[..., Any], most: int = 0) -> None:
    """`made` of a reading and the arguments; with more arguments than `most` nothing is read from the clock."""
    read = _READ[kind]

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        values, scope = here()
        if values is None or len(args) + len(kwargs) > most or (args and args[0] is None and original in _SECONDS):
            return original(*args, **kwargs)
        return made(values.drawn(scope, kind, read), *args, **kwargs)

    _named(original, stand_in)


def _read_local() -> list[Any]:
    """The moment, and what the clocks on the wall make of it here: a resume may be elsewhere."""
    nanoseconds = time.time_ns()
    local = time.localtime(nanoseconds // _NANOSECONDS)
    fold = datetime.fromtimestamp(nanoseconds // _NANOSECONDS).fold  # noqa: DTZ006 - local time is what is asked for
    return [nanoseconds, local.tm_gmtoff, local.tm_isdst, local.tm_zone, fold]


_READ: Final[dict[str, Callable[[], Any]]] = {
    "clock": time.time_ns,
    "local": _read_local,
    "uuid1": lambda: uuid.uuid1().hex,  # noqa: TID251 - what it stands in for
}


def _moment(nanoseconds: int, zone: tzinfo | None) -> datetime:
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return datetime.fromtimestamp(seconds, zone).replace(microsecond=rest // 1000)


def _local_moment(reading: Sequence[Any]) -> datetime:
    nanoseconds, offset, _, _, fold = reading
    moment = _moment(nanoseconds, UTC).replace(tzinfo=None) + timedelta(seconds=offset)
    return moment.replace(fold=fold)


def _local_time(reading: Sequence[Any]) -> time.struct_time:
    nanoseconds, offset, is_summer, zone, _ = reading
    shown = time.gmtime(nanoseconds // _NANOSECONDS + offset)
    return time.struct_time((*shown[:8], is_summer, zone, offset))


def _now(tz: tzinfo | None = None) -> datetime:
    """`datetime.now`: with a zone of the caller's own, or as the clocks on the wall show it."""
    values, scope = here()
    if values is None or (tz is not None and not isinstance(tz, tzinfo)):
        return datetime.now(tz)  # noqa: TID251 - what it stands in for
    if tz is None:
        return _local_moment(values.drawn(scope, "local", _read_local))
    return _moment(values.drawn(scope, "clock", time.time_ns), tz)


def _utcnow() -> datetime:
    if sys.version_info >= (3, 12):
        warnings.warn(
            "datetime.datetime.utcnow() is deprecated and scheduled for removal in a future version. Use "
            "timezone-aware objects to represent datetimes in UTC: datetime.datetime.now(datetime.UTC).",
            DeprecationWarning,
            stacklevel=2,
        )
    values, scope = here()
    reading = time.time_ns() if values is None else values.drawn(scope, "clock", time.time_ns)
    return _moment(reading, UTC).replace(tzinfo=None)


_SECONDS: Final = (time.localtime, time.gmtime, time.ctime)
_ORIGINALS_OF_DATES: Final = ((datetime.now, _now), (datetime.utcnow, _utcnow))  # noqa: TID251


def _stand_in_for_time() -> None:
    for original, stand_in in _ORIGINALS_OF_DATES:
        _named(original, stand_in)
    clocks: list[tuple[Any, str, Callable[..., Any], int]] = [
        (datetime.today, "local", _local_moment, 0),  # noqa: TID251
        (date.today, "local", lambda reading: _local_moment(reading).date(), 0),  # noqa: TID251
        (time.time, "clock", lambda reading: reading / _NANOSECONDS, 0),
        (time.time_ns, "clock", lambda reading: reading, 0),
        (time.gmtime, "clock", lambda reading: time.gmtime(reading // _NANOSECONDS), 0),
        (time.localtime, "local", _local_time, 0),
        (time.ctime, "local", lambda reading: time.asctime(_local_time(reading)), 0),
        (time.asctime, "local", lambda reading: time.asctime(_local_time(reading)), 0),
        (time.strftime, "local", lambda reading, form: time.strftime(form, _local_time(reading)), 1),
        (uuid.uuid1, "uuid1", lambda reading: uuid.UUID(hex=reading), 0),  # noqa: TID251
    ]
    for each in clocks:
        _stand_in_for_clock(*each)


def _stand_in_for_generator(name: str) -> None:
    """A function of the module `random`: the method of the scope's own generator."""
    original = getattr(random, name)

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        values, scope = here()
        if values is None:
            return original(*args, **kwargs)
        return getattr(values.chance.generator(scope), name)(*args, **kwargs)

    _named(original, stand_in, method=name)


def _seed(*args: Any, **kwargs: Any) -> None:
    values, scope = here()
    if values is None:
        random.seed(*args, **kwargs)
    else:
        values.chance.reseed(scope, args, kwargs)


def _urandom(size: int, /) -> bytes:
    values, scope = here()
    if values is None or not isinstance(size, int) or size < 0:
        return os.urandom(size)  # noqa: TID251 - what it stands in for
    return values.chance.data(scope, size)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(bytes=_urandom(16), version=4)


def _random(*args: Any, **kwargs: Any) -> random.Random:
    """`random.Random()`: a generator without a seed of its own gets one of the run's."""
    values, scope = here()
    if values is None or args or kwargs:
        return random.Random(*args, **kwargs)  # noqa: S311 - what it stands in for
    return random.Random(values.chance.data(scope, 32))  # noqa: S311


def _system_random(*args: Any, **kwargs: Any) -> random.SystemRandom:
    """`random.SystemRandom()`: the same class, whose sources are ours; all its methods draw from these three."""
    made = random.SystemRandom(*args, **kwargs)
    vars(made).update(random=_fraction, getrandbits=_bits, randbytes=_urandom)
    return made


def _fraction() -> float:
    return (int.from_bytes(_urandom(7)) >> 3) * 2**-53


def _bits(count: int) -> int:
    if count < 0:
        raise ValueError("number of bits must be non-negative")
    size = (count + 7) // 8
    return int.from_bytes(_urandom(size)) >> (size * 8 - count)


def _stand_in_for_chance() -> None:
    for name in random.__all__:
        if isinstance(getattr(random, name), (BuiltinFunctionType, MethodType)) and name != "seed":
            _stand_in_for_generator(name)
    _named(random.seed, _seed)
    _named(os.urandom, _urandom)  # noqa: TID251
    _named(uuid.uuid4, _uuid4)  # noqa: TID251
    stand_ins.add(random.Random, _random)
    stand_ins.add(random.SystemRandom, _system_random)
    _stand_in_for_secrets()


def _stand_in_for_secrets() -> None:
    """A copy of the module `secrets` that draws from ours: what its functions do stays the library's business."""
    import secrets

    spec = importlib.util.find_spec("secrets")
    assert spec is not None  # noqa: S101 - it has just been imported
    assert spec.loader is not None  # noqa: S101
    copy: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    copy._sysrand = _system_random()  # noqa: SLF001
    copy.randbits, copy.choice = copy._sysrand.getrandbits, copy._sysrand.choice  # noqa: SLF001
    for name in ("choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe"):
        stand_ins.add(getattr(secrets, name), getattr(copy, name))


_stand_in_for_time()
_stand_in_for_chance()

SOURCES: Final = frozenset({"datetime", "os", "random", "secrets", "time", "uuid"})
"""The modules in which they are found."""

NAMES: Final = frozenset(
    {"now", "utcnow", "today", "time", "time_ns", "gmtime", "localtime", "ctime", "asctime", "strftime"}
    | {"uuid1", "uuid4", "urandom", "Random", "SystemRandom"}
    | {"randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe"}
    | {name for name in random.__all__ if isinstance(getattr(random, name), (BuiltinFunctionType, MethodType))}
)
"""What they are called there. Stopwatches such as `time.monotonic` are left alone: they measure this process."""
