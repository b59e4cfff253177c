"""The pages of the reference that are made from the code, so that they cannot differ from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.generate import api, cli, contracts, errors, settings

if TYPE_CHECKING:
    from collections.abc import Callable

REFERENCE: Final = Path(__file__).parents[1] / "reference"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "api.md": api.page,
    "cli.md": cli.page,
    "errors.md": errors.page,
    "json.md": contracts.page,
    "settings.md": settings.page,
}
