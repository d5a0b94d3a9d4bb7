"""A Ray cluster of several nodes on this machine.

Each node is a tree of processes that can be killed alone, and may lack a folder that the others share. This module
knows `ray start`, signals and mount namespaces, and nothing of c2b-ray.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

MARK = "C2B_TEST_NODE"
PATIENCE_S = 180.0
STARTS = 3
STARTED = b"Ray runtime started"
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    # With a token in the home folder, nodes demand it; a driver that connects by address does not send it.
    "RAY_AUTH_MODE": "disabled",
}
SOON = {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}
"""Settings that notice a dead node sooner; Ray's defaults take about 15 seconds."""


def processes(mark: str, name: str = "") -> list[int]:
    """Returns the processes with this mark in the environment and this name in the command line."""
    marked = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if ours and name in (folder / "cmdline").read_text(errors="replace"):
                marked.append(int(folder.name))
        except OSError:  # the process has ended
            continue
    return marked


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def refusal_of_namespaces() -> str:
    """Returns the reason why a node cannot have a mount namespace here; empty where it can."""
    if shutil.which("unshare") is None:
        return "there is no unshare"
    with tempfile.TemporaryDirectory() as folder:
        command = hiding(Path(folder), ["true"])
        done = subprocess.run(command, capture_output=True, check=False, text=True)
    return done.stderr.strip() if done.returncode else ""


def hiding(folder: Path, command: list[str]) -> list[str]:
    """Returns a command that runs this one with an empty folder there."""
    script = f"mount -t tmpfs none {shlex.quote(str(folder))} && exec {shlex.join(command)}"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


@dataclass(frozen=True)
class Hardware:
    """The resources that a node claims. `hidden`: a folder that is empty on this node."""

    cpus: float = 2
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    hidden: Path | None = None


@dataclass
class Node:
    """One raylet with its daemons and workers."""

    mark: str
    popen: subprocess.Popen[bytes]

    def processes(self, name: str = "") -> list[int]:
        return processes(self.mark, name)

    def kill(self) -> None:
        """Sends SIGKILL to all processes of the node at once, as in a power failure."""
        while left := self.processes():
            kill(left)
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(0.1)
        self.popen.wait()


def program_environment(**more: str) -> dict[str, str]:
    """Returns the environment of a Python program that a test starts, with tests/support on its import path, and
    these variables."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **more}


class Raylets:
    """The nodes of one cluster. The first is the head, to which drivers on this machine connect."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {**ENVIRONMENT, **(environment or {})}
        # Paths of Unix sockets have at most 107 bytes; pytest's folders leave too few of them.
        self.folder = tempfile.mkdtemp(prefix="c2b-", dir="/tmp")
        self.nodes: dict[str, Node] = {}
        self.address = f"127.0.0.1:{_free_port()}"

    def add_head(self, head: Hardware) -> Node:
        port = self.address.partition(":")[2]
        return self._start("head", head, ["--head", f"--port={port}", "--include-dashboard=False"])

    def add(self, name: str, hardware: Hardware) -> Node:
        return self._start(name, hardware, [f"--address={self.address}"])

    def _start(self, name: str, hardware: Hardware, role: list[str]) -> Node:
        labels = ",".join(f"{key}={value}" for key, value in {"node": name, **hardware.labels}.items())
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *role]
        command += ["--node-ip-address=127.0.0.1", f"--num-cpus={hardware.cpus:g}", f"--num-gpus={hardware.gpus}"]
        command += [f"--object-store-memory={100 * 2**20}", f"--resources={json.dumps({name: 1})}"]
        command += [f"--labels={labels}", "--min-worker-port=0", "--max-worker-port=0"]
        if hardware.hidden is not None:
            command = hiding(hardware.hidden, command)
        # One after the other, since Ray 2.60 abandons a node that takes more than 30 seconds to start.
        for _ in range(STARTS):
            self.nodes[name] = node = self._spawned(name, command)
            while node.popen.poll() is None and STARTED not in self.log(name).read_bytes():
                time.sleep(0.1)
            if node.popen.poll() is None:
                return node
            node.kill()
        raise RuntimeError(f"node {name} did not start: {self.log(name).read_text()}")

    def _spawned(self, name: str, command: list[str]) -> Node:
        mark = uuid.uuid4().hex
        environment = {**os.environ, **self._environment, MARK: mark, "RAY_TMPDIR": self.folder}
        environment.pop("RAY_ADDRESS", None)
        with open(self.log(name), "wb") as log:
            popen = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        return Node(mark, popen)

    def log(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.log"

    def kill(self, name: str) -> None:
        self.nodes.pop(name).kill()

    def close(self) -> None:
        """Ends every process of every node and removes the folder of Ray's logs and sockets."""
        for name in reversed(list(self.nodes)):
            self.kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)


def await_nodes(count: int) -> None:
    """Waits until Ray knows this many live nodes; this process must be connected to the cluster."""
    import ray

    deadline = time.monotonic() + PATIENCE_S
    while sum(node["Alive"] for node in ray.nodes()) != count:
        assert time.monotonic() < deadline, f"{count} nodes are not there after {PATIENCE_S:.0f} s: {ray.nodes()}"
        time.sleep(0.2)


def node_of_actor(folder: str, actors: int) -> str:
    """Returns the name of this actor's node once this many actors have called the function, so that no actor gets all
    the work while others start. Each leaves a file in the folder, so the successor of a dead actor does not wait."""
    import ray

    Path(folder, uuid.uuid4().hex).touch()
    deadline = time.monotonic() + PATIENCE_S
    while len(os.listdir(folder)) < actors:
        assert time.monotonic() < deadline, f"only {len(os.listdir(folder))} of {actors} actors have started"
        time.sleep(0.05)
    return str(ray.get_runtime_context().get_node_labels()["node"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def raylets(
    head: Hardware, others: Mapping[str, Hardware], environment: Mapping[str, str] | None = None
) -> Iterator[Raylets]:
    """Yields a cluster; ends all its processes afterwards."""
    cluster = Raylets(environment)
    try:
        cluster.add_head(head)
        for name, hardware in others.items():
            cluster.add(name, hardware)
        yield cluster
    finally:
        cluster.close()
