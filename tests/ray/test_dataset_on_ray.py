"""Datasets of failures built by actors of Ray: the rows of a build here, also where actors die."""

import os
from functools import partial
from pathlib import Path

import pytest
import toy_dataset
from ray import cloudpickle

from c2b_ray.audits.dataset.shards.on_ray import RayWorkers
from c2b_ray.config.placement import read_placement
from c2b_ray.errors import ServiceError

TWO = read_placement({"stages": {"shards": {"min_actors": 2, "max_actors": 2, "cpus": 0.5}}})


@pytest.fixture(autouse=True)
def toys_travel_by_value():
    cloudpickle.register_pickle_by_value(toy_dataset)
    yield
    cloudpickle.unregister_pickle_by_value(toy_dataset)


def deadly(folder, deaths):
    """A toy_models whose processes die as they load it, or in the middle of a shard, so many times."""
    toys = toy_dataset.toy_models()
    generate = toys.sources[0].generator.generate

    def dying(requests):
        with_each = len(list(folder.iterdir()))
        if with_each < deaths and requests[0].seed % 2:
            (folder / str(os.getpid())).touch()
            os.kill(os.getpid(), 9)
        return generate(requests)

    toys.sources[0].generator.generate = dying
    return toys


def test_actors_that_die_cost_what_they_had_under_way_and_change_nothing(tmp_path):
    rows, drops, _ = toy_dataset.build(tmp_path / "here")
    (tmp_path / "deaths").mkdir()
    make = partial(deadly, Path(tmp_path / "deaths"), 4)
    make_workers = partial(RayWorkers, placement=TWO)
    there, dropped, workers = toy_dataset.build(tmp_path / "there", make_workers=make_workers, make=make)
    assert (there, dropped) == (rows, drops)
    assert workers.lost >= 4
    assert 4 <= workers.repeated <= workers.lost


def test_a_shard_that_kills_every_process_ends_the_build_with_the_reason(tmp_path):
    (tmp_path / "deaths").mkdir()
    make = partial(deadly, Path(tmp_path / "deaths"), 1000)
    with pytest.raises(ServiceError, match="processes in a row died over the same shards"):
        toy_dataset.build(tmp_path / "out", make_workers=partial(RayWorkers, placement=TWO), make=make)
