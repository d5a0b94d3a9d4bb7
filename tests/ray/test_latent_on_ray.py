"""`c2b latent` through actors: the directions, strips and verdicts of the same run in this process."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from alike import assert_alike
from toy_latent import toy_generator, toy_labels

import c2b_ray
from c2b_ray.tables.latent import DIRECTIONS

pytestmark = pytest.mark.long


def test_searches_through_actors_answer_as_in_this_process_and_resume(
    tmp_path: Path, nothing_loads_here: Callable[[], AbstractContextManager[None]]
) -> None:
    generator = toy_generator(tmp_path / "generator")
    config: dict[str, Any] = {
        "generator": generator,
        "classifier": {"planted": "world:resnet-planted-1", "control": "world:resnet-control-0"},
        "latents": toy_labels(generator, tmp_path / "labels.parquet", 400),
        "problems": [
            {"classifier": name, "label": "boat", "target": "target", "biased": "first", "known": ["second"]}
            for name in ("planted", "control")
        ],
        "methods": ["consistent", "axes"],
        "search": {"iterations": 4, "batch": 4, "walk": 3, "starts": 1},
        "evidence": {"latents": 100},
        "strips": {"latents": 1, "positions": 3},
    }
    with nothing_loads_here():
        actors = c2b_ray.latent_directions(config, tmp_path / "actors", via="actors")
    here = c2b_ray.latent_directions(config, tmp_path / "here", via="here")
    assert actors.manifest["run_id"] == here.manifest["run_id"]
    assert_alike(actors.directions, here.directions, within=1e-3)
    assert_alike(actors.strips, here.strips, but=("image",))  # a pixel may be rounded the other way
    assert actors.directions.num_rows == 4
    assert actors.directions.schema.equals(DIRECTIONS)
    parts = sorted((tmp_path / "actors" / "searches").glob("part-*"))
    assert len(parts) == 4  # a task each
    parts[0].unlink()
    again = c2b_ray.latent_directions(config, tmp_path / "actors", via="here")
    assert_alike(again.directions, here.directions, within=1e-3)
