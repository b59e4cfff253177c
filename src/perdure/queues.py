"""`Queue` and `Rate`: where a run waits for a worker, and how many of them may move at once and begin in a time.

The limits are words of a program until a worker that loads it declares them; from then on the store holds everybody to
them, and the newest declaration counts.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from msgspec import Struct

from perdure import records
from perdure.errors import UsageError
from perdure.policy import Duration, seconds_of

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,99}"
_TENANT_CHARACTERS: Final = 200
_LARGEST: Final = 2**31 - 1
_SAFE: Final = "nothing was started."


class Rate:
    """So many new runs in a time, over all workers: `Rate(100, per="1m")`.

    A bucket holds `burst` tokens, `count` where none is named, and is filled evenly; every new run takes one. Rates
    with one `name` share a bucket, whatever their queues.
    """

    def __init__(self, count: float, *, per: Duration = "1s", burst: int | None = None, name: str = "") -> None:
        seconds = seconds_of(per, what="per")
        if not _is_number(count) or not 0 < count <= _LARGEST or seconds == 0:
            raise UsageError(
                f"Rate({count!r}, per={per!r}) lets nothing begin, or is no number of runs.",
                safe=_SAFE,
                hint='Rate(100, per="1m"), or Rate(0.5, per="1s") for one in two seconds',
            )
        self.per_second = count / seconds
        self.burst = max(1, math.ceil(count)) if burst is None else _whole(burst, what="burst", least=1)
        self.name = checked_queue(name, what="a rate") if name else ""
        self._shown = f"{count:g} per {seconds:g} s, burst {self.burst}" + (f", bucket {name}" if name else "")

    def __repr__(self) -> str:
        return f"Rate({self._shown})"


class Queue:
    """A queue and its limits: `concurrency` runs of it move at once anywhere, `per_worker` in one process.

    Made at the top of a module. Two with one name must agree; one without limits takes limits back.
    """

    def __init__(
        self, name: str, *, concurrency: int | None = None, per_worker: int | None = None, rate: Rate | None = None
    ) -> None:
        self.name = checked_queue(name)
        if rate is not None and not isinstance(rate, Rate):
            raise UsageError(f"Queue({name!r}, rate={rate!r}) is no rate.", safe=_SAFE, hint='rate=Rate(100, per="1m")')
        self.limits = records.Queue(
            self.name,
            concurrency=0 if concurrency is None else _whole(concurrency, what="concurrency", least=1),
            per_worker=0 if per_worker is None else _whole(per_worker, what="per_worker", least=1),
            rate=rate.per_second if rate else 0.0,
            burst=rate.burst if rate else 0,
            bucket=rate.name if rate else "",
        )
        _declare(self.limits)

    def __repr__(self) -> str:
        return f"Queue({limits_words(self.limits, name=repr(self.name))})"


class Placement(Struct, frozen=True):
    """Where a run waits for a worker, and before whom."""

    queue: str = ""
    """Empty where the agent's own is meant."""
    priority: int | None = None
    tenant: str = ""
    delay_seconds: float = 0.0


_declared: dict[str, records.Queue] = {}


def declared() -> list[records.Queue]:
    """The limits of every queue that the code loaded so far has made."""
    return list(_declared.values())


def forget_declared() -> None:
    """Code is about to be loaded anew, and may say otherwise."""
    _declared.clear()


def placed(
    queue: str | Queue | None, priority: int | None, tenant: str | None, delay: Duration | None
) -> Placement | None:
    """What was asked for; None where nothing was, and the run need not be left to workers."""
    if queue is None and priority is None and tenant is None and delay is None:
        return None
    return Placement(
        queue="" if queue is None else queue_name(queue),
        priority=None if priority is None else _whole(priority, what="priority", least=-_LARGEST),
        tenant="" if tenant is None else _checked_tenant(tenant),
        delay_seconds=0.0 if delay is None else seconds_of(delay, what="delay"),
    )


def queue_name(queue: str | Queue) -> str:
    """The name of a queue that is given as such, or by its name."""
    return queue.name if isinstance(queue, Queue) else checked_queue(queue)


def checked_queue(name: Any, *, what: str = "a queue") -> str:  # noqa: ANN401 - whatever was given
    """A name that is safe to type, to store and to show."""
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise UsageError(
            f"{name!r:.80} is no name of {what}.",
            safe=_SAFE,
            hint='1 to 100 letters, digits and . _ : / -, a letter or digit first: "mail", "eu/mail"',
        )
    return name


def checked_deliveries(deliveries: int | None) -> int | None:
    """How many deliveries an agent allows; None where the settings decide."""
    return None if deliveries is None else _whole(deliveries, what="deliveries", least=1)


def limits_words(queue: records.Queue, *, name: str = "") -> str:
    """The limits as they would be written."""
    bucket = f", bucket {queue.bucket}" if queue.bucket else ""
    words = (
        name,
        f"concurrency={queue.concurrency}" if queue.concurrency else "",
        f"per_worker={queue.per_worker}" if queue.per_worker else "",
        f"rate={queue.rate:.4g}/s, burst={queue.burst}{bucket}" if queue.rate else "",
    )
    return ", ".join(filter(None, words))


def _declare(limits: records.Queue) -> None:
    known = _declared.setdefault(limits.name, limits)
    if known != limits:
        raise UsageError(
            f"Queue {limits.name!r} is declared twice: with {limits_words(known) or 'no limits'},"
            f" and with {limits_words(limits) or 'no limits'}.",
            safe=_SAFE,
            hint=f'declare it once and import it, or name it: queue="{limits.name}"',
        )


def _whole(value: object, *, what: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _LARGEST:
        raise UsageError(
            f"{what}={value!r:.80} is no whole number of {least:,} to {_LARGEST:,}.", safe=_SAFE, hint=f"{what}=5"
        )
    return value


def _checked_tenant(tenant: object) -> str:
    is_text = isinstance(tenant, str) and tenant.isprintable() and tenant.strip()
    if not isinstance(tenant, str) or not is_text or len(tenant) > _TENANT_CHARACTERS:
        raise UsageError(
            f"tenant={tenant!r:.80} is no tenant.",
            safe=_SAFE,
            hint=f'a printable text of 1 to {_TENANT_CHARACTERS} characters: tenant="customer-7"',
        )
    return tenant


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
