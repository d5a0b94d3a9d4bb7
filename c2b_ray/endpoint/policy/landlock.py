"""Limits which files a job's process may access: its tenant's folder, libraries and caches; and, for a store, which
ports.

Linux's Landlock takes rights away from a process and all its children for good. An attacker who takes control of a
parser in the process can read no other tenant's files, no file of the endpoint and no credential in the runner's
environment (Landlock also keeps a process from inspecting processes outside its domain). Without Landlock in the
kernel, nothing is limited. This module knows paths and ports, not jobs. Numbers are from linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

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
    named = [environment[name] for name in _CACHES if environment.get(name)]
    return [*named, *([f"{home}/.cache"] if home else [])]


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
    known = version()
    every = (1 << _BITS.get(known, 15)) - 1
    ruleset = _ruleset(libc, struct.pack("Q", every)) if known >= 1 else -1
    if ruleset < 0:
        return False
    try:
        for path, rights in [
            *((path, _READING) for path in _there(reads)),
            *((path, every) for path in _there(writes)),
        ]:
            _allow(libc, ruleset, path, rights & every)
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
    header, held = struct.pack("Ii", _CAPABILITIES, 0), ctypes.create_string_buffer(24)
    if libc.capget(header, held) == 0:
        words = list(struct.unpack("6I", held.raw))
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
