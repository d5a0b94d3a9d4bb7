"""A plugin that vLLM loads in each of its processes, so that its engine ends with the process that started it.

It knows process ids, and nothing of models. vLLM 0.33 leaves the engine running, and its GPU taken, where its owner is
killed, as Serve kills a replica that does not answer.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

OWNER = "C2B_VLLM_OWNER"
"""The environment variable in which an owner leaves its process id for the engine; without it nothing is done."""

_PR_SET_PDEATHSIG = 1


def end_with_owner() -> None:
    """In the engine's process, asks the kernel to kill it when its owner dies. Its workers watch the engine already."""
    if sys.platform == "linux" and os.environ.get(OWNER) == str(os.getppid()):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
