"""What the journal keeps of a model call."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from perdure.adapters.words import error_saying

GIVEN_UP: Final = "cancelled"
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
    broke: str = ""
    """The class of the error where nothing came back, whose words are the text; or that the script gave up waiting."""
    request: str = ""
    """What was asked, as JSON: see `conversation.StoredRequest`."""

    @property
    def is_error(self) -> bool:
        """Whether there is no answer of a model in it."""
        return bool(self.trouble)

    @property
    def trouble(self) -> str:
        """Why there is no answer of a model in it, in a few words; empty where there is one."""
        if self.broke:
            return "given up" if self.was_given_up else self.broke.rpartition(".")[2]
        if self.status >= _FAILED:
            return f"HTTP {self.status}"
        return "failed while it came" if self.has_failed else ""

    @property
    def was_given_up(self) -> bool:
        """Whether the script stopped waiting for it."""
        return self.broke == GIVEN_UP

    def error(self) -> Exception | None:
        """What was raised in place of an answer; None where something came back."""
        if not self.broke or self.was_given_up:
            return None
        return error_saying(self.broke, self.text) or ConnectionError(self.text)

    @property
    def body(self) -> bytes:
        """The body as it came, decompressed."""
        return self.data or self.text.encode()
