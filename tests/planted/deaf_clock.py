"""No bug of perdure, but of the kit: no clock follows the one that is set."""

from __future__ import annotations

from perdure.testing.crash import skew
from tests.planted.soil import replace

replace(skew, "follow", lambda path: None)
