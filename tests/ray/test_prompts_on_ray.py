"""`c2b prompts` in Ray's actors: the same tables as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    "methods": ["templates", "bgps"],
    "evaluation": {"prompts": 2, "images": 2},
    "associations": None,
    "modifiers": None,
}


def test_actors_give_the_tables_of_one_process(tmp_path: Path) -> None:
    here = c2b_ray.search_prompts(CONFIG, tmp_path / "here", "here")
    there = c2b_ray.search_prompts(CONFIG, tmp_path / "actors", "actors")
    for name in ("prompts", "searches", "judged", "methods"):
        assert_alike(there.read(name), here.read(name))
