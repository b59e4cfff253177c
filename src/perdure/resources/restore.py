"""Writing kept content back, without destroying what stands in its place.

What differs is moved beside it, into `NAME.perdure-NUMBER`, before anything is written. Each file is replaced in one
go. Interrupted anywhere and done again with the same number, it ends in the same state.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.resources.folder import UNFINISHED, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.bodies import Listed, Listing


class Restoration:
    """One writing back: where contents come from, and under which number other content is put aside."""

    def __init__(self, load: Callable[[str], bytes], number: int) -> None:
        self._load = load
        self._number = number
        self.aside: list[Path] = []
        """What was found in the place of something else, and is kept there now."""

    def file(self, path: Path, listing: Listing) -> None:
        """Make a file what it was; through a link, as it was read."""
        path = Path(os.path.realpath(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        (wanted,) = listing.entries
        if _holds(path, wanted):
            path.chmod(wanted.mode)
            return
        self._put_aside(path, beside(path, self._number), replaced=True)
        self._write(path, wanted)

    def absence(self, path: Path) -> None:
        """Make something not be there: it is put aside."""
        if os.path.lexists(path):
            self._put_aside(path, beside(path, self._number), replaced=False)

    def directory(self, root: Path, listing: Listing, ignore: Sequence[str]) -> None:
        """Make a directory what it was: entries that differ or are new are put aside, ignored ones stay."""
        root = Path(os.path.realpath(root))
        aside = beside(root, self._number)
        if os.path.lexists(root) and not root.is_dir():
            self._put_aside(root, aside / root.name, replaced=False)
        root.mkdir(parents=True, exist_ok=True)
        wanted = {entry.path: entry for entry in listing.entries}
        self._clear(root, aside, wanted, Scan().directory(root, ignore))
        folders = [entry for entry in listing.entries if entry.kind == "dir"]
        for entry in folders:
            folder = root / entry.path
            folder.mkdir(exist_ok=True)
            folder.chmod(entry.mode | stat.S_IRWXU)
        for entry in listing.entries:
            self._fill(root / entry.path, entry)
        for entry in reversed(folders):
            (root / entry.path).chmod(entry.mode)

    def _clear(self, root: Path, aside: Path, wanted: dict[str, Listed], found: Listing) -> None:
        """Put everything aside that is not as it was."""
        moved: tuple[str, ...] = ()
        for entry in found.entries:
            if entry.path.startswith(moved):
                continue
            expected = wanted.get(entry.path)
            if expected is not None and expected.kind == entry.kind and expected.content == entry.content:
                continue
            replaced = expected is not None and expected.kind == entry.kind == "file"
            self._put_aside(root / entry.path, aside / entry.path, replaced=replaced)
            moved = (*moved, f"{entry.path}/") if entry.kind == "dir" else moved

    def _fill(self, path: Path, entry: Listed) -> None:
        if entry.kind == "link" and not os.path.lexists(path):
            path.symlink_to(entry.content)
        elif entry.kind == "file":
            if _holds(path, entry):
                path.chmod(entry.mode)
            else:
                self._write(path, entry)

    def _write(self, path: Path, entry: Listed) -> None:
        """Write beside, then replace: nobody ever sees half a file."""
        content = self._load(entry.content)
        unfinished = path.with_name(UNFINISHED + hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16])
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as opened:  # noqa: PTH123 - a descriptor is opened
            opened.write(content)
            opened.flush()
            os.fchmod(descriptor, entry.mode)
            os.fsync(descriptor)
        unfinished.replace(path)

    def _put_aside(self, path: Path, aside: Path, *, replaced: bool) -> None:
        """Keep what is there; a file that is about to be replaced stays in its place until then."""
        if not os.path.lexists(path):
            return
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside = _free(path, aside)
        self.aside.append(aside)
        if os.path.lexists(aside):  # put there by a restoration that was interrupted
            if not replaced:
                path.unlink()
            return
        if replaced and path.is_file() and not path.is_symlink():
            with contextlib.suppress(OSError):
                os.link(path, aside)
                return
            import shutil  # file systems without hard links are rare, and the module is slow to import

            shutil.copy2(path, aside)
            return
        path.rename(aside)


def beside(path: Path, number: int) -> Path:
    """Where the restoration with this number puts what stands in the way of this path."""
    path = Path(os.path.realpath(path))
    return path.with_name(f"{path.name}.perdure-{number}")


def _holds(path: Path, entry: Listed) -> bool:
    """Whether a file has this content already."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != entry.size:
        return False
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == entry.content


def _free(path: Path, aside: Path) -> Path:
    """The first name that nothing has, or that has just this content."""
    number = 1
    candidate = aside
    while os.path.lexists(candidate) and not _is_same(path, candidate):
        number += 1
        candidate = aside.with_name(f"{aside.name}-{number}")
    return candidate


def _is_same(one: Path, other: Path) -> bool:
    if any(path.is_symlink() or not path.is_file() for path in (one, other)):
        return False
    if one.samefile(other):
        return True
    with one.open("rb") as first, other.open("rb") as second:
        return hashlib.file_digest(first, "sha256").digest() == hashlib.file_digest(second, "sha256").digest()
