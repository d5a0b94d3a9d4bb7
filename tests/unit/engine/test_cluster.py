"""What a person reads where the cluster at RAY_ADDRESS cannot be joined."""

import pytest

from c2b_ray.engine import cluster
from c2b_ray.errors import ServiceError


def refused_by_ray(text: str) -> ConnectionError:
    """As Ray 2.60 raises what its GCS client said."""
    error = ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379")
    error.__cause__ = RuntimeError(f"Failed to connect to GCS. Last connection error: {text}")
    return error


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken", "set RAY_AUTH_MODE=token"),
        ("ray.exceptions.RpcError: Deadline Exceeded", "unset it to run here alone"),
    ],
)
def test_a_cluster_that_refuses_says_what_to_do(monkeypatch: pytest.MonkeyPatch, text: str, advice: str) -> None:
    def init(**_: object) -> None:
        raise refused_by_ray(text)

    monkeypatch.setattr(cluster.ray, "init", init)
    monkeypatch.setenv(cluster.ADDRESS, "10.0.0.1:6379")
    with pytest.raises(ServiceError, match=f"RAY_ADDRESS=10.0.0.1:6379.*{advice}"):
        cluster._connect(None, 100)
