"""Heads that are there already, and a config that they were not trained for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from c2b_ray.audits.prompts.config import PromptsConfig
from c2b_ray.audits.prompts.heads import path_of, refuse_others, settings_of_head
from c2b_ray.errors import ConfigError
from c2b_ray.models.activation_heads import encoded

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
