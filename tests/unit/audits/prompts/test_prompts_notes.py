"""A run that resumes notes what the run that was interrupted had noted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from c2b_ray.audits.prompts import heads
from c2b_ray.audits.prompts.search import write_baselines
from c2b_ray.audits.prompts.steps.tasks import Target
from c2b_ray.audits.prompts.steps.words import leaks_of
from c2b_ray.tables.prompts import WRITTEN


def test_what_pez_found_no_image_of_is_noted_from_the_prompts_that_are_there() -> None:
    found = {"attribute": "colour", "value": "red", "generator": "g", "method": "pez", "prompt": "a bus"}
    targets = [Target(("colour",), (value,)) for value in ("red", "blue")]
    run = SimpleNamespace(has=lambda name: True, read=lambda name: pa.Table.from_pylist([found], WRITTEN))
    config = SimpleNamespace(methods=["pez"], generators={"g": "world:g"}, subjects=[])
    work = SimpleNamespace(run=run, config=config, targets=targets, leaks=lambda target: leaks_of([]), notes=[])
    write_baselines(cast(Any, work))
    assert work.notes == ["g: no image of a template shows blue, so PEZ has nothing to go to."]


def test_heads_that_are_there_were_taught_by_the_judge_too(tmp_path: Any) -> None:
    config = SimpleNamespace(generators={"g": "world:g"}, heads=SimpleNamespace(teacher=None))
    work = SimpleNamespace(config=config, questions={"colour": None}, notes=[])
    with open(heads.path_of(str(tmp_path), "g", "colour"), "wb"):
        pass
    heads.write_heads(cast(Any, work), str(tmp_path))
    assert work.notes == ["The judge taught the heads: it is not independent of the guide."]
