"""A process that was confined reads and writes what it was left, and nothing of its parent's environment."""

import json
import os
import socket
import subprocess
import sys

import pytest

from c2b_ray.config.endpoint import Policy
from c2b_ray.endpoint.policy import copies, isolation
from c2b_ray.endpoint.policy.isolation import POLICY_VARIABLE

TRIES = """
import json, os, subprocess, sys, threading
from c2b_ray.endpoint.policy import isolation as landlock
reads, writes, tries = json.loads(sys.argv[1])
held = landlock.confine([*landlock.SYSTEM, *landlock.libraries(), *reads], writes)
def outcome(what, path):
    try:
        if what == "read":
            open(path, "rb").read()
        elif what == "list":
            os.listdir(path)
        elif what == "write":
            open(path, "w").write("x")
        elif what == "rename":
            os.rename(path, path + ".moved")
        elif what == "child":
            return "ok" if subprocess.run(["/bin/cat", path], capture_output=True).returncode == 0 else "refused"
        return "ok"
    except OSError as error:
        return type(error).__name__
def work():
    print(json.dumps([held, {name: outcome(*one) for name, one in tries.items()}]))
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def outcomes(reads, writes, tries):
    arguments = [
        sys.executable,
        "-c",
        TRIES,
        json.dumps([[str(one) for one in reads], [str(one) for one in writes], tries]),
    ]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60)
    held, results = json.loads(done.stdout)
    if not held:
        pytest.skip("this kernel has no Landlock")
    return results


def test_only_what_was_left_is_read_and_only_the_run_is_written(tmp_path):
    mine, theirs, cache = tmp_path / "tenants/a", tmp_path / "tenants/b", tmp_path / "cache"
    for folder in (mine / "runs", theirs, cache):
        folder.mkdir(parents=True)
        (folder / "file").write_text("secret")
    (mine / "link").symlink_to(theirs / "file")
    results = outcomes(
        [cache, tmp_path / "not there"],
        [mine],
        {
            "own": ("read", f"{mine}/runs/file"), "written": ("write", f"{mine}/runs/new"),
            "moved": ("rename", f"{mine}/runs/file"), "cached": ("read", f"{cache}/file"),
            "poisoned": ("write", f"{cache}/file"), "theirs": ("read", f"{theirs}/file"),
            "by a link": ("read", f"{mine}/link"), "listed": ("list", str(theirs.parent)),
            "by a child": ("child", f"{theirs}/file"), "outside": ("write", f"{tmp_path}/new"),
            "runner": ("read", f"/proc/{os.getpid()}/environ"), "itself": ("read", "/proc/self/status"),
        },
    )  # fmt: skip
    allowed = {"own", "written", "moved", "cached", "itself"}
    assert {name for name, outcome in results.items() if outcome == "ok"} == allowed, results
    assert {results[name] for name in results.keys() - allowed} == {"PermissionError", "refused"}
    assert (theirs / "file").read_text() == (cache / "file").read_text() == "secret"


def test_what_the_environment_names_is_read_but_for_homes():
    environment = {
        "SSL_CERT_FILE": "/certs/ca.pem",
        "LD_LIBRARY_PATH": "/a:/b",
        "HOME": "/home/u",
        "TZ": "UTC",
        "X": "/",
    }
    assert isolation.named(environment) == ["/certs/ca.pem", "/a", "/b"]


def test_caches_are_those_that_the_environment_names():
    named = isolation.caches({"HOME": "/home/u", "HF_HOME": "/models", "OTHER": "/secret"})
    assert named == ["/models", "/home/u/.cache"]


JOB = """
import sys
from c2b_ray.endpoint.work.child import _confine
from c2b_ray.endpoint.work.protocol import Start
_confine(Start(kind="c2b", config={}, out=sys.argv[1], via=sys.argv[2], until=1e12))
open(sys.argv[1] + "/written", "w").write("x")
import numpy.fft
print(open(sys.argv[3]).read())
"""


@pytest.mark.parametrize(
    ("via", "besides", "refused"),
    [("here", [], True), ("auto", [], True), ("actors", [], True), ("serve", [], True), ("here", ["/"], False)],
)
def test_a_jobs_process_reads_no_other_tenants_files(tmp_path, via, besides, refused):
    """Wherever its models are to answer, unless the operator lets it."""
    run, theirs = tmp_path / "tenants/a/runs/job", tmp_path / "tenants/b/data/table.csv"
    for folder in (run, theirs.parent, tmp_path / "tmp"):
        folder.mkdir(parents=True)
    theirs.write_text("secret")
    policy = Policy(job_reads=besides).model_dump_json()
    environment = {**os.environ, "TMPDIR": f"{tmp_path}/tmp", POLICY_VARIABLE: policy}
    arguments = [sys.executable, "-c", JOB, str(run), via, str(theirs)]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=60, env=environment)
    if "no Landlock" in done.stderr:
        pytest.skip("this kernel has no Landlock")
    assert (run / "written").exists(), done.stderr
    assert ("secret" not in done.stdout) == refused
    assert ("PermissionError" in done.stderr) == refused


COPIES = """
import os, sys
from c2b_ray.endpoint.policy import copies
from c2b_ray.endpoint.work.child import _confine
from c2b_ray.endpoint.work.protocol import Start
_confine(Start(kind="c2b", config={}, out="s3://bucket/tenants/tenant_a/runs/job", via="here", until=1e12))
print(copies.copies_folder())
(copies.copies_folder() / "mine").write_text("x")
print(open(sys.argv[1]).read())
"""


def test_a_job_of_a_store_reads_no_copies_of_another_tenants_files(tmp_path):
    """At one runner, all jobs keep theirs below one folder, which a variable of their environment names."""
    theirs = tmp_path / "copies/tenant_b" / ("0" * 32) / "weights.onnx"
    for folder in (theirs.parent, tmp_path / "tmp"):
        folder.mkdir(parents=True)
    theirs.write_text("secret")
    environment = {**os.environ, "TMPDIR": f"{tmp_path}/tmp", copies.FOLDER: f"{tmp_path}/copies"}
    environment |= {POLICY_VARIABLE: Policy().model_dump_json()}
    arguments = [sys.executable, "-c", COPIES, str(theirs)]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=60, env=environment)
    if "no Landlock" in done.stderr:
        pytest.skip("this kernel has no Landlock")
    assert done.stdout.split() == [f"{tmp_path}/copies/tenant_a"], done.stderr
    assert "PermissionError" in done.stderr


PORTS = """
import json, socket, subprocess, sys
from c2b_ray.endpoint.policy import isolation as landlock
allowed, *others = json.loads(sys.argv[1])
CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
held = landlock.connect_only([allowed])
def outcome(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5)
        return "ok"
    except OSError as error:
        return type(error).__name__
by_child = subprocess.run([sys.executable, "-c", CONNECT, str(others[0])], capture_output=True).returncode
print(json.dumps([held, [outcome(port) for port in (allowed, *others)], by_child]))
"""


def test_what_is_held_to_the_ports_of_a_store_connects_to_no_other():
    with socket.create_server(("127.0.0.1", 0)) as store, socket.create_server(("127.0.0.1", 0)) as other:
        ports = json.dumps([one.getsockname()[1] for one in (store, other)])
        arguments = [sys.executable, "-c", PORTS, ports]
        done = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60)
    held, outcomes, by_child = json.loads(done.stdout)
    assert held is isolation.knows_ports()
    if not held:
        pytest.skip("this kernel's Landlock knows no ports")
    assert outcomes == ["ok", "PermissionError"]
    assert by_child == 1
