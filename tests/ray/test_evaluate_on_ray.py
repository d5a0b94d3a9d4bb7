"""An evaluation in Ray's actors gives the tables that it gives in this process."""

from __future__ import annotations

import pytest
from alike import assert_alike
from small_configs import EVALUATE

import c2b_ray

pytestmark = pytest.mark.long


def test_actors_give_the_tables_of_one_process(tmp_path):
    here = c2b_ray.evaluate(EVALUATE, tmp_path / "here", via="here")
    actors = c2b_ray.evaluate(EVALUATE, tmp_path / "actors", via="actors")
    assert here.tables.keys() == actors.tables.keys()
    for name, table in here.tables.items():
        assert_alike(actors.tables[name], table)
    assert any(row["tested"] for row in here.truth.to_pylist())
