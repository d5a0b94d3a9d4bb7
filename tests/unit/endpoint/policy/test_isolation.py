"""What a process in its cell can reach, for real: this machine's own sockets, files beyond a limit, secrets."""

import json
import os
import socket
import subprocess
import sys

import pytest

from c2b_ray.config.endpoint import MIB, Policy
from c2b_ray.endpoint.policy import isolation
from c2b_ray.endpoint.policy.isolation import POLICY_VARIABLE, can_cut_off, isolated_command, launched
from c2b_ray.errors import ServiceError
from c2b_ray.storage import URL_POLICY

CONNECT = """
import json, os, socket, sys
def reached(port):
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
        return True
    except OSError:
        return False
with socket.socket() as server:
    server.bind(("127.0.0.1", 0)); server.listen()
    own = reached(server.getsockname()[1])
print(json.dumps([reached(int(sys.argv[1])), own, sorted(os.environ)]))
"""


def run(network, environment, policy=None):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        argv = (sys.executable, "-I", "-c", CONNECT, str(server.getsockname()[1]))
        command = isolated_command(argv, environment, network, policy)
        result = subprocess.run(command.argv, env=command.environment, capture_output=True, text=True, check=True)
    return command, *json.loads(result.stdout)


def test_a_process_without_network_reaches_itself_alone():
    if not can_cut_off():
        pytest.skip("this kernel lets no process have a network of its own")
    command, reached, own, _ = run(False, {})
    assert (reached, own, command.note) == (False, True, "")
    command, reached, own, _ = run(True, {})
    assert (reached, own, command.note) == (True, True, "")


def test_the_ledgers_secrets_stay_behind_and_the_policy_goes_along():
    given = {"PATH": os.environ["PATH"], "C2B_DATABASE_URL": "postgresql://u:p@h/d", "C2B_ENDPOINT_SECRET": "s"}
    policy = Policy(urls=["https://models.example.org"])
    command, _, _, seen = run(True, given, policy)
    assert {"PATH", URL_POLICY, POLICY_VARIABLE} <= set(seen)
    assert not {"C2B_DATABASE_URL", "C2B_ENDPOINT_SECRET"} & set(seen)
    assert Policy.model_validate_json(command.environment[POLICY_VARIABLE]) == policy


def test_where_the_kernel_refuses_it_is_said_or_nothing_runs(monkeypatch):
    monkeypatch.setattr(isolation, "can_cut_off", lambda: False)
    command, reached, _, _ = run(False, {})
    assert reached
    assert "ran with network access" in command.note
    with pytest.raises(ServiceError, match="require_isolation"):
        isolated_command(("true",), {}, False, Policy(require_isolation=True))
    assert isolated_command(("true",), {}, True, Policy(require_isolation=True)).note == ""


def test_limits_hold(tmp_path):
    write = f"open({str(tmp_path / 'large')!r}, 'wb').write(bytes({8 * MIB}))"
    command = isolated_command((sys.executable, "-I", "-c", write), {}, True, Policy(job_file_bytes=MIB))
    assert subprocess.run(command.argv, env=command.environment, capture_output=True, check=False).returncode != 0
    assert (tmp_path / "large").stat().st_size <= MIB
    allocate = launched((sys.executable, "-I", "-c", "bytes(2**30)"), {"AS": 512 * MIB}, cut=False)
    result = subprocess.run(allocate, capture_output=True, text=True, check=False)
    assert "MemoryError" in result.stderr
