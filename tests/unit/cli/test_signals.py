"""Ctrl-C and SIGTERM: one line of what to do next, and the exit status by which a shell knows them."""

import json
import signal
import socket
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-X", "importtime", "-m", "c2b_ray"]
ENDS = {
    signal.SIGINT: (130, "interrupted; run the same command again to resume\n"),
    signal.SIGTERM: (143, "stopped by SIGTERM; run the same command again to resume\n"),
}


def said_after(process, number, words):
    """What the process says besides its imports, from the signal that it gets once one of these names `words`."""
    for line in process.stderr:
        if words in line:
            break
    process.send_signal(number)
    rest = process.stderr.read()
    return "".join(line for line in rest.splitlines(keepends=True) if not line.startswith("import time:"))


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("during", ["typer.main", "pyarrow.lib", "c2b_ray.cli.commands"])
def test_a_signal_during_imports_ends_in_one_line(number, during):
    with subprocess.Popen(
        [*COMMAND, "models"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        said = said_after(process, number, during)
    if process.returncode != 0:  # 0 where it was done before the signal came
        assert (process.returncode, said) == ENDS[number]


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_during_code_that_runs_from_a_text_ends_as_any_other(number, tmp_path):
    work = f"import os; os.kill(os.getpid(), {int(number)})\nwhile True: pass"
    (tmp_path / "command.py").write_text(
        "import sys, types\nfrom c2b_ray.cli import main\ncommands = types.ModuleType('c2b_ray.cli.commands')\n"
        f"commands.run = lambda: exec({work!r})\nsys.modules['c2b_ray.cli.commands'] = commands\nmain()\n"
    )
    # As a module: what `python -c` runs is not killed at its end.
    command = [sys.executable, "-m", "command"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == ENDS[number]


def test_a_command_that_must_not_run_again_says_what_to_do_instead(tmp_path):
    work = "import os\nfrom c2b_ray.cli import set_next_step\nset_next_step('wait for it')\nos.kill(os.getpid(), 2)"
    work += "\nwhile True: pass"
    (tmp_path / "command.py").write_text(
        "import sys, types\nfrom c2b_ray.cli import main\ncommands = types.ModuleType('c2b_ray.cli.commands')\n"
        f"commands.run = lambda: exec({work!r})\nsys.modules['c2b_ray.cli.commands'] = commands\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-m", "command"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted; wait for it\n")


AT_ONCE = """
import threading
waiting = threading.Timer
def at_once(seconds, function, args):
    threading.Timer = waiting
    return types.SimpleNamespace(start=lambda: function(*args))
threading.Timer = at_once
"""


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("busy", ["", AT_ONCE], ids=["idle", "busy"])
def test_a_signal_in_a_callback_that_lets_no_exception_out_ends_as_any_other(number, busy, tmp_path):
    """Busy: the signal is repeated before Python has left the hook in which it drops the exception."""
    (tmp_path / "command.py").write_text(
        f"import os, sys, types, weakref\nfrom c2b_ray.cli import main\n{busy}"
        "def run():\n"
        "    one = lambda: None\n"
        f"    watched = weakref.ref(one, lambda _: os.kill(os.getpid(), {int(number)}))\n"
        "    del one\n"
        "    while True: pass\n"
        "commands = types.ModuleType('c2b_ray.cli.commands')\ncommands.run = run\n"
        "sys.modules['c2b_ray.cli.commands'] = commands\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-m", "command"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == ENDS[number]


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_during_work_ends_in_one_line(number, tmp_path):
    (tmp_path / "labels.csv").write_text("image,target_class,weather\na.jpg,bus,fog\nb.jpg,bus,clear\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        audit = {
            "task": "t",
            "classes": ["bus"],
            "classifier": f"http://127.0.0.1:{silent.getsockname()[1]}/predict",
            "images": {"source": "labelled", "table": "labels.csv"},
        }
        (tmp_path / "audit.yaml").write_text(json.dumps(audit))
        command = [
            sys.executable,
            "-m",
            "c2b_ray",
            "audit",
            str(tmp_path / "audit.yaml"),
            "--out",
            str(tmp_path / "run"),
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()  # the audit now waits for an answer
            process.send_signal(number)
            said = process.stderr.read()
            connection.close()
    assert (process.returncode, said) == ENDS[number]
