"""Statements sent as the server reads them: prepared once on a line, values in binary, a batch as arrays.

Asking a library for the type of every value takes more time than all the rest of a step on this side of the wire. Here
each placeholder says its type (`%s::bigint`), and values are written as that type, whatever they are.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors as server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg.pq.abc import PGresult

    from perdure.store.postgres.connect import Connection

_PLACEHOLDER: Final = re.compile(r"%[sb](?:::(\w+)(\[\])?)?")
_HEADER: Final = struct.Struct("!5i")
_EMPTY: Final = struct.Struct("!3i")
_LENGTH: Final = struct.Struct("!i").pack
BIGINT: Final = struct.Struct("!q").pack
FLOAT: Final = struct.Struct("!d").pack
_BINARY: Final = 1
_IDLE: Final = int(psycopg.pq.TransactionStatus.IDLE)

_SCALAR: Final[dict[str, tuple[int, int, Callable[[Any], bytes]]]] = {
    "bigint": (20, 1016, BIGINT),
    "float8": (701, 1022, FLOAT),
    "text": (25, 1009, str.encode),
    "bytea": (17, 1001, bytes),
}
"""For each type: its number, that of an array of it, and how one value is written."""


class Statement:
    """A statement whose placeholders say their types."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name.encode()
        types = [(found.group(1), bool(found.group(2))) for found in _PLACEHOLDER.finditer(text)]
        self._writes = [_array_writer(kind) if is_array else _SCALAR[kind][2] for kind, is_array in types]
        self._formats = [_BINARY] * len(types)
        self._types = [_SCALAR[kind][1] if is_array else _SCALAR[kind][0] for kind, is_array in types]
        numbers = iter(range(1, len(types) + 1))
        self._text = _PLACEHOLDER.sub(lambda _: f"${next(numbers)}", text).encode()

    def execute(self, connection: Connection, values: Sequence[Any]) -> PGresult:
        """Write the values, send it, and wait for the answer; errors are psycopg's own."""
        return self.send(connection, [write(value) for write, value in zip(self._writes, values, strict=True)])

    def send(self, connection: Connection, written: list[bytes]) -> PGresult:
        """The same, for values that are written already."""
        pgconn = connection.pgconn
        if pgconn.transaction_status != _IDLE:
            # What the server was told may be forgotten by now, and to find that out would end the transaction.
            pgconn.send_query_params(self._text, written, self._types, self._formats, _BINARY)
            return connection.answer()
        if self.name not in connection.told:
            self._prepare(connection)
        try:
            pgconn.send_query_prepared(self.name, written, self._formats, _BINARY)
            return connection.answer()
        except server.InvalidSqlStatementName:  # psycopg lets the server forget all of them after some commands
            self._prepare(connection)
            pgconn.send_query_prepared(self.name, written, self._formats, _BINARY)
            return connection.answer()

    def _prepare(self, connection: Connection) -> None:
        connection.pgconn.send_prepare(self.name, self._text, self._types)
        connection.answer()
        connection.told.add(self.name)


def numbers(result: PGresult) -> list[int]:
    """The first column of the answer, where it is of whole numbers."""
    unpack = int.from_bytes
    return [unpack(result.get_value(row, 0) or b"", "big", signed=True) for row in range(result.ntuples)]


def _array_writer(kind: str) -> Callable[[Sequence[Any]], bytes]:
    """How a column of a batch is written."""
    number, _, write = _SCALAR[kind]
    code = {"bigint": "q", "float8": "d"}.get(kind)
    return _fixed(number, code) if code else _varying(number, write)


def _fixed(number: int, code: str) -> Callable[[Sequence[Any]], bytes]:
    """Values of eight bytes: all of them are packed in one go."""

    def write(values: Sequence[Any]) -> bytes:
        count = len(values)
        flat = [8] * (2 * count)
        flat[1::2] = values
        return _begun(number, count) + struct.pack("!" + f"i{code}" * count, *flat)

    return write


def _varying(number: int, write_one: Callable[[Any], bytes]) -> Callable[[Sequence[Any]], bytes]:
    """Values that say how long they are."""

    def write(values: Sequence[Any]) -> bytes:
        parts = [_begun(number, len(values))]
        for value in values:
            written = write_one(value)
            parts.append(_LENGTH(len(written)))
            parts.append(written)
        return b"".join(parts)

    return write


def _begun(number: int, count: int) -> bytes:
    """What an array of one dimension without gaps begins with."""
    return _HEADER.pack(1, 0, number, count, 1) if count else _EMPTY.pack(0, 0, number)
