"""What a prompts file may hold, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from c2b_ray.audits.prompts.config import read_prompts_config
from c2b_ray.errors import ConfigError

FIELDS: dict[str, Any] = {
    "subjects": ["bus"],
    "attributes": {"lighting": ["day", "night"], "size": {"values": ["small", "large"], "targets": ["large"]}},
    "generators": "world:linked",
    "language_model": "world:lm",
    "judge": "world:clip",
}


def test_values_alone_are_an_attribute_and_a_spec_alone_the_base() -> None:
    config = read_prompts_config(FIELDS)
    assert config.attributes["lighting"].values == ["day", "night"]
    assert config.generators == {"base": "world:linked"}


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "{subjects: [bus], attributes: {l: [a, b]}, generators: {x: 'diffusers:local-dir:m'}, language_model: world:lm,"
        " judge: world:clip, heads: {files: heads}}"
    )
    config = read_prompts_config(tmp_path / "a.yaml")
    assert config.generators["x"] == f"diffusers:local-dir:{tmp_path}/m"
    assert config.heads.files == f"{tmp_path}/heads"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"attributes": {"lighting": ["day"]}},
            "lighting: an attribute needs two values or more, not day",
        ),
        ({"attributes": {"l": {"values": ["a", "b"], "targets": ["c"]}}}, "targets: 'c' is none of the values a, b"),
        ({"attributes": {"l": {"values": ["a", "b"], "texts": {"a": "x"}}}}, "needs a text for each value"),
        ({"intersections": [["lighting"]]}, "needs two attributes or more"),
        ({"intersections": [["lighting", "colour"]]}, "'colour' is none of the attributes"),
        ({"methods": ["pez"]}, "pez needs an `encoder`"),
        ({"reader": "world:lm"}, "must differ from `language_model`"),
        ({"search": {"expansion": 9, "pool": 3}}, r"expansion \(E\) must not exceed pool"),
        ({"subjects": ["bus", "Bus"]}, "is given twice"),
        ({"guides": "heads"}, "did you mean 'guide'"),
    ],
)
def test_a_wrong_file_is_told_by_its_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_prompts_config({**FIELDS, **changes})
