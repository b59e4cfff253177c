"""How a tool recovers: as `[tool.perdure.tools]` in pyproject.toml declares it, as its server says, else as an effect.

[tool.perdure.tools]
"search_*" = "step"           # may be performed again
send_mail = "effect"          # never twice: a call that was interrupted is in doubt
research = "agent"            # its own model and tool calls are recorded
"open logs/*" = "step"        # what the script itself does outside of tools, and needs no mention
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from perdure.errors import InvalidSettings
from perdure.settings import project_table

_SAFE_HINTS: Final = ("readOnlyHint", "read_only_hint", "idempotentHint", "idempotent_hint")
_SHOWN_CHARACTERS: Final = 60


class Policy(StrEnum):
    """What a tool is."""

    STEP = "step"
    EFFECT = "effect"
    AGENT = "agent"


class Policies(Struct, frozen=True):
    """What a project declares of its tools."""

    declared: dict[str, Policy] = {}
    """By name or pattern."""

    @classmethod
    def load(cls, folder: Path) -> Policies:
        """What the project in this folder declares; nothing where it declares nothing."""
        table, where = project_table("tools", folder)
        return cls(dict(_read(where, table)))

    def of(self, name: str, annotations: object = None) -> Policy:
        """The policy of a tool: its own name decides before the closest pattern, and that before its server."""
        if name in self.declared:
            return self.declared[name]
        found = [pattern for pattern in self.declared if fnmatch.fnmatchcase(name, pattern)]
        if found:
            return self.declared[max(found, key=self._closeness)]
        return of_annotations(annotations)

    def silent(self) -> tuple[str, ...]:
        """The patterns of what the script does outside of tools and need not be mentioned, such as `open logs/*`."""
        return tuple(pattern for pattern in self.declared if " " in pattern)

    def _closeness(self, pattern: str) -> tuple[int, bool, bool]:
        """How much of a name a pattern spells out; of two that spell out as much, the more careful policy counts."""
        spelled = len(pattern) - sum(pattern.count(each) for each in "*?[]")
        return spelled, "*" not in pattern, self.declared[pattern] is Policy.EFFECT


def of_annotations(annotations: object) -> Policy:
    """What the server of a tool says about it, as MCP has it; one that says nothing may do anything."""
    if isinstance(annotations, Mapping):
        said = [annotations.get(hint) for hint in _SAFE_HINTS]
    else:
        said = [getattr(annotations, hint, None) for hint in _SAFE_HINTS]
    return Policy.STEP if any(each is True for each in said) else Policy.EFFECT


def _read(where: str, table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Policy]]:
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            yield from _read(where, value, f"{name}.")  # how TOML reads a name with dots
            continue
        if not isinstance(value, str) or value not in tuple(Policy):
            raise _unusable(where, name, value)
        if " " in name and value != Policy.STEP:
            raise InvalidSettings(
                f"{name} in {where}: only a tool can be an {value}.",
                safe="nothing was started.",
                hint=f'"{name}" = "step" says that it may happen again; make it a tool to have it happen once',
            )
        yield name, Policy(value)


def _unusable(where: str, name: str, value: object) -> InvalidSettings:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_CHARACTERS else f"of type {type(value).__name__}"
    return InvalidSettings(
        f"{name} in {where}: step, effect or agent is expected, given is {shown}.",
        safe="nothing was started.",
        hint=f"mend {name}, or leave it out: an undeclared tool is an effect",
    )
