"""`c2b`: parse, call, print.

Exit status: 0 done, 1 a gate that failed or a failure that is not the user's, 2 bad input, 130 interrupted (Ctrl-C),
143 stopped (SIGTERM); after the last two the same command resumes.
What a command answers goes to standard output, everything else to standard error.

This module imports nothing that takes time, so that a signal finds its handlers from the first moment on.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
STOPPED = 128 + signal.SIGTERM
_SAID = {
    INTERRUPTED: "interrupted; the same command goes on from here",
    STOPPED: "stopped by SIGTERM; the same command goes on from here",
}
_received: list[int] = []


class _Interrupt(KeyboardInterrupt):
    """Ctrl-C. Where KeyboardInterrupt itself leaves the text of an `exec`, as dataclasses run some while they are
    imported, Python 3.11 kills the process by the signal at its end, even if it was caught."""


def main() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # below it, gRPC logs every process that is started
    # A thread of Ray Data or Serve that asks for something after the end would start another cluster.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    before = {number: signal.signal(number, _first) for number in (signal.SIGINT, signal.SIGTERM)}
    _received.clear()
    try:
        from c2b_ray.cli.commands import run

        run()
    except BaseException as error:
        # A library may answer a signal with an exception of its own, typer makes a silent exit of it, and Ray sets a
        # handler that exits with SIGTERM's number.
        if isinstance(error, SystemExit) and error.code == signal.SIGTERM:
            _received.append(signal.SIGTERM)
        if not _received:
            raise
        _end(128 + _received[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        # What is done is done: a signal while Python closes down would only print where.
        atexit.register(_deaf)


def _first(number: int, frame: FrameType | None) -> None:
    """Ends the work as an exception does, so that what is open is closed; the next signal ends the process at once."""
    _received.append(number)
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, _second)
    if number == signal.SIGTERM:
        raise SystemExit(STOPPED)
    raise _Interrupt


def _second(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _end(status: int) -> NoReturn:
    print(_SAID[status], file=sys.stderr, flush=True)
    sys.exit(status)
