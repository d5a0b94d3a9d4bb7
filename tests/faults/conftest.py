"""What every killed process needs."""

from __future__ import annotations

import signal

# A shell starts what it runs in the background with Ctrl-C ignored, and processes inherit that; not what is handled.
signal.signal(signal.SIGINT, signal.default_int_handler)
