"""Files that a run leaves behind, as far as somebody names them: read after its end, and compared."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure.errors import UsageError
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OWN: Final = ".perdure"
"""The store lies in the same folder, and is no file of the run's own."""

_COMPILED: Final = "__pycache__"
_HEAD_BYTES: Final = 1 << 16
_SHOWN: Final = 60


class Content(Struct, frozen=True):
    """What one file holds; the whole of it by its digest, its beginning to show a difference."""

    size_bytes: int
    digest: str
    head: bytes

    def differs(self, found: Content) -> str:
        """Where another content is not this one, in words; empty where it is."""
        if found.digest == self.digest:
            return ""
        mine, theirs = self.head.splitlines(), found.head.splitlines()
        for number, (one, other) in enumerate(zip(mine, theirs, strict=False), 1):
            if one != other:
                return f"line {number} is {_line(other)} instead of {_line(one)}"
        if len(mine) != len(theirs):
            return f"it has {len(theirs):,} lines instead of {len(mine):,}"
        return f"it has {found.size_bytes:,} bytes instead of {self.size_bytes:,}"


Contents = dict[str, Content]
"""Every file by its path in the folder of the run."""


def read_contents(folder: Path, paths: Iterable[str]) -> Contents:
    """What the files and folders hold now that are to be compared; one that is not there holds nothing."""
    found: Contents = {}
    for path in paths:
        for file in _files(folder / path):
            name = file.relative_to(folder).as_posix()
            if OWN not in file.relative_to(folder).parts:
                found[name] = _content(file)
    return found


def file_stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """What changes when anything is written to a file below the folder, by its path; not that of the store."""
    found: dict[str, tuple[int, int]] = {}
    for file in _files(folder):
        parts = file.relative_to(folder).parts
        with contextlib.suppress(OSError):  # gone meanwhile: somebody else's temporary file
            if not {OWN, _COMPILED} & set(parts):
                told = file.stat()
                found["/".join(parts)] = (told.st_size, told.st_mtime_ns)
    return found


def is_among(name: str, paths: Iterable[str]) -> bool:
    """Whether a file is one of these, or in one of these folders."""
    plain = [Path(path).as_posix() for path in paths]
    return any(path in (".", name) or name.startswith(f"{path}/") for path in plain)


def agreed_contents(one: Contents, other: Contents) -> tuple[Contents, tuple[str, ...]]:
    """What two uncrashed runs leave alike, and the names of what they do not."""
    alike = {name: content for name, content in one.items() if name in other and not content.differs(other[name])}
    return alike, tuple(sorted({*one, *other} - set(alike)))


def differences(wanted: Contents, found: Contents, *, varying: Sequence[str]) -> list[str]:
    """Each file that is not what it is without a kill, and how."""
    told = []
    for name in sorted({*wanted, *found} - set(varying)):
        if name not in found:
            told.append(f"{name} is not there")
        elif name not in wanted:
            told.append(f"{name} is there, and is not without a kill")
        elif difference := wanted[name].differs(found[name]):
            told.append(f"{name}: {difference}")
    return told


def refuse_elsewhere(paths: Iterable[str]) -> None:
    """Each trial runs in a folder of its own: what lies outside of it belongs to all of them at once."""
    for path in paths:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise UsageError(
                f"--compare {legible(path, 100)} is outside of the folder in which each trial runs.",
                safe="nothing was started.",
                hint="let the run write to a path without a folder before it, and name that",
            )


def refuse_missing(paths: Iterable[str], names: Iterable[str]) -> None:
    """A path that an uncrashed run leaves nothing at would always be equal."""
    known = list(names)
    for path in paths:
        if not any(is_among(name, [path]) for name in known):
            raise UsageError(
                f"--compare {legible(path, 100)}: the run leaves no such file without any kill.",
                safe="nothing was killed.",
                hint="paths are meant from the folder in which the run is started",
            )


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return [path] if path.is_file() else []


def _content(file: Path) -> Content:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        return Content(file.stat().st_size, digest, stream.read(_HEAD_BYTES))


def _line(line: bytes) -> str:
    text = line.decode(errors="replace")
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
