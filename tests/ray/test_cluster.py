"""The cluster that `ensure_ray` starts."""

import os

import ray

from c2b_ray.engine.cluster import reachable


def test_workers_are_as_nice_as_the_driver() -> None:
    @ray.remote
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    assert reachable()
    assert ray.get(niceness.remote()) == os.getpriority(os.PRIO_PROCESS, 0)
