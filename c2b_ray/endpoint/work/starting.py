"""Starts the process of a job: its environment, its isolation, and where its models run.

It applies the policy to processes, and knows no lease.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from typing import IO

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.kinds import kind_named
from c2b_ray.endpoint.ledger.job import Job
from c2b_ray.endpoint.policy import fetched
from c2b_ray.endpoint.policy.isolation import isolated_command
from c2b_ray.endpoint.policy.landlock import knows_ports
from c2b_ray.endpoint.policy.moved import with_present_paths
from c2b_ray.endpoint.policy.specs import names_uploaded_weights
from c2b_ray.endpoint.work.environment import of_job
from c2b_ray.endpoint.work.process import COMMAND, JobProcess
from c2b_ray.endpoint.work.protocol import Start
from c2b_ray.errors import C2BError, ServiceError
from c2b_ray.filesystems import is_remote
from c2b_ray.store.run import load_run

NEEDS_STORE = (
    "uploaded weights ran with access to their run's object store: their process can connect to the store's port only; "
    "a NetworkPolicy limits it to the store's address"
)
NEEDS_NETWORK = (
    "uploaded weights ran with network access: runs are kept on an object store, which their process writes to, and "
    "this kernel cannot limit a process to ports (Linux 6.7 can); a NetworkPolicy that allows only the store limits it"
)

_UPLOADED = re.compile(r"/uploads/[0-9a-f]{64}\.(onnx|safetensors)")


@dataclass(frozen=True)
class Starting:
    """Starts processes of jobs. `folder`: where each gets a folder for its temporary files. `log`: a file for their
    output; None for this process's standard error."""

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
        # Removed with the process, and with the runner's own folder where that was killed. The sessions of Ray need a
        # short path; weights of strangers use no Ray.
        environment["TMPDIR"] = folder = tempfile.mkdtemp(dir=self.folder)
        if network:
            environment.setdefault("RAY_TMPDIR", tempfile.gettempdir())
        if remote:
            environment[fetched.FOLDER] = str(fetched.copies_path())
        command = isolated_command((*COMMAND, *options), environment, network or remote, policy)
        held = NEEDS_STORE if knows_ports() else NEEDS_NETWORK
        note = held if not network and remote else command.note
        return JobProcess(command.argv, command.environment, folder, self.log), note

    def start(self, job: Job, until: float) -> Start:
        """Returns the first message to the process, whose runner holds the job until `until`.

        Uploaded weights are loaded in that process, never in an app that other tenants' jobs use.
        """
        strange = self.loads_uploaded_weights(job)
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

    def loads_uploaded_weights(self, job: Job) -> bool:
        """Returns whether the job's process loads weights that a tenant uploaded. A question loads those of its run,
        and counts as one that does where its run cannot be read."""
        if job.kind != "question":
            return names_uploaded_weights(job.config)
        run = with_present_paths(job.resolved.get("run", ""), self._tenant_folder(job))
        try:
            return _UPLOADED.search(load_run(run).record.model_dump_json()) is not None
        except C2BError:
            return True

    def run_path(self, job: Job) -> str:
        return f"{self._tenant_folder(job)}/runs/{job.id}"

    def _tenant_folder(self, job: Job) -> str:
        return f"{self.config.storage_root.rstrip('/')}/tenants/{job.tenant_id}"
