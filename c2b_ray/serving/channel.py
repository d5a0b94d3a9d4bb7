"""Calls to one Serve app. A channel waits out a full queue, a lost replica or a redeployment, and raises a replica's
errors unchanged.

It knows Serve's handles and exceptions, and no roles. It can be pickled, and reconnects in the process that unpickles
it: the driver, a Ray task, an actor of a Ray Data job.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import ray
from ray import serve
from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, RayError, RayTaskError, WorkerCrashedError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
    ReplicaUnavailableError,
)
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

from c2b_ray.errors import Argument, C2BError, ConfigError, Remedy, ServiceError, again
from c2b_ray.serving.meters import ABSENT, WATCH, AppState, AppStates, Limits

# Carries our errors as data inside a text: Serve passes on only the traceback of what a replica's constructor
# raises.


_MARK = "c2b-ray error as data: "


class CannotStart(Exception):
    """Raised by a replica that cannot start; its message holds the cause as data."""


@contextmanager
def carried_in_text() -> Iterator[None]:
    """Wraps a replica's constructor: an error of ours leaves it in a form that `from_text` reads back whole."""
    try:
        yield
    except C2BError as error:
        raise CannotStart(to_text(error)) from error


def to_text(error: C2BError) -> str:
    """Returns one line: class, message and every field of the error."""
    fields = {**vars(error), "remedy": None if error.remedy is None else asdict(error.remedy)}
    if isinstance(error, ConfigError):
        fields["arguments"] = [argument.name for argument in error.arguments]
    return _MARK + json.dumps({"kind": type(error).__name__, "message": str(error), "fields": fields}, default=str)


def from_text(text: str) -> C2BError | None:
    """Returns the last error that `to_text` wrote somewhere in `text`, with all its fields.

    Returns None where there is none, or where it was cut off. An error of a class that is not known here becomes a
    ServiceError.
    """
    _, marker, payload = text.rpartition(_MARK)
    if not marker:
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(payload)
    except ValueError:
        return None
    fields = data["fields"]
    if fields.get("remedy") is not None:
        fields["remedy"] = Remedy(**fields["remedy"])
    if "arguments" in fields:
        known = Argument.__members__  # a replica of another release may name others
        fields["arguments"] = tuple(known[name] for name in fields["arguments"] if name in known)
    return again(_kinds().get(data["kind"], ServiceError), data["message"], fields)


def _kinds() -> dict[str, type[C2BError]]:
    kinds: dict[str, type[C2BError]] = {}
    pending: list[type[C2BError]] = [C2BError]
    while pending:
        kind = pending.pop()
        kinds[kind.__name__] = kind
        pending += kind.__subclasses__()
    return kinds


# Decides how long a call waits for an app that has no replica, and raises the error after that. Serve itself waits
# forever.


GRACE_S = 30.0
"""Enough for `serve deploy` to put an app back that was deleted, or to replace one that failed to deploy."""

_NEEDS_SOMEBODY = (ABSENT, "DEPLOY_FAILED", "DELETING")


class ReplicaOutage:
    """The time that an app has no replica, as seen by the checks of one call."""

    def __init__(self, app: str, watch: AppStates, patience_s: float, grace_s: float = GRACE_S) -> None:
        self._app = app
        self._watch = watch
        self._limits = {True: min(grace_s, patience_s), False: patience_s}
        self._phase: bool | None = None
        self._since = 0.0

    def look(self, *, refused: bool = False) -> None:
        """Returns while waiting may help; otherwise raises why the app cannot answer.

        `refused`: Serve has refused the call, so that no replica counts, whatever the controller reports.
        """
        state = self._watch.app(self._app)
        if state.replicas and not refused:
            self._phase = None
            return
        needs_somebody = state.status in _NEEDS_SOMEBODY
        now = time.monotonic()
        if self._phase is not needs_somebody:
            self._phase, self._since = needs_somebody, now
        if now - self._since >= self._limits[needs_somebody]:
            raise self._error(state)

    def _error(self, state: AppState) -> C2BError:
        cause = from_text(state.message)
        if cause is not None:
            cause.app = cause.app or self._app
            return cause
        waited = f"for {self._limits[state.status in _NEEDS_SOMEBODY]:.0f} s"
        if state.status in (ABSENT, "DELETING"):
            problem = (
                f"was deleted while it was in use, and has been absent {waited}: deploy it again and resume the run"
            )
        else:
            problem = (
                f"is {state.status} and has had no replica {waited}: {state.message or '`serve status` says more'}"
            )
        return ServiceError(f"app {self._app!r} {problem}", app=self._app)


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
"""The name of each kind's app in the configurations of `deployments/`."""

PATIENCE_S = 600.0
"""How long a call waits for room in the queue, or for a first replica, while a large model loads elsewhere."""

ATTEMPTS = 4
"""How often a call is made if its replica dies meanwhile. Roles answer the same each time, so repeating is safe."""

GLANCE_S = 5.0
RESEND_S = 0.5


class Channel:
    """Calls to the ingress deployment of one app.

    `in_flight`: the most requests in progress at once; None: the app's limit (`limits`). `patience_s`: how long a call
    waits while the app has no replica or no room in its queue. `grace_s`: how long it waits where only a new `serve
    deploy` can help, because the app was deleted or failed to deploy. `handle` and `watch` are for tests in this
    process, and do not survive pickling.
    """

    def __init__(
        self,
        app: str,
        *,
        in_flight: int | None = None,
        patience_s: float = PATIENCE_S,
        grace_s: float = GRACE_S,
        handle: DeploymentHandle[Any] | None = None,
        watch: AppStates | None = None,
    ) -> None:
        self.app = app
        self.in_flight = in_flight
        self.patience_s = patience_s
        self.grace_s = grace_s
        self._handle = handle
        self._watch = watch
        self._limits: Limits | None = None

    def limits(self) -> Limits:
        """Returns the app's limits of a request; fetched once."""
        if self._limits is None:
            self._limits = self.call("limits")
        return self._limits

    def rows(self, chosen: int | None, rows: int) -> int:
        """Returns the rows of one request: `chosen`, else the app's limit, which is not fetched for a single row."""
        if chosen is not None:
            return chosen
        return self.limits().rows if rows > 1 else 1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None, "_watch": None}

    def call(self, method: str, *args: Any, model_id: str = "") -> Any:
        """Returns the result of one call. Raises a `C2BError` of the replica unchanged, ServiceError where there is no
        answer."""
        return self.call_many(method, [args], model_id=model_id)[0]

    def call_many(self, method: str, calls: Sequence[tuple[Any, ...]], *, model_id: str = "") -> list[Any]:
        """Returns the results in the order of `calls`, at most `in_flight` of them in progress; the first error ends
        all."""
        if not calls:
            return []
        self._connect()
        # Threads rather than futures of the handle: each waits and retries for itself, and none is the caller's
        # thread, where an event loop may be running (a notebook) and Serve refuses to wait.
        workers = 1 if len(calls) == 1 else self.in_flight or self.limits().requests
        pool = ThreadPoolExecutor(min(workers, len(calls)), thread_name_prefix=f"to-{self.app}")
        stopping = threading.Event()
        try:
            futures = [pool.submit(self._call, method, args, model_id, stopping) for args in calls]
            return [future.result() for future in futures]
        finally:
            stopping.set()  # after an error or Ctrl-C, the calls still under way stop waiting and trying
            pool.shutdown(wait=False, cancel_futures=True)

    def _call(self, method: str, args: tuple[Any, ...], model_id: str, stopping: threading.Event) -> Any:
        survive = Retrying(
            retry=retry_if_exception_type(_LOST),
            stop=stop_after_attempt(ATTEMPTS) | stop_when_event_set(stopping),
            wait=wait_random_exponential(multiplier=0.2, max=10),
            sleep=sleep_using_event(stopping),
            reraise=True,
        )
        queue = Retrying(
            retry=retry_if_exception_type(BackPressureError),
            stop=stop_after_delay(self.patience_s) | stop_when_event_set(stopping),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            sleep=sleep_using_event(stopping),
            reraise=True,
        )
        try:
            return survive(queue, self._once, method, args, model_id, stopping)
        except (RayError, RayServeException) as error:
            raise self._named(method, error) from error
        except C2BError as error:
            error.app = error.app or self.app
            raise

    def _named(self, method: str, error: Exception) -> C2BError:
        """Returns the replica's exception if it is one of ours; otherwise an error with what happened and what
        to do."""
        if isinstance(error, RayTaskError):
            cause = getattr(error, "cause", None)
            if isinstance(cause, C2BError):
                cause.app = cause.app or self.app
                return cause
            problem = f"failed in {method}: {type(cause).__name__}: {cause}"
        elif isinstance(error, BackPressureError):
            problem = (
                f"had no place in its queue for {self.patience_s:.0f} s: raise its max_replicas or max_queued_requests,"
                " or run fewer audits at once"
            )
        elif isinstance(error, _LOST):
            problem = (
                f"lost {ATTEMPTS} replicas over one call of {method}: {error}; their logs say why, often too little"
                " memory; the run can be resumed once that is mended"
            )
        else:
            problem = (
                f"did not answer {method}: {type(error).__name__}: {error}; `serve status` says more; the run can be"
                " resumed once it is back"
            )
        return ServiceError(f"app {self.app!r} {problem}", app=self.app)

    def _once(self, method: str, args: tuple[Any, ...], model_id: str, stopping: threading.Event) -> Any:
        """Returns the result of one call, which is sent again while Serve refuses it because the app is not
        deployed."""
        outage = ReplicaOutage(self.app, self._watch or WATCH, self.patience_s, self.grace_s)
        while True:
            handle = self._connect().options(method_name=method, multiplexed_model_id=model_id)
            try:
                return self._result(handle.remote(*args), method, outage, stopping)
            except DeploymentUnavailableError:
                outage.look(refused=True)
                if stopping.wait(RESEND_S):
                    raise ServiceError(f"the call of {method} was called off", app=self.app) from None

    def _result(self, response: Any, method: str, outage: ReplicaOutage, stopping: threading.Event) -> Any:
        while True:
            try:
                return response.result(timeout_s=GLANCE_S)
            except TimeoutError as error:
                if isinstance(error, RayTaskError):  # raised by the model, not by the wait
                    raise
            try:
                if stopping.is_set():
                    raise ServiceError(f"the call of {method} was called off", app=self.app)
                outage.look()
            except C2BError:
                response.cancel()
                raise

    def _connect(self) -> DeploymentHandle[Any]:
        if self._handle is None:
            if not ray.is_initialized():
                raise ServiceError(f"app {self.app!r} cannot be reached: this process is connected to no Ray cluster")
            try:
                self._handle = serve.get_app_handle(self.app)
            except RayServeException as error:
                raise ServiceError(
                    f"no Serve app {self.app!r} is running: deploy it, such as with `serve deploy"
                    " deployments/laptop.yaml`",
                    app=self.app,
                ) from error
        return self._handle


# An actor or its node died or is out of reach. What the model itself raised is a RayTaskError, and none of these.
_LOST = (RayActorError, NodeDiedError, WorkerCrashedError, ObjectLostError, ReplicaUnavailableError)
