"""Where settings come from: a call to `configure`, the environment, `[tool.perdure]` in pyproject.toml, the defaults.

The first of these that names a setting decides. An unknown name or an unusable value is an error, never ignored.
"""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from perdure import typed
from perdure.errors import InvalidSettings
from perdure.records import Durability

ENVIRONMENT_PREFIX: Final = "PERDURE_"
_VERSION_CHARACTERS: Final = 100
_NOT_SETTINGS: Final = frozenset({"PERDURE_TEST_POSTGRES", "PERDURE_CRASH_OUTSIDE"})
_TABLES: Final = ("tools", "prices")
"""Tables below `[tool.perdure]` that hold no settings."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be chosen, with the defaults."""

    store: Annotated[
        str, Meta(description="where the runs are kept: the path of an SQLite file, or postgresql://…")
    ] = "./.perdure/perdure.db"
    durability: Annotated[
        Durability,
        Meta(
            description="power: a step is synced to the device before its value is used; process: steps survive the "
            "end of the process, and a power loss may cost the last moments. Effects are always synced"
        ),
    ] = "power"
    deliveries: Annotated[
        int, Meta(description="how many processes in a row may end without a completed step before a run is parked")
    ] = 3
    renew_seconds: Annotated[float, Meta(description="how often a process says that it still holds its runs")] = 10.0
    lease_seconds: Annotated[
        float,
        Meta(
            description="after how long without such a sign a process of which nothing else is known, on another "
            "machine, loses its runs (PostgreSQL)"
        ),
    ] = 30.0
    stall_seconds: Annotated[
        float, Meta(description="after how long without such a sign another process may take its runs over")
    ] = 120.0
    open_seconds: Annotated[float, Meta(description="how long to wait for a store that another process is opening")] = (
        10.0
    )
    away_seconds: Annotated[
        float, Meta(description="how long a run waits for a server that is away before it stops (PostgreSQL)")
    ] = 120.0
    room_mb: Annotated[
        float,
        Meta(description="no run is started or claimed with less room than this left where the SQLite file is; 0: any"),
    ] = 16.0
    cancel_grace_seconds: Annotated[
        float, Meta(description="how long a step of a cancelled run may go on before the run ends without it")
    ] = 10.0
    version: Annotated[
        str, Meta(description="the version of the code in this process, to which runs can be pinned; empty for none")
    ] = ""
    pin_runs: Annotated[
        bool, Meta(description="pin every new run to the version of the process that accepts it, until it has ended")
    ] = False
    quiet: Annotated[bool, Meta(description="say nothing on standard error but errors")] = False

    def __post_init__(self) -> None:
        """Refuse what could never work."""
        if len(self.version) > _VERSION_CHARACTERS or not self.version.isprintable() or " " in self.version:
            raise Unusable(f"a short word is expected, given is {self.version[:50]!r}", "version")
        if self.deliveries < 1:
            raise Unusable(f"at least 1 is expected, given is {self.deliveries}", "deliveries")
        for name in ("cancel_grace_seconds", "away_seconds", "room_mb"):
            if not 0 <= getattr(self, name) < math.inf:
                raise Unusable(f"0 or more is expected, given is {getattr(self, name):g}", name)
        for name in ("renew_seconds", "open_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise Unusable(f"more than 0 is expected, given is {getattr(self, name):g}", name)
        for name, seconds in (("lease_seconds", self.lease_seconds), ("stall_seconds", self.stall_seconds)):
            if not self.renew_seconds < seconds < math.inf:
                raise Unusable(
                    f"more than renew_seconds ({self.renew_seconds:g}) is expected, given is {seconds:g}: "
                    "a healthy holder would be robbed between two beats",
                    name,
                    "renew_seconds",
                )


class Unusable(ValueError):
    """What is expected of a setting, and what is given; the names of it and of those that it does not fit."""

    def __init__(self, what: str, *names: str) -> None:
        super().__init__(f"{names[0]}: {what}")
        self.what = what
        self.names = names


class Given(NamedTuple):
    """What was given for a setting, and how whoever gave it wrote that."""

    value: Any
    written: str


_chosen: dict[str, Given] = {}


def configure(**chosen: Any) -> None:  # noqa: ANN401 - checked against Settings
    """Choose settings in code, for this process; `None` takes a choice back."""
    choose({name: Given(value, f"perdure.configure({name}=…)") for name, value in chosen.items()})


def chosen() -> dict[str, Any]:
    """What was chosen in code, for this process."""
    return {name: each.value for name, each in _chosen.items()}


def choose(given: dict[str, Given]) -> None:
    """Choose settings that somebody wrote elsewhere, such as on a command line."""
    merged = {**_chosen, **given}
    remaining = {name: each for name, each in merged.items() if each.value is not None}
    if "store" in remaining:
        value, written = remaining["store"]
        remaining["store"] = Given(os.fspath(value), written)
    checked = _checked(remaining)
    try:
        others = _from_outside(_working_directory())
        _read(others)
    except InvalidSettings:
        others = {}  # what is wrong with them is said when they are used
    _read(others | checked)
    _chosen.clear()
    _chosen.update(checked)


def current_settings(directory: Path | None = None) -> Settings:
    """The settings in force for this process and directory."""
    return _read(_from_outside(directory or _working_directory()) | _chosen)


def version_to_pin() -> str:
    """The version that a run which this process accepts is pinned to; empty for none."""
    settings = current_settings()
    if settings.pin_runs and not settings.version:
        raise InvalidSettings(
            "pin_runs is on, but this process has no version to pin runs to.",
            safe="nothing was started.",
            hint="set PERDURE_VERSION, or version in [tool.perdure]",
        )
    return settings.version if settings.pin_runs else ""


def project_table(name: str, directory: Path | None = None) -> tuple[dict[str, Any], str]:
    """A table of the project that holds no settings, `[tool.perdure.NAME]`, and how to speak of it."""
    path = (directory or _working_directory()) / "pyproject.toml"
    found = _tables(path).get(name, {})
    where = f"[tool.perdure.{name}] of {path}"
    if not isinstance(found, dict):
        raise InvalidSettings(f"{where} is no table.", safe="nothing was started.", hint=f"write [tool.perdure.{name}]")
    return found, where


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise InvalidSettings(
            "The working directory of this process no longer exists.",
            safe="nothing was started.",
            hint="change to a directory that exists, and start again",
        ) from error


def _from_outside(directory: Path) -> dict[str, Given]:
    return {**_from_project(directory), **_from_environment()}


def _from_environment() -> dict[str, Given]:
    found = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): Given(value, name)
        for name, value in os.environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NOT_SETTINGS and value
    }
    return _checked(found)


def _from_project(directory: Path) -> dict[str, Given]:
    path = directory / "pyproject.toml"
    known = Settings.__struct_fields__
    given = {
        name: Given(value, f"{name} in [tool.perdure] of {path}")
        for name, value in _tables(path).items()
        if name in known or name not in _TABLES
    }
    return _checked(given)


def _tables(path: Path) -> dict[str, Any]:
    """All that a project says to perdure."""
    try:
        written = path.stat()
    except OSError:
        return {}
    return _read_project(path, written.st_mtime_ns, written.st_size)


@functools.lru_cache(maxsize=8)
def _read_project(path: Path, _modified: int, _size: int) -> dict[str, Any]:
    """The table in this file, read again only when the file has changed."""
    import tomllib  # only a project with settings of its own pays for the parser

    try:
        found = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(
            f"{path} cannot be read: {error}",
            safe="nothing was started.",
            hint='mend the file, or move it away; a name with a * is written in quotes: "search_*" = "step"',
        ) from error
    for name in ("tool", "perdure"):
        found = found.get(name, {})
        if not isinstance(found, dict):
            raise InvalidSettings(
                f"{path}: {name} is no table.",
                safe="nothing was started.",
                hint="write the settings below [tool.perdure]",
            )
    return found


def _read(given: dict[str, Given]) -> Settings:
    try:
        return Settings(**{name: each.value for name, each in given.items()})
    except Unusable as error:
        first, *others = error.names
        why = "".join(f"; {name} is from {given[name].written}" for name in others if name in given)
        written = given[first].written if first in given else first
        raise InvalidSettings(
            f"{written}: {error.what}{why}.", safe="nothing was started.", hint=_default(first)
        ) from error


def _checked(given: dict[str, Given]) -> dict[str, Given]:
    """Each as the setting is, also where another source decides: what is unusable is never passed over."""
    return {name: Given(_converted(name, each), each.written) for name, each in given.items()}


def _converted(name: str, given: Given) -> Any:  # noqa: ANN401 - as the setting is
    if name not in Settings.__struct_fields__:
        raise _unknown(name, given)
    kind = _kinds()[name]
    try:
        return typed.convert(given.value, kind, strict=False)
    except msgspec.ValidationError as error:
        words = _EXPECTED.get(kind) or " or ".join(get_args(kind))
        shown = repr(given.value)
        shown = (
            shown if len(shown) <= _SHOWN_CHARACTERS and name != "store" else f"of type {type(given.value).__name__}"
        )
        raise InvalidSettings(
            f"{given.written}: {words} is expected, given is {shown}.", safe="nothing was started.", hint=_default(name)
        ) from error


def _unknown(name: str, given: Given) -> InvalidSettings:
    import difflib  # slow to load, and only needed here

    alike = difflib.get_close_matches(name, [*Settings.__struct_fields__, *_TABLES], n=1)
    written = given.written.replace(name, alike[0], 1).replace(name.upper(), alike[0].upper(), 1) if alike else ""
    known = ", ".join(Settings.__struct_fields__)
    return InvalidSettings(
        f"{given.written}: there is no such setting.",
        safe="nothing was started.",
        hint=f"{f'did you mean {written}? ' if written else ''}the settings are: {known}",
    )


def _default(name: str) -> str:
    default = {field.name: field.default for field in msgspec.structs.fields(Settings)}[name]
    return f"mend {name}, or leave it out: it is {str(default).lower() or 'empty'} then"


@functools.cache
def _kinds() -> dict[str, Any]:
    """What each setting is, without its description."""
    return get_type_hints(Settings)


_SHOWN_CHARACTERS: Final = 60
_EXPECTED: Final[dict[Any, str]] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
