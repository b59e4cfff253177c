"""Where settings come from: a call to `configure`, the environment, `[tool.perdure]` in pyproject.toml, the defaults.

The first of these that names a setting decides. An unknown name or an unusable value is an error, never ignored.
"""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from perdure.errors import InvalidSettings
from perdure.records import Durability

ENVIRONMENT_PREFIX: Final = "PERDURE_"
_VERSION_CHARACTERS: Final = 100
_NOT_SETTINGS: Final = frozenset({"PERDURE_TEST_POSTGRES"})


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
            raise ValueError(f"version {self.version[:50]!r} must be a short word")
        if self.deliveries < 1:
            raise ValueError(f"deliveries is {self.deliveries}, at least 1 is needed")
        for name in ("cancel_grace_seconds", "away_seconds", "room_mb"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, and finite")
        if not all(0 < seconds < math.inf for seconds in (self.renew_seconds, self.open_seconds)):
            raise ValueError("renew_seconds and open_seconds must be above 0 and finite")
        for name, seconds in (("lease_seconds", self.lease_seconds), ("stall_seconds", self.stall_seconds)):
            if not self.renew_seconds < seconds < math.inf:
                raise ValueError(
                    f"{name} ({seconds:g}) must be above renew_seconds ({self.renew_seconds:g}) and finite, "
                    "or a healthy holder would be robbed between two beats"
                )


_chosen: dict[str, Any] = {}


def configure(**chosen: Any) -> None:  # noqa: ANN401 - checked against Settings
    """Choose settings in code, for this process; `None` takes a choice back."""
    merged = {**_chosen, **chosen}
    remaining = {name: value for name, value in merged.items() if value is not None}
    if "store" in remaining:
        remaining["store"] = os.fspath(remaining["store"])
    _convert(remaining, source="perdure.configure")
    _chosen.clear()
    _chosen.update(remaining)


def current_settings(directory: Path | None = None) -> Settings:
    """The settings in force for this process and directory."""
    merged = {**_from_project(directory or _working_directory()), **_from_environment(), **_chosen}
    return _convert(merged, source="the settings")


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


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise InvalidSettings(
            "The working directory of this process no longer exists.",
            safe="nothing was started.",
            hint="change to a directory that exists, and start again",
        ) from error


def _from_environment() -> dict[str, Any]:
    found = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in os.environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NOT_SETTINGS and value
    }
    _convert(found, source="the environment (PERDURE_…)")
    return found


def _from_project(directory: Path) -> dict[str, Any]:
    path = directory / "pyproject.toml"
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
        table = tomllib.loads(path.read_text()).get("tool", {}).get("perdure", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(
            f"{path} cannot be read: {error}", safe="nothing was started.", hint="mend the file, or move it away"
        ) from error
    plain = {name: value for name, value in table.items() if not isinstance(value, dict)}
    _convert(plain, source=f"[tool.perdure] in {path}")
    return plain


def _convert(values: dict[str, Any], *, source: str) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        known = ", ".join(Settings.__struct_fields__)
        raise InvalidSettings(
            f"{source}: {error}.", safe="nothing was started.", hint=f"the settings are: {known}"
        ) from error
