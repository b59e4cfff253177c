"""What holds for every test, however the tests were started."""

from __future__ import annotations

import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in its background has Ctrl-C ignored, and all they start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start thousands of processes: each would compile the package anew where nobody may keep bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
