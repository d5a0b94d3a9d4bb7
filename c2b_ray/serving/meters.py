"""A replica's Prometheus metrics; Ray exports them beside its own, with the app, deployment and replica.

Their names are a contract with deployments/monitoring, which lists them as Ray exports them: prefixed with `ray_`. This
module knows numbers, and nothing of the requests.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import ray
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
