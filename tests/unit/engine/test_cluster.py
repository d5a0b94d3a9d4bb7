"""A Ray cluster of our own or at an address: how it is joined and started, and which paths a node lacks."""

import os
import socket
from pathlib import Path

import pytest
from tenacity import wait_none

from c2b_ray.engine import cluster
from c2b_ray.engine.cluster import absent, not_shared
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
    monkeypatch.setattr(cluster, "answers", lambda _: True)
    monkeypatch.setenv(cluster.ADDRESS, "10.0.0.1:6379")
    with pytest.raises(ServiceError, match=f"RAY_ADDRESS=10.0.0.1:6379.*{advice}"):
        cluster._connect(None, 100)


def test_an_address_where_nothing_listens_is_refused_before_ray_waits_for_minutes(monkeypatch) -> None:
    monkeypatch.setattr(cluster, "LISTENS_WITHIN_S", 0.0)
    monkeypatch.setattr(cluster.ray, "init", lambda **_: pytest.fail("Ray was asked to connect"))
    with socket.socket() as bound:  # a port where nothing listens
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv(cluster.ADDRESS, f"127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(ServiceError, match="nothing listens there; unset it"):
            cluster._connect(None, 100)


SLOW = Exception("The current node timed out during startup.")  # as Ray 2.60 raises it


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Ray's starts, each with its arguments and the environment that it met; `refusals` fail first."""
    seen: list[dict[str, object]] = []
    monkeypatch.delenv(cluster.ADDRESS, raising=False)
    for name in cluster.SETTINGS:
        monkeypatch.setenv(name, "")  # so that it is put back at the end, whatever is set meanwhile
        monkeypatch.delenv(name)
    monkeypatch.setattr(cluster, "RETRY_WAIT", wait_none())
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: None)
    return seen


def failing(monkeypatch: pytest.MonkeyPatch, seen: list[dict[str, object]], error: Exception, times: int) -> None:
    def init(**arguments: object) -> None:
        seen.append({**arguments, "niceness": dict(os.environ).get("RAY_worker_niceness")})
        if len(seen) <= times:
            raise error

    monkeypatch.setattr(cluster.ray, "init", init)


def test_a_start_that_times_out_is_tried_again(monkeypatch, starts) -> None:
    failing(monkeypatch, starts, SLOW, times=2)
    with cluster.ensure_ray(num_cpus=2) as started:
        assert started
    assert [start["address"] for start in starts] == ["local"] * 3


def test_a_machine_on_which_ray_never_starts_is_told_the_last_reason(monkeypatch, starts) -> None:
    failing(monkeypatch, starts, SLOW, times=100)
    with (
        pytest.raises(ServiceError, match=r"5 times because: The current node timed out.*via here"),
        cluster.ensure_ray(),
    ):
        pass
    assert len(starts) == cluster.STARTS


def test_wrong_arguments_are_not_tried_again(monkeypatch, starts) -> None:
    failing(monkeypatch, starts, ValueError("attempting to cap object store memory"), times=100)
    with pytest.raises(ServiceError, match="cap object store memory"), cluster.ensure_ray():
        pass
    assert len(starts) == 1


def test_workers_run_as_nice_as_this_process_unless_the_environment_says_otherwise(monkeypatch, starts) -> None:
    failing(monkeypatch, starts, SLOW, times=0)
    with cluster.ensure_ray():
        pass
    monkeypatch.setenv("RAY_worker_niceness", "7")
    with cluster.ensure_ray():
        pass
    assert [start["niceness"] for start in starts] == ["0", "7"]


def test_a_start_that_failed_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time to wait for it, Ray's first process is given up half started, as on a busy machine; it lived until
    this process ended, and slowed the next start."""
    monkeypatch.setattr(cluster, "STARTS", 2)
    monkeypatch.setenv("RAY_gcs_server_port_wait_time_s", "0")
    monkeypatch.delenv(cluster.ADDRESS, raising=False)
    with pytest.raises(ServiceError, match=r"Ray did not start.*Timed out"):
        cluster._connect(1, 100)
    children = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    assert "gcs_server" not in [Path(f"/proc/{pid}/comm").read_text().strip() for pid in children]


def test_a_node_says_which_paths_it_lacks(tmp_path):
    (tmp_path / "there").mkdir()
    assert absent([str(tmp_path / "there"), str(tmp_path / "gone"), str(tmp_path)]) == [str(tmp_path / "gone")]


def test_the_error_names_directory_and_node_and_says_what_to_do():
    told = not_shared("/runs/one", "10.0.0.7")
    assert "/runs/one" in told
    assert "10.0.0.7" in told
    assert "s3://" in told
