"""The process of one job: `python -m c2b_ray.endpoint.work.child`. A runner starts it, and it ends with its job.

It waits for its job; with `--spare` it first imports the slow modules. It applies the endpoint's policy again: it
checks the config and the files that it names, and downloads those of a store. It has no credentials except those in its
environment, ends its work when its runner orders it, and ends when its runner ends or no longer holds the job.
Standard output carries only messages to the runner; output of libraries goes to standard error, the runner's log.
"""

from __future__ import annotations

import importlib
import itertools
import os
import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, BinaryIO, NoReturn

from pydantic import BaseModel, ValidationError

from c2b_ray.config.endpoint import Policy
from c2b_ray.config.named import Names
from c2b_ray.endpoint.kinds import kind_named
from c2b_ray.endpoint.ledger.database import steady_now
from c2b_ray.endpoint.policy import copies, isolation
from c2b_ray.endpoint.policy.configs import SPECS, check_contents, check_resolved, paths_of, relocated
from c2b_ray.endpoint.policy.names import STORE, Tenancy, follow_storage
from c2b_ray.endpoint.work.progress import ProgressReporter, problem
from c2b_ray.endpoint.work.protocol import Ending, MayCommit, Permission, Start, StopOrder, WorkEnded, line, to_child
from c2b_ray.errors import C2BError, ConfigError
from c2b_ray.storage import files, is_remote, s3
from c2b_ray.storage.run import MANIFEST, load_run
from c2b_ray.tables import content_id

GRACE_S = 2.0
FENCED_STATUS = 75
"""Exit status of a process that ended because it no longer holds its job."""


class WorkStopped(BaseException):
    """Ends the work like an interrupt: answers so far are written, and nothing new begins."""

    def __init__(self, how: Ending) -> None:
        super().__init__(how)
        self.how: Ending = how


class WorkLimit:
    """Knows how long this process may work, and whether it must end. `send`: sends a message to the runner."""

    def __init__(self, until: float, send: Callable[[MayCommit], None]) -> None:
        self._until = until
        self._send = send
        self._wanted: Ending | None = None
        self._raised = False
        self._started = False
        self._numbers = itertools.count()
        self._waiting: dict[int, threading.Event] = {}
        self._granted: set[int] = set()

    @property
    def lapsed(self) -> bool:
        return steady_now() >= self._until

    def start(self) -> None:
        """Starts watching. Call it in the main thread, which the process interrupts by a signal to itself."""
        signal.signal(signal.SIGUSR1, self._interrupted)
        self._started = True
        threading.Thread(target=self._watch, daemon=True, name="leash").start()

    def hold(self, until: float) -> None:
        self._until = until

    def order(self, how: Ending) -> None:
        """Takes an order. A cancellation replaces a yield, but not the reverse."""
        if self._wanted is None:
            self._wanted = how
            if self._started:
                timer = threading.Timer(GRACE_S, os.kill, (os.getpid(), signal.SIGUSR1))
                timer.daemon = True
                timer.start()
        elif how == "cancelled":
            self._wanted = how

    def check(self) -> None:
        """Raises `WorkStopped` if the work must end. Called at each batch, in any thread."""
        if self._wanted is not None:
            # In another thread the exception may be kept for later; then the main thread must still be interrupted.
            self._raised = threading.current_thread() is threading.main_thread()
            raise WorkStopped(self._wanted)

    def ask(self, location: str) -> None:
        """Returns if the runner grants the commit; otherwise ends this process."""
        number, event = next(self._numbers), threading.Event()
        self._waiting[number] = event
        self._send(MayCommit(number=number))
        while not event.wait(max(0.0, self._until - steady_now())):
            if steady_now() >= self._until:
                end_fenced()
        del self._waiting[number]
        if number not in self._granted or steady_now() >= self._until:
            end_fenced()
        self._granted.discard(number)

    def answer(self, number: int, granted: bool) -> None:
        if granted:
            self._granted.add(number)
        if number in self._waiting:
            self._waiting[number].set()

    def _watch(self) -> None:
        while (remaining := self._until - steady_now()) > 0:
            time.sleep(min(remaining, 1.0))
        end_fenced()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._wanted is not None and not self._raised:
            self._raised = True
            raise WorkStopped(self._wanted)


def end_fenced() -> NoReturn:
    """Ends the process at once, so that no exception handler writes another file."""
    os._exit(FENCED_STATUS)


# What the policy asks of a config before its job begins. The policy is in the process's environment (`isolation`); the
# tenant's root is the folder that contains its runs.


_FETCHED = (Names.HIERARCHY, Names.LABEL_MAP, *(names for names in SPECS if names is not Names.INDEX))
"""Names of files that are read locally; tables, indexes and runs are read directly from stores."""


def prepared(kind: str, resolved: Mapping[str, Any], tenant_root: str) -> dict[str, Any]:
    """Returns the config that the job runs with. ConfigError names a field that by now names something the tenant may
    not use."""
    tenancy = Tenancy(tenant_root, policy_of_environment())
    model = kind_named(kind).config_class
    check_resolved(resolved, model, tenancy)
    named_paths = paths_of(resolved, model, tenancy)
    for names, _, path in named_paths:
        if names is Names.RUN:
            follow_storage(path, tenant_root)
        if names is Names.RUN and kind == "question" and not tenancy.is_local:
            copies.fetch_copies_of(files.read_bytes(f"{path}/{MANIFEST}").decode(), tenant_root)
    check_contents(named_paths, resolved, tenancy)
    if tenancy.is_local and not any(path.startswith(STORE) for _, _, path in named_paths):
        return dict(resolved)
    return relocated(resolved, model, tenancy, _fetched)


def policy_of_environment() -> Policy:
    """Returns the endpoint's policy; in a process started without one, the default, which allows no URL and no
    store."""
    text = os.environ.get(isolation.POLICY_VARIABLE)
    try:
        return Policy() if text is None else Policy.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(
            "", f"{isolation.POLICY_VARIABLE} is not a valid policy: {error.errors()[0]['msg']}"
        ) from error


def _fetched(names: Names, path: str) -> str:
    """Returns the path of a local copy of the file at `path`; the path itself if no copy is needed."""
    return copies.fetch_copy(path) if names in _FETCHED and path.startswith(STORE) else path


SPARE = "--spare"
HEAVY = (
    "c2b_ray.endpoint.kinds",
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
    with suppress(OSError):
        copies.remove_copies()  # they must not outlive the tenant's files on the store
    wire.send(message)
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(0)  # a normal exit would wait for threads of libraries and of unfinished batches


def _confine(start: Start) -> None:
    """Limits what this process and its children may access in the file system. Runs before any other thread starts.

    The children include Ray's daemons, workers and replicas, if the process starts its own cluster; that cluster gets
    its own token, so other jobs of the same user cannot use it. The processes of a shared cluster are not children, and
    are not confined here.
    """
    if is_remote(start.out):
        with suppress(ConfigError, OSError):  # whoever fetches says why it cannot be used
            # No other tenant's jobs can read that folder.
            copies.use_folder_of_tenant(_tenant_folder(start.out).rpartition("/")[2])
    on_cluster = "RAY_ADDRESS" in os.environ
    if not on_cluster:
        # Ray's default token, in the home folder, is shared by all jobs.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
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
        isolation.connect_only(s3.ports())  # if the kernel cannot, the runner's note says so


def _temporary(out: str) -> list[str]:
    """Returns the folders for temporary files; with a run `out` on a store, that of its files' copies, too."""
    folders = isolation.temporary(os.environ)
    if is_remote(out):
        with suppress(ConfigError, OSError):  # whoever fetches says why it cannot be used
            folders.append(str(copies.copies_folder()))
    return folders


def _tenant_folder(out: str) -> str:
    """Returns the folder that holds a tenant's `runs`; `out` itself where it is a run elsewhere."""
    return out.rpartition("/runs/")[0] or out


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
    reporter = ProgressReporter(wire.send, limit.check)
    tenant_folder = _tenant_folder(start.out)
    if start.via == "serve":
        from c2b_ray.serving.answers import OWNER

        # Models that all tenants share then use only the answers that they kept for this job's tenant.
        os.environ[OWNER] = tenant_folder.rpartition("/")[2]
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


def _stop_behind(error: BaseException | None) -> WorkStopped | None:
    while error is not None:
        if isinstance(error, WorkStopped):
            return error
        error = error.__cause__ or error.__context__
    return None


def _classifier_hashes(out: str) -> tuple[str | None, tuple[str, ...]]:
    """Returns a hash of the revisions of a run's classifiers, None if the run names none, or is no run; and if there
    are several, the hash of each."""
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
