"""Frameworks are loaded by the first test that uses one: together they take longer than all tests take to collect."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazily:
    """Stands for a module that is loaded when it is first asked for something public: pytest looks for the rest."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(import_module(self._module), name)
