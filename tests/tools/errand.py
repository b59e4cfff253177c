"""An agent that uses one tool, in a process of its own: `python -m tests.tools.errand TOOL ARGUMENTS_AS_JSON`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import perdure
from perdure import tools

RUN_ID = "errand"


@perdure.agent
def errand(tool: str, arguments: dict[str, Any]) -> str:
    """Use the tool; what it returned, as text."""
    return repr(getattr(tools, tool)(**arguments))


if __name__ == "__main__":
    Path(os.environ["ERRAND_PID"]).write_text(str(os.getpid()))
    print(perdure.run(errand, sys.argv[1], json.loads(sys.argv[2]), run_id=RUN_ID))
