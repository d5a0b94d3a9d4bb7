"""Starts the process of a job: its environment, its isolation, and where its models run.

It applies the policy to processes, and knows no lease.
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
from c2b_ray.endpoint.policy.moved import with_present_paths
from c2b_ray.endpoint.work.environment import of_job
from c2b_ray.endpoint.work.process import COMMAND, JobProcess
from c2b_ray.endpoint.work.protocol import Start
from c2b_ray.errors import ServiceError
from c2b_ray.filesystems import is_remote

NEEDS_STORE = (
    "uploaded weights ran with access to their run's object store: their process can connect to the store's port only; "
    "a NetworkPolicy limits it to the store's address"
)
NEEDS_NETWORK = (
    "uploaded weights ran with network access: runs are kept on an object store, which their process writes to, and "
    "this kernel cannot limit a process to ports (Linux 6.7 can); a NetworkPolicy that allows only the store limits it"
)


@dataclass(frozen=True)
class Starting:
    """Starts processes of jobs. `folder`: their working directory. `log`: a file for their output; None for this
    process's standard error."""

    config: EndpointConfig
    folder: str
    log: IO[bytes] | None

    def process(self, *options: str, network: bool = True) -> tuple[JobProcess, str]:
        """Starts a process; returns it and a note on its isolation for the job's record, mostly empty.

        Raises ServiceError if the policy requires more isolation than this machine offers.
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
        """Returns the first message to the process, whose runner holds the job until `until`.

        Uploaded weights are loaded in that process, never in an app that other tenants' jobs use.
        """
        strange = names_uploaded_weights(job)
        via = "here" if strange else "serve" if self.config.serve else self.config.via
        if via == "serve" and not kind_named(job.kind).served:
            via = "here"
        return Start(
            kind=job.kind,
            config=with_present_paths(job.resolved, self._tenant_folder(job)),
            out=self.run_path(job),
            via=via,
            placement=self.config.placement,
            strange=strange,
            until=until,
        )

    def run_path(self, job: Job) -> str:
        return f"{self._tenant_folder(job)}/runs/{job.id}"

    def _tenant_folder(self, job: Job) -> str:
        return f"{self.config.storage_root.rstrip('/')}/tenants/{job.tenant_id}"


def names_uploaded_weights(job: Job) -> bool:
    """Returns whether a spec of the job's config names an upload, such as `onnx:upload:…`.

    Uploaded images and tables are whole values, not specs. They are treated like the tenant's other data, and may be
    used with models of a hub or a listed service.
    """
    return any("upload:" in text[1:] for text in _texts(job.config))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _texts(item)
