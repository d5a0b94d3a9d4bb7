"""`c2b failures` through actors: the rounds and hypotheses of the same run in this process."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import c2b_ray
from c2b_ray.audits.failures.run import FailuresRun

pytestmark = pytest.mark.long

CONFIG: dict[str, Any] = {
    "labels": ["boat"],
    "classifier": {"planted": "world:resnet-planted-1", "control": "world:resnet-control-0"},
    "images": {"generate": {"model": "world:renderer"}},
    "captioner": "world:clip",
    "verifier": "world:clip",
    "hierarchy": "world",
    "budget": {"draws": 900},
}


def rounds_of(run: FailuresRun) -> list[dict[str, Any]]:
    rows: pa.Table = run.rounds.drop_columns("seconds")
    return rows.sort_by("round_id").to_pylist()


def test_failures_found_through_actors_are_those_of_this_process(
    tmp_path: Path, nothing_loads_here: Callable[[], AbstractContextManager[None]]
) -> None:
    with nothing_loads_here():
        actors = c2b_ray.find_failures(CONFIG, tmp_path / "actors", via="actors")
    here = c2b_ray.find_failures(CONFIG, tmp_path / "here", via="here")
    assert actors.manifest["run_id"] == here.manifest["run_id"]
    assert rounds_of(actors) == rounds_of(here)
    assert actors.hypotheses.equals(here.hypotheses)
    assert actors.reliability.equals(here.reliability)
    assert actors.hypotheses.num_rows > 0
    assert actors.manifest["spent"] == here.manifest["spent"]
