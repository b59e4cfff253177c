"""What a resource is and what a look at one gives; the kinds there are, each made by a function of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final, Literal

from msgspec import Struct

from perdure import codec
from perdure.errors import UsageError

IGNORED: Final = (".git", ".perdure", "__pycache__")
"""What a directory's fingerprint leaves out unless it is told otherwise."""

SIZE_LIMIT: Final = 64 * 1024 * 1024
"""How many bytes of content one snapshot keeps unless it is told otherwise."""

RECREATABLE: Final = frozenset({"file", "directory", "workdir"})
_IDENTITY_CHARACTERS: Final = 2000
_NAMES: Final = {
    "file": "file",
    "directory": "directory",
    "workdir": "working directory of the run",
    "git_branch": "branch",
    "git_commit": "commit",
    "url": "URL",
    "env": "environment variable",
    "cwd": "the working directory",
    "custom": "resource",
}

State = Literal["present", "absent", "unreachable"]


class Fingerprint(Struct, frozen=True):
    """What a look saw: whether it is there, a digest that changes when it does, and the same in words."""

    state: State = "present"
    digest: str = ""
    words: str = ""


class Resource(Struct, frozen=True):
    """A reference to something outside: plain data, so that a record can hold it and another process can look again."""

    kind: str
    identity: str
    options: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """What tells this resource from every other of a run."""
        parts = (self.options["repository"],) if "repository" in self.options else ()
        return "\0".join((self.kind, *parts, self.identity))

    @property
    def words(self) -> str:
        """The resource as a person would name it."""
        name = _NAMES.get(self.kind, self.kind)
        return f"{name} {self.identity}".rstrip()


def file(path: str | os.PathLike[str]) -> Resource:
    """A file, by its content. A relative path is relative to the directory of the process that looks."""
    return Resource("file", _path(path, "file"))


def directory(path: str | os.PathLike[str], *, ignore: Iterable[str] = IGNORED) -> Resource:
    """A directory, by the paths, modes and contents of everything in it; links are not followed.

    `ignore` holds patterns, matched against each name and against the path inside the directory.
    """
    return Resource("directory", _path(path, "directory"), {"ignore": patterns(ignore)})


def git_branch(repository: str | os.PathLike[str], branch: str) -> Resource:
    """A branch of a local repository, by the commit it points to; `refs/…` names any other reference."""
    return Resource("git_branch", _revision(branch), {"repository": _path(repository, "git_branch")})


def git_commit(repository: str | os.PathLike[str], commit: str = "HEAD") -> Resource:
    """A commit of a local repository: what is checked out now, or that one commit is still there."""
    return Resource("git_commit", _revision(commit), {"repository": _path(repository, "git_commit")})


def url(address: str, *, method: Literal["HEAD", "GET"] = "HEAD") -> Resource:
    """What an address answers: its status and its ETag, or when it was last modified, or else its body.

    It is asked with HEAD, and with GET where the server does not know HEAD or says neither ETag nor date.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(address)
        port = parts.port or 0
    except (ValueError, AttributeError, TypeError):
        raise _unusable("url", address, "an address such as https://example.com/data.csv") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port < 0 or not is_text(address):
        raise _unusable("url", address, "an address such as https://example.com/data.csv")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"resources.url: the address of {parts.hostname} holds a user name or a password.",
            safe="nothing was recorded.",
            hint="leave them out: addresses are stored; look at it with resources.custom instead",
        )
    if method not in {"HEAD", "GET"}:
        raise UsageError(f"resources.url: method={method!r}.", hint='method="HEAD" or method="GET"')
    return Resource("url", address, {"method": method})


def env(name: str) -> Resource:
    """An environment variable, by a digest of its value; the value itself is never stored."""
    if not is_text(name) or "=" in name:
        raise _unusable("env", name, "the name of a variable")
    return Resource("env", name)


def cwd() -> Resource:
    """The working directory of the process."""
    return Resource("cwd", "")


def patterns(ignore: Iterable[str]) -> list[str]:
    """The patterns of things to leave out, checked."""
    listed = None if isinstance(ignore, str) else list(ignore)
    if listed is None or not all(is_text(pattern) for pattern in listed):
        raise UsageError(f"ignore={ignore!r}.", hint='a list of patterns: ignore=("*.pyc", ".venv")')
    return listed


def _path(path: str | os.PathLike[str], kind: str) -> str:
    try:
        text = os.fspath(path)
    except TypeError:
        text = ""
    if not is_text(text):
        raise _unusable(kind, path, "a path that is text")
    return os.path.normpath(os.path.expanduser(text))  # noqa: PTH111 - pathlib would resolve nothing more


def _revision(name: str) -> str:
    """A name that git cannot take for an option, a range or an expression with effects of its own."""
    if not is_text(name) or name.startswith("-") or not name.isprintable() or any(mark in name for mark in " :?*[\\"):
        raise _unusable("git", name, "the name of a branch or a commit")
    return name


def is_text(text: object) -> bool:
    """Whether this is a text that a record and the system can both hold."""
    if not isinstance(text, str) or not 0 < len(text) <= _IDENTITY_CHARACTERS or "\0" in text:
        return False
    return text.encode("utf-8", "replace").decode() == text


def _unusable(kind: str, value: object, wanted: str) -> UsageError:
    return UsageError(
        f"resources.{kind}: {codec.describe(value)} cannot be tracked.", safe="nothing was recorded.", hint=wanted
    )
