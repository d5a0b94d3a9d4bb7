"""Runs tests in two lanes beside each other: each kind in a process of its own, one after the other in its lane.

    python tests/lanes.py [everyday|long|all] [--lanes 1] [--retry]

What one kind starts (a Ray cluster, Serve apps) is gone before the next of its lane begins. The output of a kind is
printed whole when it ends. Exit status 1 where any test failed. `--lanes 1`: all kinds in turn. `--retry`: the tests of
a kind that failed run once more, and the last line names the kinds in which that was so. Tests that kill processes
depend on when they do; one that fails twice has found something.
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


# Both lanes of a suite take about as long: in the one Ray waits for its processes while the other computes.
Lanes = tuple[tuple[Kind, ...], ...]
_HERE = ("unit", "audits", "contract")
EVERYDAY: Lanes = (
    (Kind(_HERE, "not long"),),
    (Kind(("ray",), "not long"), Kind(("serve",))),
)
LONG: Lanes = (
    (Kind(("faults",)), Kind(("endpoint",)), Kind(("browser",))),
    (
        Kind(("nodes",)),
        Kind(("pods",)),
        Kind(("golden", "papers", "install")),
        Kind(_HERE, "long"),
        Kind(("ray",), "long"),
    ),
)
SUITES: dict[str, tuple[Lanes, ...]] = {
    "everyday": (EVERYDAY,),
    "long": (LONG,),
    "all": (EVERYDAY, LONG),
}
FAILED = 1
"""Pytest's exit status where some tests failed."""
THREADS = max(1, (os.cpu_count() or 1) // 2)
"""Of each lane's matrix products: with more than one a processor, torch's threads spend time waiting for each other."""
_printing = threading.Lock()


class Tests:
    """Runs kinds of tests until it is stopped."""

    def __init__(self, retry: bool = False) -> None:
        self._retry = retry
        self.retried: list[Kind] = []
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = threading.Event()

    def run(self, kind: Kind) -> bool:
        """Whether all tests of this kind pass."""
        status = self._pytest(kind)
        if status == FAILED and self._retry and not self._stopped.is_set():
            self.retried.append(kind)
            status = self._pytest(kind, "--last-failed")
        return status == 0

    def _pytest(self, kind: Kind, *more: str) -> int:
        """The exit status of one process of pytest."""
        if self._stopped.is_set():
            return FAILED
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *(f"tests/{folder}" for folder in kind.folders)]
        command += ["-m", kind.only, "--durations=12"]
        # Each kind keeps its own list of failed tests: two lanes write theirs at the same time.
        command += ["-o", f"cache_dir=.pytest_cache/{str(kind).replace(' ', '-')}", *more]
        # A group of its own, so that an interrupt ends what it started too.
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
        passed = [self.run(kind) for kind in lane]  # also those after one that failed
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
