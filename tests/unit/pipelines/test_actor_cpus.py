"""How many CPUs the actors of a stage reserve: never the last one that is free."""

import pytest

from c2b_ray.pipelines.ray_stage import actor_cpus
from c2b_ray.pipelines.stage import StageConfig
from c2b_ray.schemas import IMAGES


@pytest.mark.parametrize(
    ("actors", "there", "free", "cpus"),
    [
        (1, 2, 2, 0.5),
        (2, 2, 2, 0.5),
        (3, 2, 2, 0.33),
        (1, 2, 1.25, 0.25),  # replicas of Serve have the others
        (1, 2, 1.5, 0.5),  # an actor of the stage before is still leaving
        (1, 2, 0.5, 0.0),
        (1, 1, 1, 0.0),
        (4, 0, 0, 0.5),  # an autoscaling cluster whose workers are still to come
        (4, 64, 64, 0.5),
    ],
)
def test_actors_leave_one_free_cpu(actors, there, free, cpus):
    found = actor_cpus(StageConfig(IMAGES, actors=actors, num_cpus_per_actor=0.5), there, free)
    assert found == pytest.approx(cpus)
    assert there == 0 or found == 0 or actors * found <= free - 1
