"""Large values: kept once, compressed, under the digest of their content.

Layout of a stored blob: one byte naming the compression (`z` zlib, `r` raw), then the bytes.
"""

from __future__ import annotations

import zlib
from typing import Final

from perdure.errors import CheckpointCorrupt, UnstorableValue
from perdure.records import blob_digest

INLINE_BYTES: Final = 32 * 1024
"""Values up to this size stay inside their record."""

MAX_CONTENT_BYTES: Final = 256 * 1024 * 1024
_LEVEL: Final = 1
_ZLIB, _RAW = b"z", b"r"


def pack(content: bytes) -> tuple[bytes, bytes]:
    """The address and the stored form of a large value; one too large to be read back is refused here."""
    if len(content) > MAX_CONTENT_BYTES:
        raise UnstorableValue(
            f"A value of {len(content):,} bytes is larger than the {MAX_CONTENT_BYTES:,} perdure keeps.",
            safe="every step before is saved.",
            hint="write it to a file and return the path",
        )
    squeezed = zlib.compress(content, _LEVEL)
    stored = _ZLIB + squeezed if len(squeezed) < len(content) else _RAW + content
    return blob_digest(content), stored


def unpack(digest: bytes, stored: bytes | None) -> bytes:
    """The content, proved to be what the address says."""
    content = _expand(stored) if stored is not None else None
    if content is None or blob_digest(content) != digest:
        raise CheckpointCorrupt(
            f"The large value {digest.hex()[:12]} is {'missing' if stored is None else 'damaged'}.",
            safe="every other record is untouched.",
            hint="perdure verify",
        )
    return content


def _expand(stored: object) -> bytes | None:
    if not isinstance(stored, bytes):
        return None
    if stored[:1] == _RAW:
        return stored[1:]
    try:
        return zlib.decompressobj().decompress(stored[1:], MAX_CONTENT_BYTES)
    except zlib.error:
        return None
