"""The process that executes a script as a run: `python child.py ORDER SCRIPT ARGUMENT...`, started by `perdure run`.

The script is the main module, in the main thread, with the arguments, the standard streams and the search path that it
has without perdure; it ends as it would. What it asks of models, and what its tools do, goes into the run's journal.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file; the script's own takes its place when the script begins
    from perdure.adapters.script.execution import main

    main()
