"""The same bytes for every contender: a short step result, and the 2 KB messages of a long conversation."""

from __future__ import annotations

import base64
import random

RESULT = "The flight leaves at 07:40 from gate B12; seat 14A is held until noon. Reference: PX-20418-LHR-0093."
MESSAGE_BYTES = 2048


def messages(count: int) -> list[str]:
    """Return `count` different texts of MESSAGE_BYTES that hardly compress, the same ones in every process."""
    source = random.Random(count)
    return [base64.b64encode(source.randbytes(MESSAGE_BYTES * 3 // 4)).decode() for _ in range(count)]
