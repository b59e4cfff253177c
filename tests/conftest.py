"""What holds for every test, however the tests were started."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in its background has Ctrl-C ignored, and all they start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
