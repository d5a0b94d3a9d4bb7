"""The launcher of an isolated process: leaves the network, sets limits, and then becomes the program.

Run by its path, with only Python's standard library: `python -I launch.py OPTIONS -- PROGRAM ARGUMENTS…`. OPTIONS is a
JSON object: `cut` (leave the network), `required` (exit with status 78 if that fails) and `limits` (name of an RLIMIT →
value).
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import socket
import struct
import sys

CANNOT = 78
_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_NO_NEW_PRIVILEGES, _DROP_CAPABILITY = 38, 24
_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1


def cut_off() -> bool:
    """Moves this process into its own network with only a loopback; returns whether the kernel allowed it."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_NEWUSER | _NEWNET) == 0:
        with contextlib.suppress(OSError):  # without a map its user is nobody, who may read what everyone may read
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{uid} {uid} 1")
            _write("/proc/self/gid_map", f"{gid} {gid} 1")
        is_isolated = True
    else:
        is_isolated = libc.unshare(_NEWNET) == 0
    if is_isolated:
        with contextlib.suppress(OSError):  # Ray and others connect to their own host
            _raise_loopback()
    return is_isolated


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _FLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", answer)[1]
        fcntl.ioctl(sock, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


def give_up_privileges() -> None:
    """Gives up the means to gain rights: programs that it starts get none that it lacks, and cannot create networks."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    for capability in range(64):
        libc.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)  # fails where there is none to drop


def main(argv: list[str]) -> None:
    options = json.loads(argv[0])
    program = argv[argv.index("--") + 1 :]
    if options["cut"] and not cut_off() and options["required"]:
        sys.stderr.write("the kernel does not let this process be cut off from the network\n")
        sys.exit(CANNOT)
    if options["cut"]:
        give_up_privileges()
    for name, value in options["limits"].items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard_limit = resource.getrlimit(number)[1]
        value = value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit)
        resource.setrlimit(number, (value, value))
    os.execvpe(program[0], program, os.environ)  # noqa: S606  (what it is for)


if __name__ == "__main__":
    main(sys.argv[1:])
