"""Named statements, read from the `.sql` files that sit beside each store."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_queries(package: str) -> dict[str, str]:
    """Every statement of the package's queries.sql, by name."""
    parts = _NAME.split((files(package) / "queries.sql").read_text(encoding="utf-8"))
    return {name: _squeezed(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def load_schema(package: str) -> list[list[str]]:
    """The numbered schema files in order, each as its statements."""
    folder = files(package) / "schema"
    numbered = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name
    )
    return [
        [_squeezed(block) for block in entry.read_text(encoding="utf-8").split("\n;\n") if _squeezed(block)]
        for entry in numbered
    ]


def _squeezed(text: str) -> str:
    kept = (line.strip() for line in text.splitlines() if not line.lstrip().startswith("--"))
    return " ".join(line for line in kept if line)
