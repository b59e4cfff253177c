"""The page of the settings: each with its default, its variable and its meaning."""

from __future__ import annotations

import msgspec

from docs.generate.contracts import described, worded
from docs.generate.markdown import block, joined, opened, table
from perdure.settings import ENVIRONMENT_PREFIX, Settings

_INTRO = """perdure needs no settings. Where you want another choice, the first of these that names a setting
decides:

1. `perdure.configure(store="…")` in code, and `--store` on the command line;
2. a variable of the environment, such as `PERDURE_STORE`; an empty one counts as not set;
3. `[tool.perdure]` in the `pyproject.toml` of the working directory;
4. the default.

An unknown name or an unusable value is an error with exit code 2, never ignored."""
_EXAMPLE = """# pyproject.toml
[tool.perdure]
store = "./state/runs.db"
durability = "process"
stall_seconds = 300"""
_CODE = """import perdure

perdure.configure(store="./state/runs.db", deliveries=5)
perdure.configure(deliveries=None)                            # takes a choice back"""
_OTHER = """Beside these, perdure looks at `NO_COLOR` and `TERM` (no colour where the first is set or the second
is `dumb`), at `COLUMNS`, and at the variables by which coding agents say that they are the ones who type
(`AI_AGENT`, `CLAUDECODE` and the like): then output is plain and nothing is asked."""


def page() -> str:
    """The whole page."""
    rows = [
        (
            f"`{field.name}`",
            f"`{ENVIRONMENT_PREFIX}{field.name.upper()}`",
            _kind(field),
            _default(field),
            described(field),
        )
        for field in msgspec.structs.fields(Settings)
    ]
    parts = opened("Settings", _INTRO, table(("setting", "variable", "type", "default", "meaning"), rows))
    parts += [
        "In `pyproject.toml`:",
        block(_EXAMPLE, "toml"),
        "In code, for this process:",
        block(_CODE, "python"),
        _OTHER,
    ]
    return joined(parts)


def _kind(field: msgspec.structs.FieldInfo) -> str:
    return worded(field.type)


def _default(field: msgspec.structs.FieldInfo) -> str:
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
