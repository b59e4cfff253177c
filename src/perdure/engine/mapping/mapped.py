"""The results of a map, read back a batch at a time: they are never all in memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Generic, TypeVar

from msgspec import Raw, Struct

from perdure import typed
from perdure.bodies import Failure, Lot

R_co = TypeVar("R_co", covariant=True)
ADDRESS_BYTES: Final = 32

_decode_lot: Final = typed.decoder(Lot)


class Summary(Struct, frozen=True):
    """The recorded value of a completed map: how many items, how many failed, and the addresses of their results."""

    count: int
    failed: int
    lots: bytes = b""


class Reader(Struct, frozen=True):
    """How results come back: a lot by its address, a stored value, a stored failure."""

    load: Callable[[bytes], bytes]
    value: Callable[[Raw], Any]
    failure: Callable[[Failure], Exception]

    def lots(self, addresses: bytes) -> Iterator[list[Any]]:
        """The results, a batch at a time."""
        for start in range(0, len(addresses), ADDRESS_BYTES):
            lot = _decode_lot(self.load(addresses[start : start + ADDRESS_BYTES]))
            failures = lot.failures
            yield [
                self.failure(failures[place]) if place in failures else self.value(value)
                for place, value in enumerate(lot.values)
            ]


class Mapped(Generic[R_co]):
    """The results of a map, in the order of the items; iterating reads them from the store, a batch at a time.

    With `on_error="collect"` a failed item gives its exception in place of a result, as `asyncio.gather` does.
    """

    def __init__(self, summary: Summary, lots: Callable[[], Iterator[list[Any]]]) -> None:
        self._summary = summary
        self._lots = lots

    def __len__(self) -> int:
        """How many items there were."""
        return self._summary.count

    @property
    def failed(self) -> int:
        """How many items failed."""
        return self._summary.failed

    def __iter__(self) -> Iterator[R_co]:
        """The results, in the order of the items."""
        for lot in self._lots():
            yield from lot

    def failures(self) -> Iterator[tuple[int, Exception]]:
        """The number, from 0, and the exception of each item that failed."""
        if self.failed:
            for index, result in enumerate(self):
                if isinstance(result, Exception):
                    yield index, result

    def __repr__(self) -> str:
        """How many items, and how many of them failed."""
        failed = f", {self.failed:,} failed" if self.failed else ""
        return f"<Mapped: {len(self):,} items{failed}>"

    def __await__(self) -> Generator[Any, None, Mapped[R_co]]:
        """Itself: `await perdure.map(...)` reads the same where the function is a plain one."""
        return self
        yield


def read_lot(content: bytes) -> Lot:
    """The content that a batch refers to."""
    return _decode_lot(content)
