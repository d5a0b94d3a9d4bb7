"""A job's process, as its runner handles it: its environment and isolation, its messages, its CPU time, and its end.

Of the runner's environment it lists what may pass, so a secret with a new name does not: the variables that libraries
need, and no credentials except its store's.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from pydantic import BaseModel

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.kinds import kind_named
from c2b_ray.endpoint.ledger import jobs, running
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.tables import Claim, Job
from c2b_ray.endpoint.policy import copies
from c2b_ray.endpoint.policy.configs import names_uploaded_weights
from c2b_ray.endpoint.policy.isolation import isolated_command, knows_ports
from c2b_ray.endpoint.policy.names import with_present_paths
from c2b_ray.endpoint.work.protocol import (
    LONGEST_LINE,
    MayCommit,
    ProtocolError,
    Start,
    StepReport,
    WorkEnded,
    from_child,
    line,
)
from c2b_ray.errors import C2BError, ServiceError
from c2b_ray.storage import ENVIRONMENT, is_remote
from c2b_ray.storage.run import load_run

EXACT = frozenset(
    {
        "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
        "LD_PRELOAD", "XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR",
        "MALLOC_ARENA_MAX", "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
        "RAY_worker_niceness", "RAY_USAGE_STATS_ENABLED", "RAY_TMPDIR",
    }
)  # fmt: skip
BEGINNINGS = ("CUDA_", "NVIDIA_", "OPENBLAS_", "NVPL_")
CLUSTER = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""Variables that pass only if jobs use a shared cluster, which may need a token."""


def environment_of_job(
    environment: Mapping[str, str], storage: str, cluster: str | None = None, keys: Collection[str] = ()
) -> dict[str, str]:
    """Returns the variables for a job's process.

    `storage`: where runs are. `cluster`: the address of the cluster whose apps jobs use. `keys`: further variables that
    the operator allows, such as those of listed services.
    """
    passes = {name for name in environment if name in EXACT or name.startswith(BEGINNINGS)}
    passes |= set(keys)
    if is_remote(storage):
        passes |= {name for name in environment if name in ENVIRONMENT}
    if cluster is not None:
        passes |= set(CLUSTER)
    variables = {name: environment[name] for name in sorted(passes) if name in environment}
    if cluster is not None:
        # Somebody deployed the apps there: a job uses them, and neither starts nor ends any.
        variables |= {"RAY_ADDRESS": cluster, "C2B_SERVE_APPS": "declared"}
    return variables


STAYS = "its run is on an object store, where runs cannot be moved: the work is done again"


def inherit(db: Database, claim: Claim, run_path: str) -> Claim:
    """Moves the earlier run of the same job to `run_path`, if there is one and the job has no run yet: that of a job
    that was cancelled, or failed by a temporary problem, and was submitted again.

    Returns the claim with the job as it is then. If the runner dies half way, the next one continues from there. Raises
    FencedError if the job is no longer held.
    """
    job = claim.job
    earlier_path = job.run_path
    if earlier_path is None and job.slices == 0 and job.attempt == 0:
        predecessor = jobs.predecessor(db, job)
        if predecessor is None:
            return claim
        if is_remote(run_path):
            note = {"message": f"starts from the beginning, not where {predecessor[0]} ended", "reason": STAYS}
            running.report(db, job.id, claim.fence, jobs.NOTE, note)
            return claim
        job = jobs.take_over(db, job, predecessor) or job
        earlier_path = job.run_path
    if earlier_path is not None and not is_remote(run_path):
        # Beside this run, in the present storage: the ledger may name an earlier one, which another endpoint may use.
        earlier = Path(run_path).with_name(Path(earlier_path).name)
        if earlier.is_dir() and not os.path.exists(run_path):
            earlier.rename(run_path)
    return replace(claim, job=job)


COMMAND = (sys.executable, "-m", "c2b_ray.endpoint.work.child")
_TICKS = os.sysconf("SC_CLK_TCK")
ChildMessage = StepReport | MayCommit | WorkEnded


class JobProcess:
    """A process that waits for its job or works on it. `folder`: its working directory, which is removed with it.
    `log`: where its output goes; None: where the runner's goes."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], folder: str, log: IO[bytes] | None) -> None:
        self._process = subprocess.Popen(  # noqa: S603 — no shell, and the runner's own command
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,  # so that all it starts can be killed, and Ctrl-C does not reach it
        )
        self.pid, self._folder = self._process.pid, folder
        self._messages: queue.Queue[ChildMessage | ProtocolError | None] = queue.Queue(1000)
        self._sending = threading.Lock()
        self._usage: float | None = None
        self._most = 0.0
        threading.Thread(target=self._read, daemon=True, name=f"job process {self.pid}").start()

    def send(self, message: BaseModel) -> None:
        """Sends a message; does nothing if the process is gone."""
        assert self._process.stdin is not None
        with self._sending, contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(line(message))
            self._process.stdin.flush()

    def receive(self, seconds: float) -> ChildMessage | None:
        """Returns the next message; None if none arrives within `seconds`.

        Raises EOFError if the process is gone, ProtocolError if it sent something else.
        """
        try:
            message = self._messages.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(message, ProtocolError):
            raise message
        if message is None:
            raise EOFError
        return message

    def kill(self) -> int:
        """Kills the process and all that it started. Returns its exit status: the negative signal number if a signal
        ended it. A second call returns the same."""
        if self._process.returncode is None:
            self.send_kill()
        return self.reap()

    def reap(self, seconds: float | None = None) -> int:
        """Waits for the end of the process, kills it after `seconds`, and returns its exit status."""
        if self._process.returncode is not None:
            return int(self._process.returncode)
        timer = threading.Timer(seconds or 0.0, self.send_kill)
        if seconds is not None:
            timer.start()
        try:
            self.cpu_seconds()
            _, status, usage = os.wait4(self.pid, 0)
        finally:
            timer.cancel()
        self._usage = usage.ru_utime + usage.ru_stime
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.send_kill()  # processes that it left behind
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return int(self._process.returncode)

    def send_kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def cpu_seconds(self) -> float:
        """Returns the CPU seconds of the process and of all that it started, so far; never less than the last call."""
        self._most = max(self._most, self._usage or 0.0)
        if self._usage is None:
            self._most = max(self._most, sum(_seconds_of_session(self.pid)))
        return self._most

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            while data := stream.readline(LONGEST_LINE):
                try:
                    self._messages.put(from_child(data))
                except ProtocolError as error:
                    self._messages.put(error)
                    break
        self._messages.put(None)


def _seconds_of_session(leader: int) -> Iterator[float]:
    """Yields the CPU seconds of each process of a session, its ended children included; nothing without /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == leader:
            yield sum(int(ticks) for ticks in fields[11:15]) / _TICKS


# A process in reserve that has imported the slow modules and waits for a job.


class SpareProcess:
    """Keeps one process in reserve. `start`: starts such a process."""

    def __init__(self, start: Callable[[], JobProcess]) -> None:
        self._start = start
        self._process: JobProcess | None = None
        self._lock = threading.Lock()
        self._closed = False

    def prepare(self) -> None:
        with self._lock:
            if self._process is None and not self._closed:
                self._process = self._start()

    def take(self) -> JobProcess | None:
        """Returns the process in reserve; None if there is none. The caller decides when to `prepare` another."""
        with self._lock:
            process, self._process = self._process, None
        return process

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process = None


# Starts the process of a job: its environment, its isolation, and where its models run.


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
class ProcessStarter:
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
        environment = environment_of_job(os.environ, self.config.storage_root, self.config.serve, policy.keys)
        # Removed with the process, and with the runner's own folder where that was killed. The sessions of Ray need a
        # short path; weights of strangers use no Ray.
        environment["TMPDIR"] = folder = tempfile.mkdtemp(dir=self.folder)
        if network:
            environment.setdefault("RAY_TMPDIR", tempfile.gettempdir())
        if remote:
            environment[copies.FOLDER] = str(copies.copies_path())
        command = isolated_command((*COMMAND, *options), environment, network or remote, policy)
        reason = NEEDS_STORE if knows_ports() else NEEDS_NETWORK
        note = reason if not network and remote else command.note
        return JobProcess(command.argv, command.environment, folder, self.log), note

    def start(self, job: Job, until: float) -> Start:
        """Returns the first message to the process, whose runner holds the job until `until`.

        Uploaded weights are loaded in that process, never in an app that other tenants' jobs use.
        """
        loads_uploads = self.loads_uploaded_weights(job)
        via = "here" if loads_uploads else "serve" if self.config.serve else self.config.via
        if via == "serve" and not kind_named(job.kind).served:
            via = "here"
        return Start(
            kind=job.kind,
            config=with_present_paths(job.resolved, self._tenant_folder(job)),
            out=self.run_path(job),
            via=via,
            placement=self.config.placement,
            strange=loads_uploads,
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
