"""Decides how long a call waits for an app that has no replica, and raises the error after that. Serve itself waits
forever.

It knows the app's state and the time, and nothing of calls.
"""

from __future__ import annotations

import time

from c2b_ray.errors import C2BError, ServiceError
from c2b_ray.serving.failures import from_text
from c2b_ray.serving.watch import ABSENT, AppState, Watch

GRACE_S = 30.0
"""Enough for `serve deploy` to put an app back that was deleted, or to replace one that failed to deploy."""

_NEEDS_SOMEBODY = (ABSENT, "DEPLOY_FAILED", "DELETING")


class Outage:
    """The time that an app has no replica, as seen by the checks of one call."""

    def __init__(self, app: str, watch: Watch, patience_s: float, grace_s: float = GRACE_S) -> None:
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
            said = f"was deleted while it was in use, and has been absent {waited}: deploy it again and resume the run"
        else:
            said = f"is {state.status} and has had no replica {waited}: {state.message or '`serve status` says more'}"
        return ServiceError(f"app {self._app!r} {said}", app=self._app)
