"""Isolates a job's process: no network where its weights are a stranger's, limits, and the policy in its environment.

`isolated_command` only wraps a command; nothing is started here except a test of what the kernel allows. The runner
chooses the process's environment (`work.process`); variables that must never be there are removed here.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from c2b_ray.config.endpoint import Policy
from c2b_ray.endpoint.policy.names import url_policy
from c2b_ray.errors import ServiceError
from c2b_ray.models.url_guard import as_variable
from c2b_ray.storage import URL_POLICY

POLICY_VARIABLE = "C2B_POLICY"
"""The whole policy as JSON, for the checks in the job's process."""
LAUNCHER = str(Path(__file__).with_name("launch.py"))
NOT_CUT = (
    "uploaded weights ran with network access: this machine's kernel cannot give a process its own network (user "
    "namespaces); only the endpoint's NetworkPolicy or firewall limits them"
)
_NEVER = ("C2B_DATABASE_URL", "C2B_ENDPOINT_SECRET", "PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE")


class Command(NamedTuple):
    """A command to start. `note`: what its record should say about its isolation; empty for nothing."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    note: str


def isolated_command(
    argv: Sequence[str], environment: Mapping[str, str], network: bool, policy: Policy | None = None
) -> Command:
    """Returns the command with its isolation. Raises ServiceError if the policy requires more than this machine offers.

    `network`: whether the process may use the network; one that loads uploaded weights may not.
    """
    policy = policy or Policy()
    possible = network or can_cut_off()
    if not possible and policy.require_isolation:
        raise ServiceError(
            "uploaded weights are not run: policy.require_isolation is set, and this machine's kernel does not let a "
            "process be cut off from the network; allow user namespaces, or run them elsewhere"
        )
    limits: dict[str, int] = {"CORE": 0}  # a core dump may contain data of others
    if policy.job_memory_bytes is not None:
        limits["AS"] = policy.job_memory_bytes
    if policy.job_file_bytes is not None:
        limits["FSIZE"] = policy.job_file_bytes
    passed = {name: value for name, value in environment.items() if name not in _NEVER}
    passed[URL_POLICY] = as_variable(url_policy(policy))
    passed[POLICY_VARIABLE] = policy.model_dump_json()
    return Command(launched(argv, limits, cut=not network and possible), passed, "" if possible else NOT_CUT)


def launched(argv: Sequence[str], limits: Mapping[str, int], *, cut: bool, required: bool = True) -> tuple[str, ...]:
    """Returns `argv` with the launcher in front. `limits`: of `resource.setrlimit`, such as AS or CPU."""
    options = json.dumps({"cut": cut, "required": required, "limits": dict(limits)})
    return (sys.executable, "-I", LAUNCHER, options, "--", *argv)


@cache
def can_cut_off() -> bool:
    """Returns whether this machine's kernel can give a process its own, empty network."""
    command = launched((sys.executable, "-I", "-c", ""), {}, cut=True)
    result = subprocess.run(command, check=False, capture_output=True, timeout=60, env={})  # noqa: S603  (our own)
    return result.returncode == 0


# Limits which files a job's process may access: its tenant's folder, libraries and caches; and, for a store, which
# ports.


_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION, _PATH_BENEATH, _NO_NEW_PRIVILEGES = 1, 1, 38
_DROP_CAPABILITY, _CAPABILITIES = 24, 0x20080522
_INSPECTING = (19, 21, 38)
"""CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON."""
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE = 1, 2, 4, 8, 1 << 14
_CONNECT, _PORT, _WITH_PORTS = 2, 2, 4
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE
_READING = _EXECUTE | _READ | _LIST
_BITS = {1: 13, 2: 14}
"""The number of rights that early versions know. Later versions know 15 or more, of which the first 15 are limited."""

SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/dev",
    "/run/systemd/resolve", "/run/nvidia-persistenced",
)  # fmt: skip
DEVICES = ("/dev",)
"""May be written, too: shared memory, null, a GPU's files. Their own permissions still apply."""
_HOMES = ("HOME", "PWD", "OLDPWD")
"""Variables that name folders with much else in them."""
_CACHES = ("HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")


def libraries() -> list[str]:
    """Returns the folders of this Python and of the modules that it imports."""
    package = str(Path(__file__).resolve().parents[3])
    return [sys.prefix, sys.base_prefix, package, os.path.dirname(os.path.realpath(sys.executable)), *sys.path]


def caches(environment: Mapping[str, str]) -> list[str]:
    """Returns the folders of downloaded models."""
    home = environment.get("HOME", "")
    cache_folders = [environment[name] for name in _CACHES if environment.get(name)]
    return [*cache_folders, *([f"{home}/.cache"] if home else [])]


def named(environment: Mapping[str, str]) -> list[str]:
    """Returns files and folders that variables of a job's environment name, such as certificates and a store's
    credentials."""
    texts = [value.split(os.pathsep) for name, value in environment.items() if name not in _HOMES]
    return [path for paths in texts for path in paths if os.path.isabs(path) and os.path.realpath(path) != "/"]


def temporary(environment: Mapping[str, str]) -> list[str]:
    """Returns the folders for temporary files of this process, and for the sessions of Ray clusters that it starts or
    joins here."""
    return [tempfile.gettempdir(), environment.get("RAY_TMPDIR", "")]


def confine(reads: Collection[str], writes: Collection[str]) -> bool:
    """Limits this thread and its children for good: they read only below `reads` and `writes`, and write only below
    `writes`.

    Returns whether the kernel did it. Missing paths are left out; links are resolved now.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    abi = version()
    all_rights = (1 << _BITS.get(abi, 15)) - 1
    ruleset = _ruleset(libc, struct.pack("Q", all_rights)) if abi >= 1 else -1
    if ruleset < 0:
        return False
    try:
        for path, rights in [
            *((path, _READING) for path in _there(reads)),
            *((path, all_rights) for path in _there(writes)),
        ]:
            _allow(libc, ruleset, path, rights & all_rights)
        _drop_inspection_rights(libc)
        return _restricted(libc, ruleset)
    finally:
        os.close(ruleset)


def version() -> int:
    """Returns the version of the kernel's Landlock; below 1 if it has none."""
    return int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION))


def knows_ports() -> bool:
    return version() >= _WITH_PORTS


def connect_only(ports: Collection[int]) -> bool:
    """Limits TCP connections of this thread and its children to these ports, on any host; UDP is not limited.

    Returns whether the kernel did it, which needs Linux 6.7.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = _ruleset(libc, struct.pack("QQ", 0, _CONNECT)) if knows_ports() else -1
    if ruleset < 0:
        return False
    try:
        for port in ports:
            libc.syscall(_ADD, ruleset, _PORT, struct.pack("QQ", _CONNECT, port), 0)
        return _restricted(libc, ruleset)
    finally:
        os.close(ruleset)


def _ruleset(libc: ctypes.CDLL, handled: bytes) -> int:
    return int(libc.syscall(_CREATE, handled, ctypes.c_size_t(len(handled)), 0))


def _restricted(libc: ctypes.CDLL, ruleset: int) -> bool:
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return bool(libc.syscall(_RESTRICT, ruleset, 0) == 0)


def _drop_inspection_rights(libc: ctypes.CDLL) -> None:
    """Drops root's rights to inspect other processes, which bypass Landlock. Other users do not have them."""
    for capability in _INSPECTING:
        libc.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    header, capabilities = struct.pack("Ii", _CAPABILITIES, 0), ctypes.create_string_buffer(24)
    if libc.capget(header, capabilities) == 0:
        words = list(struct.unpack("6I", capabilities.raw))
        for capability in _INSPECTING:
            half, bit = divmod(capability, 32)
            for kind in range(3):  # effective, permitted, inheritable
                words[3 * half + kind] &= ~(1 << bit)
        libc.capset(header, struct.pack("6I", *words))


def _there(paths: Iterable[str]) -> list[str]:
    real = (os.path.realpath(path) for path in paths if path)
    return [path for path in dict.fromkeys(real) if os.path.exists(path)]


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    with suppress(OSError):  # it is gone by now or cannot be opened, so it cannot be read either
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(opened).st_mode):
                rights &= _OF_FILES
            libc.syscall(_ADD, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, opened), 0)
        finally:
            os.close(opened)
