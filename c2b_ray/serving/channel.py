"""The way to one Serve app: calls in flight, waiting out a full queue or a lost replica, errors as themselves.

It knows Serve's handles and exceptions and nothing of roles. It can be pickled, and finds its handle where it wakes up:
in the driver, in a Ray task, in an actor of a Ray Data job.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import ray
from ray import serve
from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, RayError, RayTaskError, WorkerCrashedError
from ray.serve.exceptions import BackPressureError, RayServeException, ReplicaUnavailableError
from ray.serve.handle import DeploymentHandle
from tenacity import (
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from c2b_ray.errors import C2BError, ServiceError

APPS = MappingProxyType(
    {
        "language_model": "language-model",
        "encoder": "encoder",
        "captioner": "captioner",
        "image_generator": "generator",
        "classifiers": "classifiers",
        "index": "index",
    }
)
"""What a configuration in `deployments/` calls the app of each kind."""

PATIENCE_S = 600.0
"""How long a call waits for a place in the queue, or for a first replica, while a large model loads elsewhere."""

ATTEMPTS = 4
"""How often a call is made whose replica dies under it. Roles answer alike each time, so asking again is safe."""

GLANCE_S = 5.0


class Channel:
    """Calls to the ingress deployment of one app.

    `handle` is for tests in this process (`serve.run(_local_testing_mode=True)`), and does not survive pickling.
    """

    def __init__(
        self,
        app: str,
        *,
        in_flight: int = 8,
        patience_s: float = PATIENCE_S,
        handle: DeploymentHandle[Any] | None = None,
    ) -> None:
        self.app = app
        self.in_flight = in_flight
        self.patience_s = patience_s
        self._handle = handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None}

    def call(self, method: str, *args: Any, model_id: str = "") -> Any:
        """The result of one call; a `C2BError` of the replica as itself, ServiceError where there is no answer."""
        return self.call_many(method, [args], model_id=model_id)[0]

    def call_many(self, method: str, calls: Sequence[tuple[Any, ...]], *, model_id: str = "") -> list[Any]:
        """The results in the order of `calls`, at most `in_flight` of them under way; the first error ends it."""
        if not calls:
            return []
        self._connect()
        # Threads, and not futures of the handle: each waits and tries again for itself, and none of them is the
        # caller's, in which an event loop may be running (a notebook), where Serve refuses to wait.
        pool = ThreadPoolExecutor(min(self.in_flight, len(calls)), thread_name_prefix=f"to-{self.app}")
        over = threading.Event()
        try:
            futures = [pool.submit(self._call, method, args, model_id, over) for args in calls]
            return [future.result() for future in futures]
        finally:
            over.set()  # after an error or Ctrl-C, the calls still under way stop waiting and trying
            pool.shutdown(wait=False, cancel_futures=True)

    def _call(self, method: str, args: tuple[Any, ...], model_id: str, over: threading.Event) -> Any:
        survive = Retrying(
            retry=retry_if_exception_type(_LOST),
            stop=stop_after_attempt(ATTEMPTS) | stop_when_event_set(over),
            wait=wait_random_exponential(multiplier=0.2, max=10),
            sleep=sleep_using_event(over),
            reraise=True,
        )
        queue = Retrying(
            retry=retry_if_exception_type(BackPressureError),
            stop=stop_after_delay(self.patience_s) | stop_when_event_set(over),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            sleep=sleep_using_event(over),
            reraise=True,
        )
        try:
            return survive(queue, self._once, method, args, model_id, over)
        except (RayError, RayServeException) as error:
            raise self._named(method, error) from error

    def _named(self, method: str, error: Exception) -> C2BError:
        """What the replica raised, where it is an error of ours; else what happened, and what to do."""
        if isinstance(error, RayTaskError):
            cause = getattr(error, "cause", None)
            if isinstance(cause, C2BError):
                return cause
            said = f"failed in {method}: {type(cause).__name__}: {cause}"
        elif isinstance(error, BackPressureError):
            said = (
                f"had no place in its queue for {self.patience_s:.0f} s: raise its max_replicas or max_queued_requests,"
                " or run fewer audits at once"
            )
        elif isinstance(error, _LOST):
            said = (
                f"lost {ATTEMPTS} replicas over one call of {method}: {error}; their logs say why, often too little"
                " memory; the run can be resumed once that is mended"
            )
        else:
            said = (
                f"did not answer {method}: {type(error).__name__}: {error}; `serve status` says more; the run can be"
                " resumed once it is back"
            )
        return ServiceError(f"app {self.app!r} {said}", app=self.app)

    def _once(self, method: str, args: tuple[Any, ...], model_id: str, over: threading.Event) -> Any:
        handle = self._connect().options(method_name=method, multiplexed_model_id=model_id)
        response = handle.remote(*args)
        alone_since: float | None = None
        while True:
            try:
                return response.result(timeout_s=GLANCE_S)
            except TimeoutError as error:
                if isinstance(error, RayTaskError):  # raised by the model, not by the wait
                    raise
            try:
                if over.is_set():
                    raise ServiceError(f"the call of {method} was called off")
                alone_since = self._glance(alone_since)
            except ServiceError:
                response.cancel()  # type: ignore[no-untyped-call]
                raise

    def _glance(self, alone_since: float | None) -> float | None:
        """Since when the app has had no replica; ServiceError once that is too long. Serve itself waits for ever."""
        app = serve.status().applications.get(self.app)
        if app is None:
            raise _absent(self.app)
        counts = [
            count for d in app.deployments.values() for state, count in d.replica_states.items() if state == "RUNNING"
        ]
        if any(counts):
            return None
        now = time.monotonic()
        failed = app.status == "DEPLOY_FAILED"
        if failed or (alone_since is not None and now - alone_since > self.patience_s):
            said = " ".join([app.message, *(d.message for d in app.deployments.values())]).strip()
            raise ServiceError(
                f"app {self.app!r} is {app.status} and has no replica: {said or '`serve status` says more'}",
                app=self.app,
            )
        return now if alone_since is None else alone_since

    def _connect(self) -> DeploymentHandle[Any]:
        if self._handle is None:
            if not ray.is_initialized():
                raise ServiceError(f"app {self.app!r} cannot be reached: this process is connected to no Ray cluster")
            try:
                self._handle = serve.get_app_handle(self.app)
            except RayServeException as error:
                raise _absent(self.app) from error
        return self._handle


def _absent(app: str) -> ServiceError:
    return ServiceError(
        f"no Serve app {app!r} is running: deploy it (`serve deploy deployments/laptop.yaml`),"
        " or let the audit start its own",
        app=app,
    )


# An actor or its node died or is out of reach. What the model itself raised is a RayTaskError, and none of these.
_LOST = (RayActorError, NodeDiedError, WorkerCrashedError, ObjectLostError, ReplicaUnavailableError)
