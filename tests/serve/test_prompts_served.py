"""`c2b prompts` through served models: a search by a served language model and generator, as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alike import assert_alike

import c2b_ray

CONFIG: dict[str, Any] = {
    "subjects": ["bus", "mug"],
    "attributes": {"lighting": {"values": ["day", "night"], "targets": ["night"]}},
    "generators": {"base": "world:linked"},
    "language_model": "world:lm",
    "judge": "world:clip",
    "guide": "judge",
    "search": {"weights": [10], "images": 2, "beams": 2, "expansion": 2, "pool": 4, "most_tokens": 6, "keep": 1},
    "methods": ["llm", "bgps"],
    "evaluation": {"prompts": 2, "images": 2},
    "associations": None,
    "modifiers": None,
}


@pytest.mark.usefixtures("cluster")
def test_served_models_give_the_tables_of_one_process(tmp_path: Path) -> None:
    here = c2b_ray.search_prompts(CONFIG, tmp_path / "here", "here")
    there = c2b_ray.search_prompts(CONFIG, tmp_path / "served", "serve")
    for name in ("written", "searches", "prompts", "judged", "methods", "gains"):
        assert_alike(there.read(name), here.read(name))
