"""The process of one job: `python -m c2b_ray.endpoint.work.child`, started by a runner, and gone with the job.

It waits for its job; with `--spare` it first imports what takes long. It has no credentials but what its environment
holds, and ends when its runner does. Standard output is for messages alone; what libraries
print goes to standard error, the runner's log.
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

from c2b_ray.endpoint.work.protocol import Ended, Order, Permission, Start, line, to_child
from c2b_ray.endpoint.work.stopping import Leash, Stopped, end_fenced
from c2b_ray.filesystems import is_remote

SPARE = "--spare"
HEAVY = (
    "c2b_ray.endpoint.kinds",
    "c2b_ray.endpoint.policy.at_start",
    "c2b_ray.audits.c2b.audit",
    "c2b_ray.audits.failures.audit",
    "c2b_ray.commands.dataset.build",
    "c2b_ray.models.timm_classifier",
    "c2b_ray.world.zoo",
    "c2b_ray.models.torch_runtime",
    "c2b_ray.models.onnx_classifier",
    "c2b_ray.models.index.faiss_index",
    "c2b_ray.pipelines.images",
)
"""Imported before there is a job; one that is not installed is not missed until a job needs it."""


class Wire:
    """Both directions to the runner, on file descriptors of their own."""

    def __init__(self) -> None:
        self._in: BinaryIO = os.fdopen(os.dup(0), "rb", buffering=0)
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
        self._reader = os.fdopen(self._in.fileno(), "rb", closefd=False)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
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
        """A line; empty where the runner is gone."""
        return self._reader.readline()


def main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the runner, which says how the job ends
    wire = Wire()
    for module in HEAVY if SPARE in sys.argv else ():
        with suppress(ImportError):
            importlib.import_module(module)
    first = wire.receive()
    if not first:
        os._exit(0)  # never needed
    start = to_child(first)
    assert isinstance(start, Start)
    _confine(start)
    leash = Leash(start.until, wire.send)
    while leash.lapsed:  # on a busy machine it took longer to come so far; its runner renewed the lease, or ends it
        _obey(wire.receive(), leash)
    leash.start()
    threading.Thread(target=_listen, args=(wire, leash), daemon=True, name="runner").start()
    wire.send(_done(start, wire, leash))
    sys.stderr.flush()
    os._exit(0)  # threads of libraries, and of batches that were under way, would be waited for


def _confine(start: Start) -> None:
    """Before any other thread starts: what the process sees of the file system from now on, and all that it starts:
    Ray's daemons, workers and replicas, where it starts a cluster of its own, which obeys no other job of this user.
    Those of a shared cluster, which it joins, are not its children and not confined by it."""
    from c2b_ray.endpoint.policy import landlock
    from c2b_ray.endpoint.policy.at_start import policy_of_environment

    shared = "RAY_ADDRESS" in os.environ
    if not shared:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # Ray's own, in the home folder, is every job's
    besides = policy_of_environment().job_reads
    if "/" in besides:
        return
    caches = landlock.caches(os.environ)
    fetches = os.environ.get("HF_HUB_OFFLINE") != "1"
    reads = [
        *landlock.SYSTEM,
        *landlock.libraries(),
        *landlock.named(os.environ),
        *caches,
        *besides,
        *([start.placement] if start.placement else []),
        *([os.path.expanduser("~/.ray")] if shared else []),  # the cluster's token, where no variable has it
    ]
    tenant = [] if is_remote(start.out) else [start.out.rpartition("/runs/")[0] or start.out]
    writes = [*tenant, *landlock.temporary(os.environ), *landlock.DEVICES, *(caches if fetches else [])]
    if not landlock.confine(reads, writes):
        sys.stderr.write("this kernel has no Landlock: the process of a job reads what its runner's user may read\n")
    if start.strange and is_remote(start.out):
        from c2b_ray.filesystems import s3

        landlock.connect_only(s3.ports())  # its runner's note says where the kernel cannot


def _listen(wire: Wire, leash: Leash) -> None:
    while True:
        _obey(wire.receive(), leash)


def _obey(data: bytes, leash: Leash) -> None:
    """What the runner says; without a word where that is gone."""
    if not data:
        end_fenced()
    message = to_child(data)
    if isinstance(message, Order):
        leash.order("cancelled" if message.what == "cancel" else "yielded")
    elif isinstance(message, Permission):
        leash.answer(message.number, message.granted)
    elif not isinstance(message, Start):
        leash.hold(message.until)


def _done(start: Start, wire: Wire, leash: Leash) -> Ended:
    """Does the job, or what is left of it, and says how it ended."""
    from c2b_ray.endpoint.kinds import kind_named
    from c2b_ray.endpoint.policy.at_start import prepared
    from c2b_ray.endpoint.work.telling import Telling, problem
    from c2b_ray.store import guard

    telling = Telling(wire.send, leash.check)
    tenant_folder = start.out.rpartition("/runs/")[0] or start.out
    if start.via == "serve":
        _own_answers(tenant_folder)
    try:
        with guard.guarded(leash.ask):
            config = prepared(start.kind, start.config, tenant_folder)
            kind_named(start.kind).work(config, start.out, start.via, telling, start.placement)
        return Ended(
            how="finished", images=telling.images, present=telling.present, classifier_hash=_classifier_hash(start.out)
        )
    except Stopped as stopped:
        return Ended(how=stopped.how, images=telling.images, present=telling.present)
    except BaseException as error:
        # The first that went wrong may be hidden: a stage's end can raise in the place of what ended it.
        if (stop := _stop_behind(error)) is not None:
            return Ended(how=stop.how, images=telling.images, present=telling.present)
        traceback.print_exc()
        return Ended(
            how="failed", images=telling.images, present=telling.present, problem=problem(error, tenant_folder)
        )


def _own_answers(tenant_folder: str) -> None:
    """Models that all tenants share give this job what they have kept for its own tenant, and for no other."""
    from c2b_ray.serving.answers import OWNER

    os.environ[OWNER] = tenant_folder.rpartition("/")[2]


def _stop_behind(error: BaseException | None) -> Stopped | None:
    while error is not None:
        if isinstance(error, Stopped):
            return error
        error = error.__cause__ or error.__context__
    return None


def _classifier_hash(out: str) -> str | None:
    """Of the classifiers that a run noted, by their revisions; None of what notes none."""
    from c2b_ray.errors import C2BError
    from c2b_ray.schemas import content_id
    from c2b_ray.store.run import load_run

    try:
        models = load_run(out).manifest.get("models", {})
    except C2BError:
        return None  # a dataset, or an answer
    named = [about for name, about in models.items() if name.startswith("classifier")]
    each = [one for about in named for one in (about if isinstance(about, list) else [about])]
    revisions = sorted(str(one["revision"]) for one in each if one.get("revision"))
    return content_id(*revisions) if revisions else None


if __name__ == "__main__":
    main()
