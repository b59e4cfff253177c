"""The parts of the store that few processes need, each loaded when it is first asked for: starting an agent is felt."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from perdure.store.sqlite import check, moving, prune, repair, whole

__all__ = ["check", "moving", "prune", "repair", "whole"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"{name} is not a part of the store that is loaded late")
    module = globals()[name] = import_module(f"perdure.store.sqlite.{name}")
    return module
