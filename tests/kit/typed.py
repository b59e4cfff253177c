"""`perdure` as somebody types it, but that what it kills comes from the warm servers, as in every test of the kit."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, Final

from perdure.__main__ import main
from perdure.testing.crash import nursery, oracle
from tests import warm

WARM: Final[Any] = SimpleNamespace(**{**vars(subprocess), "Popen": warm.Popen})
"""What a laboratory has for `subprocess`."""

if __name__ == "__main__":
    vars(nursery)["subprocess"] = vars(oracle)["subprocess"] = WARM
    sys.exit(main())
