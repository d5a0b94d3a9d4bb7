"""A replica's Prometheus metrics; Ray exports them beside its own, with the app, deployment and replica.

Their names are a contract with deployments/monitoring, which lists them as Ray exports them: prefixed with `ray_`. This
module knows numbers, and nothing of the requests.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.metrics import Counter, Gauge, Histogram

NAMES = ("c2b_batch_fill", "c2b_cached_answers", "c2b_replica_rows", "c2b_replica_seconds", "c2b_replica_gpu_busy")
FILL = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
Outcome = Literal["hit", "miss", "evicted"]


def batch_filled(share: float) -> None:
    """Records the fill of a batch that goes to the model: its rows over the most that one batch takes, above 1 where
    one request has more."""
    if ray.is_initialized():  # not in Serve's local testing mode, where nobody exports anything
        _fill().observe(share)


def answers_cached(outcome: Outcome, images: int) -> None:
    """Counts answers that came from memory, were computed, or made room for others."""
    if images and ray.is_initialized():
        _cached().inc(images, {"outcome": outcome})


def rows_answered(rows: int, gpu: float | None) -> None:
    """Counts rows of a batch that the model has answered; `gpu`: the busy share of the replica's GPU, if it has one."""
    if ray.is_initialized():
        _rows().inc(rows)
        if gpu is not None:
            _gpu().set(gpu)


def worked(part: Literal["decoding", "model"], seconds: float) -> None:
    """Counts seconds that one of the replica's threads or processes has worked."""
    if ray.is_initialized():
        _seconds().inc(seconds, {"part": part})


@cache
def _fill() -> Histogram:
    return Histogram(NAMES[0], "Rows of a batch over the most that the model takes at once.", list(FILL))


@cache
def _cached() -> Counter:
    return Counter(NAMES[1], "Images by whether their answer came from memory.", ("outcome",))


@cache
def _rows() -> Counter:
    return Counter(NAMES[2], "Rows that the model has answered.")


@cache
def _seconds() -> Counter:
    return Counter(
        NAMES[3], "Seconds that a replica's workers decoded, and that its threads were in the model.", ("part",)
    )


@cache
def _gpu() -> Gauge:
    return Gauge(NAMES[4], "Share of time in which the replica's GPU ran a kernel, in its driver's last sample.")


# Reads the status of Serve's apps from the controller, once per process however many calls wait.


ABSENT = "ABSENT"
UNKNOWN = "UNKNOWN"
LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class AppState:
    """`status`: Serve's name for it; ABSENT where no app has that name, UNKNOWN while the controller does not answer.

    `replicas`: how many run. `message`: Serve's message about the app and its deployments.
    """

    status: str
    replicas: int = 0
    message: str = ""


class AppStates:
    """The state of every app, at most `every_s` old."""

    def __init__(self, ask: Callable[[], Any] = lambda: serve.status(), every_s: float = LOOK_EVERY_S) -> None:
        self._ask = ask
        self._every_s = every_s
        self._lock = threading.Lock()
        self._looked: float | None = None
        self._apps: dict[str, AppState] | None = None

    def app(self, name: str) -> AppState:
        """Returns the app's state. Of many concurrent callers one asks the controller, and the others wait for its
        answer."""
        with self._lock:
            if self._looked is None or time.monotonic() - self._looked >= self._every_s:
                self._apps = self._look()
                self._looked = time.monotonic()
            if self._apps is None:
                return AppState(UNKNOWN)
            return self._apps.get(name, AppState(ABSENT))

    def _look(self) -> dict[str, AppState] | None:
        try:
            applications = self._ask().applications
        except (RayError, RayServeException):  # the controller restarts, or its node is lost
            return None
        return {name: state_of(app) for name, app in applications.items()}


def state_of(app: Any) -> AppState:
    """Returns the state of one entry of `serve.status().applications`."""
    deployments = list(app.deployments.values())
    running = sum(d.replica_states.get("RUNNING", 0) for d in deployments)
    message = " ".join([app.message, *(d.message for d in deployments)]).strip()
    return AppState(str(getattr(app.status, "value", app.status)), running, message)


WATCH = AppStates()
"""The watch that this process shares."""


# Decides how much a caller should send to an app at once, so that model calls fill and autoscaling sees the load.


MOST_REQUESTS = 128
"""The most requests of one caller in progress; each has its own thread."""

LEAST_REQUESTS = 4


@dataclass(frozen=True)
class Limits:
    """The limits of one caller: `rows` of one request, and `requests` in progress at once."""

    rows: int
    requests: int


def limits(most_rows: int, calls_at_once: int, target: float, most_replicas: int) -> Limits:
    """Returns the limits for replicas that make `calls_at_once` model calls of `most_rows` each, with `target` ongoing
    requests per replica.

    A replica at its target holds twice the rows of its calls: those being computed, and as many waiting. There are
    enough requests that all of `most_replicas` are at their target: with fewer, Serve would never start the last of
    them.
    """
    rows = math.ceil(2 * most_rows * calls_at_once / target)
    requests = math.ceil(target * most_replicas)
    return Limits(min(most_rows, max(1, rows)), min(MOST_REQUESTS, max(LEAST_REQUESTS, requests)))


def limits_here(most_rows: int, calls_at_once: int) -> Limits:
    """Returns the limits of the deployment whose replica this process is."""
    try:
        config = serve.get_replica_context()._deployment_config
    except RayServeException:  # Serve's local testing mode
        return limits(most_rows, calls_at_once, 2.0, 1)
    scaling = config.autoscaling_config
    if scaling is None:  # a fixed number of replicas: a full batch computes in each call, and one waits
        target = min(2.0 * calls_at_once, config.max_ongoing_requests)
        return limits(most_rows, calls_at_once, target, config.num_replicas or 1)
    return limits(most_rows, calls_at_once, scaling.get_target_ongoing_requests(), scaling.max_replicas)
