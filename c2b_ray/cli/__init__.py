"""`c2b`: parse, call, print.

Exit status: 0 success, 1 a failed gate or a failure that is not the user's, 2 bad input, 130 interrupted (Ctrl-C), 141
nobody reads the output any more (`| head`), 143 stopped (SIGTERM); after an interruption the same command resumes. A
command prints its result to standard output and everything else to standard error.

This module imports nothing slow, so that its signal handlers are in place from the start.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
STOPPED = 128 + signal.SIGTERM
UNREAD = 128 + signal.SIGPIPE
_CLICKS_MARK = "PacifyFlushWrapper"
"""What click replaces standard output with once nobody reads it any more."""
_MESSAGES = {INTERRUPTED: "interrupted", STOPPED: "stopped by SIGTERM"}
_RESUMES = "run the same command again to resume"
_next_step = [_RESUMES]
_received: list[int] = []


def set_next_step(text: str) -> None:
    """Sets what a signal's message says to do next, from here on, where the same command would do its work again."""
    _next_step[0] = text


class _Interrupt(KeyboardInterrupt):
    """Ctrl-C. If KeyboardInterrupt itself leaves an `exec`, which dataclasses call when they are imported, Python 3.11
    kills the process by the signal at its end, even if the exception was caught."""


def command() -> None:
    """Runs `main` as the whole of a process, and ends the process with its exit status.

    It leaves out Python's own shutdown, in which a thread of Arrow that still wants to call Python ends the process by
    SIGABRT: one `c2b gate` in twelve had the exit status 134 in place of its own.
    """
    status = 1
    _open_streams()

    def leave() -> None:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except BrokenPipeError:  # nobody reads the output any more
            os._exit(UNREAD)
        except OSError as error:
            os.write(2, f"error: the output cannot be written: {error.strerror}\n".encode())
            os._exit(2)
        os._exit(status)

    atexit.register(leave)  # the first to be registered is the last to be called
    try:
        main()
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if type(sys.stdout).__name__ == _CLICKS_MARK:  # its status 1 is that of a failed gate
            status = UNREAD
        raise


def _open_streams() -> None:
    """Opens the standard streams that the caller has closed: no file may get their numbers, or be printed into."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115


def main() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # at lower levels gRPC logs every process that starts
    # A thread of Ray Data or Serve that calls Ray after its shutdown would start another cluster.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    previous = {number: signal.signal(number, _first) for number in (signal.SIGINT, signal.SIGTERM)}
    unraisable, sys.unraisablehook = sys.unraisablehook, _unraisable
    _received.clear()
    set_next_step(_RESUMES)
    try:
        from c2b_ray.cli.commands import run

        run()
    except BaseException as error:
        # A library may turn a signal into its own exception, typer into a silent exit, and Ray installs a handler that
        # exits with SIGTERM's number.
        if isinstance(error, SystemExit) and error.code == signal.SIGTERM:
            _received.append(signal.SIGTERM)
        if not _received:
            raise
        _end(128 + _received[0])
    finally:
        sys.unraisablehook = unraisable
        for number, handler in previous.items():
            signal.signal(number, handler)
        # The work is finished: a signal while Python shuts down would only print a traceback.
        atexit.register(_deaf)


def _first(number: int, frame: FrameType | None) -> None:
    """Ends the work by an exception, so that open resources are closed; a second signal ends the process at once."""
    if _in_hook(frame):  # an exception would be dropped there once more, as on a busy machine
        _repeat(number)
        return
    _received.append(number)
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, _second)
    if number == signal.SIGTERM:
        raise SystemExit(STOPPED)
    raise _Interrupt


def _unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """Repeats a signal that arrived in a finalizer or a callback, because Python drops exceptions raised there."""
    if not _received or not isinstance(ignored.exc_value, (_Interrupt, SystemExit)):
        sys.__unraisablehook__(ignored)
        return
    number = _received.pop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, _first)
    _repeat(number)


def _repeat(number: int) -> None:
    threading.Timer(0.01, os.kill, (os.getpid(), number)).start()  # once the hook and the callback have returned


def _in_hook(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not _unraisable.__code__:
        frame = frame.f_back
    return frame is not None


def _second(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _end(status: int) -> NoReturn:
    print(f"{_MESSAGES[status]}; {_next_step[0]}", file=sys.stderr, flush=True)
    sys.exit(status)
