"""The `c2b` process ends with the command's exit status, whatever would happen while Python shuts down."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

START = """
import atexit, os, sys, types
from c2b_ray.cli import command

class Late:
    def __del__(self, abort=os.abort):  # as a thread of a library that calls Python too late
        abort()

def run():
    global late
    late = Late()
    atexit.register(print, "cleaned up")
    print("a result", end="")
    {end}

commands = types.ModuleType("c2b_ray.cli.commands")
commands.run = run
sys.modules["c2b_ray.cli.commands"] = commands
command()
"""


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("return", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(0)", 0, ""),
        ("raise SystemExit(2)", 2, ""),
        ("raise SystemExit('no such run')", 1, "no such run\n"),
        ("raise RuntimeError('broken')", 1, "RuntimeError: broken\n"),
    ],
)
def test_the_status_is_the_commands_whatever_happens_at_the_end(end, status, said):
    done = subprocess.run(
        [sys.executable, "-c", START.format(end=end)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status
    assert done.stdout == "a resultcleaned up\n"
    assert done.stderr.endswith(said)


def test_output_that_nobody_reads_is_no_success():
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-c", START.format(end="return")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=buffered) as process:
        process.stdout.close()
        assert process.wait(60) == 141  # as a program that SIGPIPE ends
