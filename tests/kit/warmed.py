"""A plugin for pytest: what the campaigns of a project kill comes from the warm servers, as in all tests of the kit."""

from __future__ import annotations

from perdure.testing.crash import nursery, oracle
from tests.kit.typed import WARM

vars(nursery)["subprocess"] = vars(oracle)["subprocess"] = WARM
