"""Executes a script as `perdure run` would, in forked processes that have loaded the script's framework already.

STAGE_FRAMEWORKS names the modules to load before the first fork; STAGE_SCRIPT and STAGE_ARGUMENTS say what to execute,
and STAGE_RUN as which run.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tomllib  # noqa: F401 - what every process of a trial would load for itself

import msgspec

from perdure.adapters.http import httpx
from perdure.adapters.script import execution
from perdure.adapters.script.order import CHILD, Order
from perdure.adapters.tools import perform, seams
from perdure.hooks import when_imported
from tests.adapters import late
from tests.crash import killer

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would look for prices where nothing can be reached
for library in ("httpx", "httpx2"):
    when_imported(library, httpx.patch)
seams.install()
for framework in os.environ.get("STAGE_FRAMEWORKS", "").split():
    importlib.import_module(framework)
late.load()


# What these tools do is done or not when their process is dead: nobody has to wait for what may still land.
perform._OPTIONS["in_flight_seconds"] = 0  # noqa: SLF001


def main() -> None:
    killer.arm()
    order = Order(run_id=os.environ["STAGE_RUN"], strict=bool(os.environ.get("STAGE_STRICT")))
    arguments = json.loads(os.environ.get("STAGE_ARGUMENTS", "[]"))
    sys.argv = [CHILD, msgspec.json.encode(order).decode(), os.environ["STAGE_SCRIPT"], *arguments]
    execution.main()
