"""Runs `c2b endpoint` as a process on a free port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

READY_S = 60


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def started(folder: Path, settings: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields the process and the API's URL once the API answers. `settings`: more lines of its config file, in YAML."""
    port = free_port()
    (folder / "endpoint.yaml").write_text(f"via: here\n{settings}listen: 127.0.0.1:{port}\n")
    arguments = ["endpoint", "--config", "endpoint.yaml", "--folder", "site"]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "c2b_ray", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
    )  # fmt: skip
    log.close()
    deadline = time.monotonic() + READY_S
    try:
        while True:
            assert time.monotonic() < deadline, f"not ready within {READY_S} s"
            assert process.poll() is None, (folder / "log").read_text()
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            time.sleep(0.1)
        yield process, f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
