"""How the process of a job is started: its environment, its cell, and where its models answer.

It composes what the policy says of processes; it knows no lease.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import IO

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.ledger.job import Job
from c2b_ray.endpoint.policy.isolation import isolated_command
from c2b_ray.endpoint.work.environment import of_job
from c2b_ray.endpoint.work.process import COMMAND, JobProcess
from c2b_ray.endpoint.work.protocol import Start
from c2b_ray.errors import ServiceError
from c2b_ray.filesystems import is_remote

NEEDS_STORE = (
    "uploaded weights ran with the network within reach: runs are kept on an object store, which their process writes "
    "to; a NetworkPolicy that allows the store alone is then what holds them"
)


@dataclass(frozen=True)
class Starting:
    """`folder`: where processes are started. `log`: where they print; None for this process's standard error."""

    config: EndpointConfig
    folder: str
    log: IO[bytes] | None

    def process(self, *options: str, network: bool = True) -> tuple[JobProcess, str]:
        """The process, and what the record of its job should say of its isolation; mostly nothing.

        ServiceError where the policy wants more isolation than this machine has.
        """
        policy, remote = self.config.policy, is_remote(self.config.storage_root)
        if not network and remote and policy.require_isolation:
            raise ServiceError(
                "uploaded weights are not run: policy.require_isolation is set, and runs are on an object store, which "
                "a process without network cannot write to; keep runs on a file system"
            )
        environment = of_job(os.environ, self.config.storage_root, self.config.serve, policy.keys)
        command = isolated_command((*COMMAND, *options), environment, network or remote, policy)
        note = NEEDS_STORE if not network and remote else command.note
        return JobProcess(command.argv, command.environment, self.folder, self.log), note

    def start(self, job: Job, until: float) -> Start:
        """What the process is told, which its runner holds `until` then. Uploaded weights are loaded in that process:
        never in an app that other tenants' jobs use."""
        via = "here" if names_uploads(job) else "serve" if self.config.serve else self.config.via
        return Start(
            kind=job.kind,
            config=job.resolved,
            out=self.run_path(job),
            via=via,
            placement=self.config.placement,
            until=until,
        )

    def run_path(self, job: Job) -> str:
        return f"{self.config.storage_root.rstrip('/')}/tenants/{job.tenant_id}/runs/{job.id}"


def names_uploads(job: Job) -> bool:
    return "upload:" in json.dumps(job.config)
