"""Runs tests in two lanes beside each other: a lane runs its kinds of tests in turn, each in its own process.

    python tests/lanes.py [everyday|long|all] [--lanes 1] [--retry]

What one kind starts (a Ray cluster, Serve apps) has ended before the next kind of its lane begins. The output of a kind
is printed whole when it ends. Exit status 1 where any test failed.

`--lanes 1`: all kinds in turn. `--retry`: a kind's failed tests run once more, and the last line names the kinds with
such tests. The result of a test that kills processes can depend on the moment of the kill; one that fails twice has
found a fault.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Folders of tests that one process runs. `only`: a pytest expression of markers."""

    folders: tuple[str, ...]
    only: str = ""

    def __str__(self) -> str:
        return " ".join(self.folders) + (f" ({self.only})" if self.only else "")


# Both lanes of a suite take about equally long. One computes while the other, with Ray, waits for processes.
Lanes = tuple[tuple[Kind, ...], ...]
EVERYDAY: Lanes = (
    (Kind(("unit", "audits"), "not long"),),
    (Kind(("ray",), "not long"), Kind(("serve",)), Kind(("contract",), "not long")),
)
LONG: Lanes = (
    (Kind(("faults",)), Kind(("endpoint",)), Kind(("browser",))),
    (
        Kind(("nodes",)),
        Kind(("pods",)),
        Kind(("golden", "papers", "install")),
        Kind(("unit", "audits", "contract"), "long"),
        Kind(("ray",), "long"),
    ),
)
SUITES: dict[str, tuple[Lanes, ...]] = {
    "everyday": (EVERYDAY,),
    "long": (LONG,),
    "all": (EVERYDAY, LONG),
}
FAILED = 1
"""Pytest's exit status where tests failed."""
THREADS = max(1, (os.cpu_count() or 1) // 2)
"""Torch's threads in each lane. With more threads than processors in all, they wait for each other."""
_printing = threading.Lock()


class Tests:
    """Runs kinds of tests until it is stopped."""

    def __init__(self, retry: bool = False) -> None:
        self._retry = retry
        self.retried: list[Kind] = []
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = threading.Event()

    def run(self, kind: Kind) -> bool:
        """Runs the tests of this kind; returns whether all pass."""
        status = self._pytest(kind)
        if status == FAILED and self._retry and not self._stopped.is_set():
            self.retried.append(kind)
            status = self._pytest(kind, "--last-failed")
        return status == 0

    def _pytest(self, kind: Kind, *more: str) -> int:
        """Runs pytest in a process; returns its exit status."""
        if self._stopped.is_set():
            return FAILED
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *(f"tests/{folder}" for folder in kind.folders)]
        command += ["-m", kind.only, "--durations=12"]
        # Each kind keeps a list of failed tests of its own, as two lanes write at the same time.
        command += ["-o", f"cache_dir=.pytest_cache/{str(kind).replace(' ', '-')}", *more]
        # A process group, so that an interrupt also ends the processes that pytest started.
        process = subprocess.Popen(
            command,
            env={"OMP_NUM_THREADS": str(THREADS)} | os.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._running.add(process)
        output, _ = process.communicate()
        self._running.discard(process)
        with _printing:
            print(f"== {' '.join([str(kind), *more])}: {time.monotonic() - began:.0f} s", flush=True)
            sys.stdout.buffer.write(output)
            sys.stdout.flush()
        return process.returncode

    def run_lane(self, lane: tuple[Kind, ...]) -> bool:
        passed = [self.run(kind) for kind in lane]  # runs all kinds, also after one has failed
        return all(passed)

    def stop(self) -> None:
        self._stopped.set()
        for process in list(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suite", choices=SUITES, nargs="?", default="all")
    parser.add_argument("--lanes", type=int, choices=(1, 2), default=2)
    parser.add_argument("--retry", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began, tests, passed = time.monotonic(), Tests(options.retry), []
    for suite in SUITES[options.suite]:
        lanes = suite if options.lanes == 2 else (tuple(kind for lane in suite for kind in lane),)
        with ThreadPoolExecutor(len(lanes)) as pool:
            try:
                passed += [lane.result() for lane in [pool.submit(tests.run_lane, lane) for lane in lanes]]
            except KeyboardInterrupt:
                tests.stop()
                raise
    ended = "passed" if all(passed) else "some FAILED"
    if tests.retried:
        ended += f" ({', '.join(map(str, tests.retried))}: once more)"
    print(f"== tests of {options.suite}: {ended}, {time.monotonic() - began:.0f} s")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
