"""Isolates a job's process: no network where its weights are a stranger's, limits, and the policy in its environment.

`isolated_command` only wraps a command; nothing is started here except a test of what the kernel allows. The runner
chooses the process's environment (`work.environment`); variables that must never be there are removed here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from c2b_ray.config.policy import Policy
from c2b_ray.endpoint.policy.schemes import url_policy
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
