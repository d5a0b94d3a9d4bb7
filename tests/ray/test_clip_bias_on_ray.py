"""`c2b clip-bias` through actors: the biases of the same run in this process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import clip_bias_tables
import pytest

import c2b_ray
from c2b_ray.audits.clip_bias.run import ClipBiasRun

pytestmark = pytest.mark.long
TABLES = ("clip_bias", "transfer", "locality", "rates", "clusters")


def test_biases_measured_through_actors_are_those_of_this_process(
    tmp_path: Path, nothing_loads_here: Callable[[], AbstractContextManager[None]]
) -> None:
    config = clip_bias_tables.write_tables(tmp_path, images=120)
    config = {**config, "models": {"a": "world:clip"}, "spaces": None, "groups": {"k": 2, "least": 20}}
    for block, field in (("vqa", "vqa"), ("captioning", "captions")):
        results = config["downstream"][block]
        config["downstream"][block] = {**results, field: {"a": results[field]["a"]}}
    with nothing_loads_here():
        actors = c2b_ray.clip_bias(config, tmp_path / "actors", via="actors")
    here = c2b_ray.clip_bias(config, tmp_path / "here", via="here")
    assert actors.manifest["run_id"] == here.manifest["run_id"]
    for name in TABLES:
        assert written(actors, name) == written(here, name)
    assert here.biases.num_rows > 0


def written(run: ClipBiasRun, name: str) -> bytes:
    return Path(run.location(f"{name}.parquet")).read_bytes()
