"""What the process that starts an audit does not do: load a model. Workers do, which import everything anew."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from c2b_ray.audits.kit.backend import ActorsBackend, HereBackend
from c2b_ray.engine.images import CLASSIFY
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.errors import SpecError
from c2b_ray.models import catalog


def test_a_call_runs_in_another_process_and_raises_what_it_raises() -> None:
    runner = OnRay()
    assert runner.call(os.getpid, CLASSIFY) != os.getpid()
    with pytest.raises(SpecError, match="no classifier has the scheme 'timn'; did you mean 'timm'"):
        runner.call(partial(catalog.described, "classifier", "timn:resnet50"), CLASSIFY)
    with pytest.raises(SpecError, match="no classifier has the scheme 'timn'"):
        runner.call_each([os.getpid, partial(catalog.described, "classifier", "timn:resnet50")], CLASSIFY)
    assert runner.call_each([partial(pow, 2, power) for power in range(6)], CLASSIFY) == [1, 2, 4, 8, 16, 32]


def test_many_calls_in_turn_leave_the_process_alive() -> None:
    """Ray 2.60 ends a process that cancels a task just as it completes."""
    runner = OnRay()
    for _ in range(50):
        runner.call_each([os.getpid] * 2, CLASSIFY)


def test_a_model_that_no_file_describes_is_described_where_it_would_run(tmp_path: Path) -> None:
    rows = (f"images/{i:040d}.jpg,cat,1.0" for i in range(400_000))
    (tmp_path / "p.csv").write_text("\n".join(["file,class,probability", *rows]))
    spec = f"table:{tmp_path / 'p.csv'}"
    assert catalog.describe("classifier", spec) is None
    assert ActorsBackend().describe("classifier", spec) == HereBackend().describe("classifier", spec)
