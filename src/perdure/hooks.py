"""Patches that are applied when a module is imported, and cost nothing where it never is."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Patch = Callable[[ModuleType], None]

_patches: Final[dict[str, list[Patch]]] = {}


def when_imported(name: str, patch: Patch) -> None:
    """Apply a patch to a module right after it was executed; at once where it is loaded already."""
    if name in sys.modules:
        patch(importlib.import_module(name))  # whole, even where another thread is importing it right now
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _patches.setdefault(name, []).append(patch)


def catch_up() -> None:
    """Patch what was imported past us, by a finder that somebody has put in front of ours."""
    for name in list(_patches):
        module = loaded(name)
        if module is not None:
            for patch in _patches.pop(name, ()):
                patch(module)


def loaded(name: str) -> ModuleType | None:
    """The module, unless it was not imported yet, or not to its end."""
    module = sys.modules.get(name)
    return None if module is None or getattr(module.__spec__, "_initializing", False) else module


class _Finder:
    """Finds nothing itself: it has the others look, and stands behind what they found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _patches:
            return None
        patches = _patches.pop(name)  # first, because looking for it asks us again
        found = _found_by_others(self, name, path, target)
        if found is None or found.loader is None:
            _patches[name] = patches
            return None
        found.loader = cast("Any", _Loader(found.loader, patches))
        return found


class _Loader:
    """The loader of a module that is patched; once that is done the module has its own again."""

    def __init__(self, loader: Loader, patches: list[Patch]) -> None:
        self._loader = loader
        self._patches = patches

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for patch in self._patches:
            patch(module)


def _found_by_others(
    own: _Finder, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is not own and (found := finder.find_spec(name, path, target)) is not None:
            return found
    return None
