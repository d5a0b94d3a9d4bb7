"""The process of one job: `python -m c2b_ray.endpoint.work.child`. A runner starts it, and it ends with its job.

It waits for its job; with `--spare` it first imports the slow modules. It has no credentials except those in its
environment, and ends when its runner ends. Standard output carries only messages to the runner; output of libraries
goes to standard error, the runner's log.
"""

from __future__ import annotations

import importlib
import os
import secrets
import signal
import sys
import threading
import traceback
from contextlib import suppress
from typing import BinaryIO, NoReturn

from pydantic import BaseModel

from c2b_ray.endpoint.work.process import WorkLimit, WorkStopped, end_fenced
from c2b_ray.endpoint.work.protocol import Permission, Start, StopOrder, WorkEnded, line, to_child
from c2b_ray.errors import ConfigError
from c2b_ray.storage import is_remote

SPARE = "--spare"
HEAVY = (
    "c2b_ray.endpoint.kinds",
    "c2b_ray.endpoint.policy.at_start",
    "c2b_ray.audits.c2b.audit",
    "c2b_ray.audits.failures.audit",
    "c2b_ray.audits.dataset.build",
    "c2b_ray.models.timm_classifier",
    "c2b_ray.world.zoo",
    "c2b_ray.models.torch_runtime",
    "c2b_ray.models.onnx_classifier",
    "c2b_ray.models.index.faiss_index",
    "c2b_ray.engine.images",
)
"""Modules that a spare process imports; one that is not installed matters only once a job needs it."""


class RunnerConnection:
    """The connection to the runner in both directions, on duplicates of standard input and output."""

    def __init__(self) -> None:
        self._in: BinaryIO = os.fdopen(os.dup(0), "rb", buffering=0)
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
        self._reader = os.fdopen(self._in.fileno(), "rb", closefd=False)
        null_device = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null_device, 0)
        os.close(null_device)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def send(self, message: BaseModel) -> None:
        data = line(message)
        with self._lock:
            try:
                while data:
                    data = data[self._out.write(data) :]
            except BrokenPipeError:
                end_fenced()  # the runner is gone

    def receive(self) -> bytes:
        """Returns the next line; empty if the runner is gone."""
        return self._reader.readline()


def main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the runner, which decides how the job ends
    wire = RunnerConnection()
    for module in HEAVY if SPARE in sys.argv else ():
        with suppress(ImportError):
            importlib.import_module(module)
    first = wire.receive()
    if not first:
        os._exit(0)  # never needed
    start = to_child(first)
    assert isinstance(start, Start)
    _confine(start)
    limit = WorkLimit(start.until, wire.send)
    while limit.lapsed:  # on a busy machine the start took longer than the lease; the runner renewed it, or ends it
        _obey(wire.receive(), limit)
    limit.start()
    threading.Thread(target=_listen, args=(wire, limit), daemon=True, name="runner").start()
    message = _done(start, wire, limit)
    _remove_copies()
    wire.send(message)
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(0)  # a normal exit would wait for threads of libraries and of unfinished batches


def _remove_copies() -> None:
    """Removes local copies of the tenant's files: they must not outlive them on the store."""
    from c2b_ray.endpoint.policy import fetched

    with suppress(OSError):
        fetched.remove()


def _confine(start: Start) -> None:
    """Limits what this process and its children may access in the file system. Runs before any other thread starts.

    The children include Ray's daemons, workers and replicas, if the process starts its own cluster; that cluster gets
    its own token, so other jobs of the same user cannot use it. The processes of a shared cluster are not children, and
    are not confined here.
    """
    from c2b_ray.endpoint.policy import isolation
    from c2b_ray.endpoint.policy.at_start import policy_of_environment

    _keep_copies_of_tenant(start.out)
    on_cluster = "RAY_ADDRESS" in os.environ
    if not on_cluster:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(
            32
        )  # Ray's default token, in the home folder, is shared by all jobs
    besides = policy_of_environment().job_reads
    if "/" in besides:
        return
    caches = isolation.caches(os.environ)
    fetches = os.environ.get("HF_HUB_OFFLINE") != "1"
    reads = [
        *isolation.SYSTEM,
        *isolation.libraries(),
        *isolation.named(os.environ),
        *caches,
        *besides,
        *([start.placement] if start.placement else []),
        *([os.path.expanduser("~/.ray")] if on_cluster else []),  # the cluster's token, unless a variable holds it
    ]
    tenant = [] if is_remote(start.out) else [_tenant_folder(start.out)]
    writes = [*tenant, *_temporary(start.out), *isolation.DEVICES, *(caches if fetches else [])]
    if not isolation.confine(reads, writes):
        sys.stderr.write("this kernel has no Landlock: the process of a job reads what its runner's user may read\n")
    if start.strange and is_remote(start.out):
        from c2b_ray.storage import s3

        isolation.connect_only(s3.ports())  # if the kernel cannot, the runner's note says so


def _temporary(out: str) -> list[str]:
    """Returns the folders for temporary files; with a run `out` on a store, that of its files' copies, too."""
    from c2b_ray.endpoint.policy import fetched, isolation

    folders = isolation.temporary(os.environ)
    if is_remote(out):
        with suppress(ConfigError, OSError):  # whoever fetches says why it cannot be used
            folders.append(str(fetched.copies_folder()))
    return folders


def _tenant_folder(out: str) -> str:
    """Returns the folder that holds a tenant's `runs`; `out` itself where it is a run elsewhere."""
    return out.rpartition("/runs/")[0] or out


def _keep_copies_of_tenant(out: str) -> None:
    """Gives the copies of a store's files a folder that no other tenant's jobs can read."""
    from c2b_ray.endpoint.policy import fetched

    if is_remote(out):
        with suppress(ConfigError, OSError):  # whoever fetches says why it cannot be used
            fetched.use_of_tenant(_tenant_folder(out).rpartition("/")[2])


def _listen(wire: RunnerConnection, limit: WorkLimit) -> None:
    while True:
        _obey(wire.receive(), limit)


def _obey(data: bytes, limit: WorkLimit) -> None:
    """Handles a message of the runner. Empty data mean that the runner is gone, and end the process."""
    if not data:
        end_fenced()
    message = to_child(data)
    if isinstance(message, StopOrder):
        limit.order("cancelled" if message.what == "cancel" else "yielded")
    elif isinstance(message, Permission):
        limit.answer(message.number, message.granted)
    elif not isinstance(message, Start):
        limit.hold(message.until)


def _done(start: Start, wire: RunnerConnection, limit: WorkLimit) -> WorkEnded:
    """Does the job, or what is left of it, and returns how it ended."""
    from c2b_ray.endpoint.kinds import kind_named
    from c2b_ray.endpoint.policy.archives import follow_storage
    from c2b_ray.endpoint.policy.at_start import prepared
    from c2b_ray.endpoint.work.progress import ProgressReporter, problem
    from c2b_ray.storage import files

    reporter = ProgressReporter(wire.send, limit.check)
    tenant_folder = _tenant_folder(start.out)
    if start.via == "serve":
        _use_answers_of_tenant(tenant_folder)
    try:
        with files.commits_checked(limit.ask):
            config = prepared(start.kind, start.config, tenant_folder)
            follow_storage(start.out, tenant_folder)
            kind_named(start.kind).work(config, start.out, start.via, reporter, start.placement)
        joint_hash, hashes = _classifier_hashes(start.out)
        return WorkEnded(
            how="finished",
            images=reporter.images,
            present=reporter.present,
            classifier_hash=joint_hash,
            each_classifier=hashes,
        )
    except WorkStopped as stopped:
        return WorkEnded(how=stopped.how, images=reporter.images, present=reporter.present)
    except BaseException as error:
        # The stop may be hidden: closing a stage can raise another error in its place.
        if (stop := _stop_behind(error)) is not None:
            return WorkEnded(how=stop.how, images=reporter.images, present=reporter.present)
        with suppress(OSError):  # the log's disk may be full, too, and the runner has to know why
            traceback.print_exc()
        return WorkEnded(
            how="failed", images=reporter.images, present=reporter.present, problem=problem(error, tenant_folder)
        )


def _use_answers_of_tenant(tenant_folder: str) -> None:
    """Makes models that all tenants share use only the answers that they kept for this job's tenant."""
    from c2b_ray.serving.answers import OWNER

    os.environ[OWNER] = tenant_folder.rpartition("/")[2]


def _stop_behind(error: BaseException | None) -> WorkStopped | None:
    while error is not None:
        if isinstance(error, WorkStopped):
            return error
        error = error.__cause__ or error.__context__
    return None


def _classifier_hashes(out: str) -> tuple[str | None, tuple[str, ...]]:
    """Returns a hash of the revisions of a run's classifiers, None if the run names none, or is no run; and if there
    are several, the hash of each."""
    from c2b_ray.errors import C2BError
    from c2b_ray.storage.run import load_run
    from c2b_ray.tables import content_id

    try:
        models = load_run(out).manifest.get("models", {})
    except C2BError:
        return None, ()  # a dataset, or an answer
    entries = [value for name, value in models.items() if name.startswith("classifier")]
    classifiers = [entry for value in entries for entry in (value if isinstance(value, list) else [value])]
    revisions = sorted(str(entry["revision"]) for entry in classifiers if entry.get("revision"))
    if not revisions:
        return None, ()
    of_each = [content_id(entry) for entry in revisions] if len(revisions) > 1 else []
    return content_id(*revisions), tuple(of_each)


if __name__ == "__main__":
    main()
