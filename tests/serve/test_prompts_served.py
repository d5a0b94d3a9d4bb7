"""`c2b prompts` through served models: a search by a served language model and generator, as in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from alike import assert_alike
from small_configs import PROMPTS

import c2b_ray


@pytest.mark.usefixtures("cluster")
def test_served_models_give_the_tables_of_one_process(tmp_path: Path) -> None:
    here = c2b_ray.search_prompts(PROMPTS, tmp_path / "here", "here")
    there = c2b_ray.search_prompts(PROMPTS, tmp_path / "served", "serve")
    for name in ("written", "searches", "prompts", "judged", "methods", "gains"):
        assert_alike(there.read(name), here.read(name))
