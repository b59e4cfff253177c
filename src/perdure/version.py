"""The version of this package, said once."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `perdure`: nothing here needs `typing` at run time
if TYPE_CHECKING:
    from typing import Final

VERSION: Final = "0.1.0"
