"""A file of links gives the links, and names what is wrong in it."""

from pathlib import Path

import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.world.associations import Link, read_links


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("links: [{word: rusty, attribute: weather, value: hail, strength: 1}]", "links.0: .*hail"),
        ("links: [{word: rusty, attribute: weather, value: fog, strength: 1.2}]", r"links.0: .*\[0, 1\]"),
        ("links: [{word: foggy, attribute: weather, value: fog, strength: 1}]", "links.0: .*names a value of weather"),
        ("links: [{word: photo, attribute: weather, value: fog, strength: 1}]", "links.0: .*stands in captions"),
        ("links: [{word: two words, attribute: weather, value: fog, strength: 1}]", "links.0: .*one word"),
        ("links: [{word: rusty, attribute: weather, value: fog, strength: 1, form: verb}]", "links.0: .*no form"),
        ("links: [{word: rusty, attribute: weather, value: fog, power: 1}]", "unknown key"),
        ("links: []\nneutral: {verb: [runs]}", "neutral.verb: .*no form"),
        (
            "links: [{word: rusty, attribute: size, value: small, strength: 0}]\nneutral: {adjective: [rusty]}",
            "linked as well",
        ),
    ],
)
def test_a_wrong_file_names_its_field(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "links.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_links(file)


def test_a_file_of_links(tmp_path: Path) -> None:
    file = tmp_path / "links.yaml"
    file.write_text("links: [{word: quiet, attribute: size, value: small, strength: 0.5, form: object}]")
    links, neutral = read_links(file)
    assert links == (Link("quiet", "size", "small", 0.5, "object"),)
    assert "quiet" not in neutral
    assert "barrel" in neutral
