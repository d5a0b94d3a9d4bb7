"""How the process of a job is started: its environment, its cell, and where its models answer.

It composes what the policy says of processes; it knows no lease.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.kinds import kind_named
from c2b_ray.endpoint.ledger.job import Job
from c2b_ray.endpoint.policy.isolation import isolated_command
from c2b_ray.endpoint.policy.landlock import knows_ports
from c2b_ray.endpoint.work.environment import of_job
from c2b_ray.endpoint.work.process import COMMAND, JobProcess
from c2b_ray.endpoint.work.protocol import Start
from c2b_ray.errors import ServiceError
from c2b_ray.filesystems import is_remote

NEEDS_STORE = (
    "uploaded weights ran with their run's object store within reach: of the network their process can connect to the "
    "store's port alone; a NetworkPolicy holds it to the store's address"
)
NEEDS_NETWORK = (
    "uploaded weights ran with the network within reach: runs are kept on an object store, which their process writes "
    "to, and this kernel holds no process to ports (Linux 6.7 can); a NetworkPolicy that allows the store alone "
    "is then what holds them"
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
        held = NEEDS_STORE if knows_ports() else NEEDS_NETWORK
        note = held if not network and remote else command.note
        return JobProcess(command.argv, command.environment, self.folder, self.log), note

    def start(self, job: Job, until: float) -> Start:
        """What the process is told, which its runner holds `until` then. Uploaded weights are loaded in that process:
        never in an app that other tenants' jobs use."""
        strange = names_uploaded_weights(job)
        via = "here" if strange else "serve" if self.config.serve else self.config.via
        if via == "serve" and not kind_named(job.kind).served:
            via = "here"
        return Start(
            kind=job.kind,
            config=job.resolved,
            out=self.run_path(job),
            via=via,
            placement=self.config.placement,
            strange=strange,
            until=until,
        )

    def run_path(self, job: Job) -> str:
        return f"{self.config.storage_root.rstrip('/')}/tenants/{job.tenant_id}/runs/{job.id}"


def names_uploaded_weights(job: Job) -> bool:
    """Whether a spec of its config names an upload, as `onnx:upload:…` does. Uploaded images and tables stand alone,
    and are read as those of the tenant's data are: beside models of a hub or of a listed service, too."""
    return any("upload:" in text[1:] for text in _texts(job.config))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _texts(item)
