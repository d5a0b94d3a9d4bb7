"""What is learnt of the controller: once for all who wait, and never an exception."""

from __future__ import annotations

from typing import Any

from ray.exceptions import ActorDiedError

from c2b_ray.serving.meters import ABSENT, UNKNOWN, AppState, Watch, state_of


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

    assert Watch(ask).app("x") == AppState(UNKNOWN)


def test_an_app_that_is_not_deployed_is_absent() -> None:
    assert Watch(lambda: type("S", (), {"applications": {}})).app("x").status == ABSENT
