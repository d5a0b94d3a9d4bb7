"""Pods without Kubernetes: processes in network, mount, process and IPC namespaces, joined by a bridge.

A pod sees this machine's files, read-only, below an overlay of its own. The folders that its manifest mounts are its
own and empty at first, so no two pods share a disk. It runs as the user 1000 without capabilities and cannot gain any.
Killing a pod kills all its processes at once. This module knows namespaces, and nothing of Ray or c2b-ray. It does not
simulate cgroups (no limit is enforced), seccomp, DNS (names are in /etc/hosts) and network policies.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

USER = 1000
NEEDED = (Path(__file__).parents[2], Path(sys.prefix), Path(sys.base_prefix))
"""Files that every pod needs, as its container's image holds them."""
CLONE_NEWNET = 0x40000000
SUBNET = "10.201.77"
TOOLS = ("ip", "unshare", "nsenter", "setpriv", "mount", "wget")
RESOLVER = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
"""A resolver that does not answer, so that a lookup fails at once; known names are in /etc/hosts."""
AS_USER = f"setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"


@dataclass(frozen=True)
class Container:
    """The first command of a pod, and the files that it sees.

    `empty`: empty folders of its own; `files`: contents by path, read-only; `volumes`: folders of this machine, which
    outlive the pod, by their path in the pod.
    """

    command: str
    environment: Mapping[str, str]
    empty: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, Path] = field(default_factory=dict)


def refusal() -> str:
    """Returns the reason why this process cannot create pods; empty where it can."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"there is no {', '.join(missing)}"
    if os.geteuid() != 0:
        return "that takes root"
    with tempfile.TemporaryDirectory(prefix="c2b-pod-", dir="/tmp") as folder:
        inside = f"{_overlay(Path(folder))}; ip link add br0 type bridge; ip link add v0 type veth peer name v1"
        command = ["unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "sh", "-c", inside]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() or "unshare failed" if done.returncode else ""


def _overlay(folder: Path) -> str:
    quoted = shlex.quote(str(folder))
    root = "mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root"
    return f"set -e; mount -t tmpfs none {quoted}; cd {quoted}; mkdir upper work root; {root}"


@dataclass
class Pod:
    """A running pod."""

    name: str
    address: str
    popen: subprocess.Popen[bytes]
    log: Path
    environment: Mapping[str, str]

    def alive(self) -> bool:
        return self.popen.poll() is None

    def first_process(self) -> int:
        """Returns the id on this machine of the pod's process 1."""
        children = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children")
        while not (forked := children.read_text().split()):
            if not self.alive():
                raise ProcessLookupError(f"{self.name} has ended")
            time.sleep(0.01)
        return int(forked[0])

    def ready(self) -> bool:
        """Tells whether process 1 is the container's command; before, it is the program that makes the mounts."""
        with suppress(OSError):
            status = Path(f"/proc/{self.first_process()}/status").read_text()
            return f"\nUid:\t{USER}\t" in status
        return False

    def command(self, command: str) -> list[str]:
        """Returns a command that runs another command inside this pod, as its user."""
        inner = f"cd /home/c2b 2>/dev/null; exec {AS_USER} bash -c {shlex.quote(command)}"
        return ["nsenter", "--target", str(self.first_process()), "--all", "--root", "--wd", "sh", "-c", inner]

    def run(self, command: str, timeout: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(command), env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    def start(self, container: Container) -> subprocess.Popen[bytes]:
        """Starts another container in the pod, with a command and environment of its own; it dies with the pod."""
        with open(self.log, "ab") as said:
            return subprocess.Popen(
                self.command(container.command), env=container.environment, stdout=said, stderr=said
            )

    def kill(self) -> None:
        """Sends SIGKILL to all of its processes at once."""
        with suppress(ProcessLookupError, IndexError, FileNotFoundError):
            os.kill(self.first_process(), signal.SIGKILL)  # the kernel ends a namespace with its process 1
        self.popen.kill()
        self.popen.wait()


class Pods:
    """Pods on one bridge, with addresses of the test's subnet; a name keeps its address when its pod comes back."""

    def __init__(self, folder: Path, names: Mapping[str, str]) -> None:
        """`names`: further names of pods, such as those of Services: name → pod."""
        self.folder = folder
        self._started = 0
        self.pods: dict[str, Pod] = {}
        self._services = dict(names)
        self._addresses: dict[str, str] = {}
        self._mark = f"c2b{os.getpid() % 10**6}"
        self.gateway = f"{SUBNET}.1"
        # The bridge has a network namespace of its own, since this machine may filter traffic on its own bridges.
        _ip("netns", "add", self._mark)
        self._in_network("link", "add", "br0", "type", "bridge")
        self._in_network("addr", "add", f"{self.gateway}/24", "dev", "br0")
        for link in ("lo", "br0"):
            self._in_network("link", "set", link, "up")

    def _in_network(self, *arguments: str) -> None:
        _ip("-n", self._mark, *arguments)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Gives the calling thread, and processes that it starts, the gateway's address while the block runs."""
        with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{self._mark}") as inside:
            _setns(inside.fileno())
            try:
                yield
            finally:
                _setns(before.fileno())

    def address(self, name: str) -> str:
        return self._addresses.setdefault(name, f"{SUBNET}.{len(self._addresses) + 2}")

    def start(self, name: str, container: Container) -> Pod:
        address, network = self.address(name), f"{self._mark}-{name}"
        self._join(address, network)
        home = self.folder / name
        home.mkdir(exist_ok=True)
        script = home / "start.sh"
        script.write_text(self._script(home, container))
        log = home / "log"
        command = ["ip", "netns", "exec", network, "unshare", "--mount", "--pid", "--ipc", "--uts", "--fork"]
        command += ["--kill-child", "--propagation", "private", "sh", str(script)]
        with open(log, "ab") as said:
            popen = subprocess.Popen(command, env=container.environment, stdout=said, stderr=said)
        self.pods[name] = pod = Pod(name, address, popen, log, dict(container.environment))
        return pod

    def _join(self, address: str, network: str) -> None:
        """Joins a network namespace to the bridge by one interface. Ray reads the machine's address from its unused
        route."""
        subprocess.run(["ip", "netns", "del", network], capture_output=True, check=False)
        _ip("netns", "add", network)
        outer = f"v{address.rpartition('.')[2]}"
        subprocess.run(["ip", "-n", self._mark, "link", "del", outer], capture_output=True, check=False)
        self._in_network("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", network)
        self._in_network("link", "set", outer, "master", "br0", "up")
        for arguments in (
            ("addr", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", self.gateway),
        ):
            _ip("-n", network, *arguments)

    def _script(self, home: Path, container: Container) -> str:
        files = home / "files"
        shutil.rmtree(files, ignore_errors=True)
        self._started += 1
        host = f"{home.name}-{self._started}"  # unique, also where a pod replaces another one
        lines = [f"hostname {host}", _overlay_at(home), "cd root", "mount -t proc proc proc", "mount --rbind /dev dev"]
        lines.append("chmod 755 root")  # Python itself may be there; only the pod's overlay changes
        hosts = {"localhost": "127.0.0.1", host: self.address(home.name), **self._addresses}
        hosts |= {name: self.address(pod) for name, pod in self._services.items()}
        for path, text in {**container.files, "/etc/hosts": _lines(hosts), "/etc/resolv.conf": RESOLVER}.items():
            source = files / path.lstrip("/")
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            target = shlex.quote(path.lstrip("/"))
            lines += [f"mkdir -p $(dirname {target})", f"cp {shlex.quote(str(source))} {target}", f"chmod 644 {target}"]
        for path, source in container.volumes.items():
            os.chown(source, USER, USER)
            lines += [f"mkdir -p .{path}", f"mount --bind {shlex.quote(str(source))} .{path}"]
        for path in sorted(container.empty):
            lines += [f"mkdir -p .{path}", f"mount -t tmpfs -o mode=1777 none .{path}"]
        for number, path in enumerate(_hidden(container)):
            lines += _shown(path, f"../needed-{number}")
        lines += [
            "mount -o remount,ro .",
            f"exec {shutil.which('chroot')} . {AS_USER} bash -c {shlex.quote(container.command)}",
        ]
        return "\n".join(lines) + "\n"

    def kill(self, name: str) -> None:
        self.pods.pop(name).kill()

    def close(self) -> None:
        for name in list(self.pods):
            self.kill(name)
        for network in [*(f"{self._mark}-{name}" for name in self._addresses), self._mark]:
            subprocess.run(["ip", "netns", "del", network], capture_output=True, check=False)

    def logs(self) -> str:
        """Returns the last lines of each pod's output, for the message of a failing test."""
        said = {file.parent.name: file.read_text(errors="replace")[-1500:] for file in self.folder.glob("*/log")}
        return "\n".join(f"== {name}\n{text}" for name, text in said.items())


def _overlay_at(home: Path) -> str:
    work = home / "overlay"
    work.mkdir(exist_ok=True)
    return _overlay(work)


def _hidden(container: Container) -> list[Path]:
    """Returns needed files that an overlay of `/` lacks: those on another file system, or below an empty folder."""
    empty = [Path(path) for path in container.empty]
    paths = list(dict.fromkeys(path for path in NEEDED if not any(other in path.parents for other in NEEDED)))
    return [
        path
        for path in paths
        if path.stat().st_dev != os.stat("/").st_dev or any(path.is_relative_to(one) for one in empty)
    ]


def _shown(path: Path, layer: str) -> list[str]:
    """Shows a folder of this machine, read-only, independent of its permissions here."""
    lower, target = shlex.quote(str(path)), shlex.quote(f".{path}")
    return [
        f"mkdir -p {target} {layer}/upper {layer}/work",
        f"mount -t overlay overlay -o lowerdir={lower},upperdir={layer}/upper,workdir={layer}/work {target}",
        f"chmod 755 {target}; mount -o remount,ro {target}",
    ]


def _lines(hosts: Mapping[str, str]) -> str:
    return "".join(f"{address} {name}\n" for name, address in hosts.items())


def _setns(descriptor: int) -> None:
    """Moves the calling thread into a network namespace (os.setns exists from Python 3.12 on)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {shlex.join(arguments)}: {done.stderr.strip()}")


def await_success(pod: Pod, command: str, patience_s: float) -> None:
    """Waits until a command, such as a readiness probe, succeeds inside the pod."""
    deadline = time.monotonic() + patience_s
    while True:
        assert pod.alive(), f"{pod.name} has ended: {pod.log.read_text(errors='replace')[-3000:]}"
        said = "its files are not mounted"
        if pod.ready():
            done = pod.run(command, patience_s)
            if done.returncode == 0:
                return
            said = done.stdout + done.stderr
        assert time.monotonic() < deadline, f"{pod.name}: {command}: {said} {pod.log.read_text()[-3000:]}"
        time.sleep(0.5)


@contextmanager
def pods(folder: Path, names: Mapping[str, str]) -> Iterator[Pods]:
    """Yields pods and their network; removes all of them afterwards."""
    made = Pods(folder, names)
    try:
        yield made
    finally:
        made.close()
