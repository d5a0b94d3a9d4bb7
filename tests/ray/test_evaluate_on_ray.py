"""An evaluation in Ray's actors gives the tables that it gives in this process."""

from __future__ import annotations

import pytest
from alike import assert_alike

import c2b_ray

pytestmark = pytest.mark.long

CONFIG = {
    "classes": ["bus"],
    "classifier": {"fog": "world:resnet-planted-0"},
    "truth": {"world": {"scenes": 1000}},
    "methods": {
        "C2B": {
            "images": {"source": "generate", "generator": "world:renderer"},
            "attributes": {"weather": ["clear", "fog"]},
            "captions_per_cell": 1,
            "images_per_caption": 20,
        }
    },
    "b2t": {"captioner": "world:clip", "encoder": "world:clip"},
    "vqa": {"model": "world:clip", "images": 20},
    "retrieval": {"encoder": "world:clip", "shares": [0.5]},
}


def test_actors_give_the_tables_of_one_process(tmp_path):
    here = c2b_ray.evaluate(CONFIG, tmp_path / "here", via="here")
    actors = c2b_ray.evaluate(CONFIG, tmp_path / "actors", via="actors")
    assert here.tables.keys() == actors.tables.keys()
    for name, table in here.tables.items():
        assert_alike(actors.tables[name], table)
    assert any(row["tested"] for row in here.truth.to_pylist())
