"""How much a caller sends at once: model calls fill, and autoscaling sees the load."""

from __future__ import annotations

import math

import pytest

from c2b_ray.serving.meters import MOST_REQUESTS, Limits, limits


@pytest.mark.parametrize(
    ("rows", "calls", "target", "replicas", "expected"),
    [
        (256, 1, 16, 8, Limits(32, 128)),
        (32, 2, 4, 1, Limits(32, 4)),
        (1, 1, 128, 1, Limits(1, 128)),
        (8, 1, 2, 2, Limits(8, 4)),
        (128, 1, 64, 64, Limits(4, MOST_REQUESTS)),
    ],
)
def test_requests_are_as_large_and_as_many_as_the_deployment_wants(
    rows: int, calls: int, target: float, replicas: int, expected: Limits
) -> None:
    assert limits(rows, calls, target, replicas) == expected


@pytest.mark.parametrize("target", [2, 3, 16, 64])
def test_a_replica_at_its_target_never_idles_between_batches(target: float) -> None:
    found = limits(64, 1, target, 4)
    assert found.rows * target >= 2 * 64
    assert found.requests == min(MOST_REQUESTS, max(4, math.ceil(target * 4)))
