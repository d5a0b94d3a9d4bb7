"""Decides how much a caller should send to an app at once, so that model calls fill and autoscaling sees the load.

It knows a deployment's numbers, and neither models nor callers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ray import serve
from ray.serve.exceptions import RayServeException

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
