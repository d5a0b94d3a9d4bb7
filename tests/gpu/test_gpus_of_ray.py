"""Ray's GPUs, real ones: what an actor without any takes, and that halves of one are the same one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import ray
import torch

from c2b_ray.models import devices
from c2b_ray.models.catalog import parse
from c2b_ray.models.torch_runtime import device_of


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@ray.remote
class Process:
    def device(self) -> tuple[str, str | None, int]:
        """What a model here would take, what CUDA is told to see, and how many GPUs it sees."""
        devices.assign(ray.get_gpu_ids())
        taken = device_of(parse("timm:x"))
        torch.ones(1, device=taken)
        return str(taken), os.environ.get(devices.VISIBLE), torch.cuda.device_count()


def test_an_actor_without_a_gpu_takes_the_cpu_though_it_sees_all() -> None:
    taken, _, seen = ray.get(Process.options(num_gpus=0).remote().device.remote())
    assert taken == "cpu"
    assert seen == torch.cuda.device_count()  # Ray 2.60 hides none: should this fail, `devices` can be simpler


def test_actors_take_the_gpus_that_ray_assigned_to_them() -> None:
    processes = [Process.options(num_gpus=1).remote() for _ in range(torch.cuda.device_count())]
    answers = ray.get([process.device.remote() for process in processes])
    assert {taken for taken, _, _ in answers} == {"cuda:0"}
    assert len({visible for _, visible, _ in answers}) == len(processes)  # each another one


def test_halves_of_a_gpu_are_the_same_gpu() -> None:
    processes = [Process.options(num_gpus=0.5).remote() for _ in range(2)]
    answers = ray.get([process.device.remote() for process in processes])
    assert len({visible for _, visible, _ in answers}) == 1
