"""How much a caller sends at once, and what is learnt of the controller."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from c2b_ray.serving.meters import ABSENT, MOST_REQUESTS, UNKNOWN, AppState, AppStates, Limits, limits, state_of


class Part:
    def __init__(self, status: str, message: str, **replicas: int) -> None:
        self.status, self.message, self.replica_states = status, message, replicas


def test_an_app_is_the_sum_of_its_deployments() -> None:
    app: Any = Part("UNHEALTHY", "of the app")
    app.deployments = {"A": Part("HEALTHY", "", RUNNING=2), "B": Part("UNHEALTHY", "of B", RUNNING=1, STARTING=3)}
    assert state_of(app) == AppState("UNHEALTHY", 3, "of the app  of B")


def test_a_controller_that_does_not_answer_says_nothing_of_any_app() -> None:
    def ask() -> Any:
        raise ActorDiedError

    assert AppStates(ask).app("x") == AppState(UNKNOWN)


def test_an_app_that_is_not_deployed_is_absent() -> None:
    assert AppStates(lambda: type("S", (), {"applications": {}})).app("x").status == ABSENT


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
