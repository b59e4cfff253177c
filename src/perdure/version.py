"""The version of this package, said once."""

from typing import Final

VERSION: Final = "0.1.0"
