"""`c2b prompts` in Ray's actors: the same tables as in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from alike import assert_alike
from small_configs import PROMPTS

import c2b_ray

pytestmark = pytest.mark.long


def test_actors_give_the_tables_of_one_process(tmp_path: Path) -> None:
    here = c2b_ray.search_prompts(PROMPTS, tmp_path / "here", "here")
    there = c2b_ray.search_prompts(PROMPTS, tmp_path / "actors", "actors")
    for name in ("prompts", "searches", "judged", "methods"):
        assert_alike(there.read(name), here.read(name))
