"""What the journal keeps of a model call."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

_FAILED: Final = 400


class Answer(Struct, frozen=True, omit_defaults=True):
    """What came back, and what it answers."""

    status: int
    headers: dict[str, str]
    text: str = ""
    data: bytes = b""
    """A body that is no text."""
    is_cut: bool = False
    """Whether the script stopped reading before the end."""
    has_failed: bool = False
    """Whether it says, in a stream that began well, that the model failed."""
    request: str = ""
    """What was asked, as JSON: see `conversation.StoredRequest`."""

    @property
    def is_error(self) -> bool:
        """Whether there is no answer of a model in it."""
        return self.has_failed or self.status >= _FAILED

    @property
    def body(self) -> bytes:
        """The body as it came, decompressed."""
        return self.data or self.text.encode()
