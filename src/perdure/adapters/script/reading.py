"""What a script imports, read from its text and that of the modules beside it; nothing is executed."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def imports_of(path: str) -> set[str]:
    """The full names of what a script, and those modules of its folder that it uses, may import."""
    folder = Path(path).resolve().parent
    found: set[str] = set()
    unread, read = [Path(path)], set[Path]()
    while unread:
        file = unread.pop()
        if file in read:
            continue
        read.add(file)
        named = set(_imported(file, folder))
        found |= named
        unread += [beside for name in named for beside in _beside(folder, name)]
    return found


def uses_perdure(path: str) -> bool:
    """Whether a script says itself what its runs are."""
    return any(name.partition(".")[0] == "perdure" for name in imports_of(path))


def _imported(file: Path, folder: Path) -> Iterator[str]:
    try:
        module = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError):  # Python itself will say what is wrong with it
        return
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, file, folder)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _absolute(node: ast.ImportFrom, file: Path, folder: Path) -> str:
    if not node.level:
        return node.module or ""
    try:
        above = file.resolve().parents[node.level - 1].relative_to(folder)
    except (IndexError, ValueError):
        return ""
    return ".".join([*above.parts, *([node.module] if node.module else [])])


def _beside(folder: Path, name: str) -> Iterator[Path]:
    """The files of a module that lies in the script's folder; a package brings its own first."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:depth])
        yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())
