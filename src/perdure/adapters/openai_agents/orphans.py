"""Tool calls of a history that have no output: what became of each, in words that a model can act on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure import codec
from perdure.engine.scope import current_frame
from perdure.errors import PerdureError
from perdure.replay import Entry, Journal
from perdure.settings import current_settings
from perdure.store import open_settings

if TYPE_CHECKING:
    from perdure.store.protocol import Store

_OUTPUT_OF: Final = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}

IN_DOUBT: Final = (
    "IN DOUBT: the process died while this call was being performed. Whether it took effect is not known. "
    "Find out before you do it again."
)
NEVER_BEGUN: Final = "NOT PERFORMED: the process died before this call began. It had no effect."
UNKNOWN: Final = (
    "IN DOUBT: nothing is on record of this call. Whether it took effect is not known. Find out before you do it again."
)


def closed(kept: list[tuple[Any, str]]) -> list[Any]:
    """The items of a history, each open call followed by what is known of it."""
    answered = {item.get("call_id") for item, _ in kept if item.get("type") in _OUTPUT_OF.values()}
    journals = _Journals()
    items: list[Any] = []
    try:
        for item, run_id in kept:
            items.append(item)
            kind = item.get("type")
            if kind in _OUTPUT_OF and item.get("call_id") not in answered:
                output = journals.output_of(item["call_id"], run_id)
                items.append({"type": _OUTPUT_OF[kind], "call_id": item["call_id"], "output": output})
    finally:
        journals.close()
    return items


class _Journals:
    """The journals of the runs that made the open calls, each read once."""

    def __init__(self) -> None:
        self._read: dict[str, Journal | None] = {}
        self._opened: Store | None = None

    def output_of(self, call_id: str, run_id: str) -> str:
        """What became of a call."""
        journal = self._journal(run_id) if run_id else None
        if journal is None:
            return UNKNOWN
        for key, entry in journal.entries.items():
            if f"/{call_id}#" in key:
                return self._told(entry)
        return NEVER_BEGUN

    def close(self) -> None:
        """Let go of the store."""
        if self._opened is not None:
            self._opened.close()

    def _told(self, entry: Entry) -> str:
        done = entry.done
        if done is not None and done.failure is not None:
            return f"FAILED: {done.failure.message}"
        if done is not None:
            sealed = self._store().load_blob(bytes.fromhex(done.blob)) if done.blob else bytes(done.value)
            return _text(codec.unseal(sealed))
        if entry.verdict is not None and entry.verdict.outcome == "happened":
            return "PERFORMED: a person or a check found that this call took effect."
        return IN_DOUBT if entry.is_open or entry.doubt else NEVER_BEGUN

    def _journal(self, run_id: str) -> Journal | None:
        if run_id not in self._read:
            self._read[run_id] = None
            with contextlib.suppress(PerdureError):
                records = self._store().load_journal(run_id)
                self._read[run_id] = Journal(records) if records else None
        return self._read[run_id]

    def _store(self) -> Store:
        frame = current_frame()
        if frame is not None and frame.active is not None:
            return frame.active.store
        if self._opened is None:
            self._opened = open_settings(current_settings(), create=False)
        return self._opened


def _text(value: Any) -> str:
    output = value.get("output", value.get("sealed", "")) if isinstance(value, dict) and value.get("perdure") else value
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()
