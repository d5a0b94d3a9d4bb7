"""Heads that are there already, and what a resumed run notes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from c2b_ray.audits.prompts import heads
from c2b_ray.audits.prompts.config import PromptsConfig
from c2b_ray.audits.prompts.heads import path_of, refuse_others, settings_of_head
from c2b_ray.audits.prompts.search import write_baselines
from c2b_ray.audits.prompts.steps.tasks import Target
from c2b_ray.audits.prompts.steps.words import leaks_of
from c2b_ray.errors import ConfigError
from c2b_ray.models.activation_heads import encoded
from c2b_ray.tables.prompts import WRITTEN

FIELDS: dict[str, Any] = {
    "subjects": ["bus"],
    "attributes": {"lighting": ["day", "night"]},
    "generators": {"base": "world:hidden"},
    "language_model": "world:prompter",
    "judge": "world:clip",
}


def config_with(**changed: Any) -> PromptsConfig:
    return PromptsConfig.model_validate({**FIELDS, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"heads": {"prompts": 500}},
        {"heads": {"activation": "unet.conv_in"}},
        {"generators": {"base": "world:hidden-control"}},
        {"attributes": {"lighting": ["day", "sunset", "night"]}},
        {"judge": "world:reader"},
    ],
)
def test_heads_of_other_settings_are_not_shown_as_those_of_the_config(tmp_path: Path, changed: Any) -> None:
    """ "Raise heads.prompts", said the run; with more of them the same folder gave the same heads, without a word."""
    about = {"attribute": "lighting", "values": [], "activation": "unet.mid_block", "step": None}
    noted = about | {"settings": settings_of_head(config_with(), "base", "lighting")}
    path = Path(path_of(str(tmp_path), "base", "lighting"))
    path.write_bytes(encoded({}, noted))
    refuse_others(config_with(alpha=0.05), str(tmp_path))
    with pytest.raises(ConfigError, match="trained with other settings; name another folder"):
        refuse_others(config_with(**changed), str(tmp_path))
    path.write_bytes(encoded({}, about))  # of a version that noted none
    refuse_others(config_with(**changed), str(tmp_path))


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
