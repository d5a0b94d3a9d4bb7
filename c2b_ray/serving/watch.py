"""Reads the status of Serve's apps from the controller, once per process however many calls wait.

A request costs the controller 20 to 50 ms of CPU; one from each pending call would overload it. This module knows
Serve's status and nothing of calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

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


class Watch:
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


WATCH = Watch()
"""The watch that this process shares."""
