"""What a text mentions, against texts whose meaning is known."""

from random import Random

import pytest

from c2b_ray.world.captions import caption
from c2b_ray.world.queries import FACTORS, long_query, read, short_query
from c2b_ray.world.scenes import sample

SEED = 4711


@pytest.mark.parametrize("make", [long_query, short_query])
def test_it_reads_exactly_what_queries_mention(make: object) -> None:
    random = Random(SEED)
    for scene in sample(3000, SEED):
        query = make(scene, random)  # type: ignore[operator]
        assert read(query.text) == query.mentions, query.text


def test_it_reads_nothing_into_captions_that_the_scene_does_not_have() -> None:
    for scene in sample(1000, SEED):
        found = read(caption(scene, SEED))
        assert found["target_class"] == scene.target_class
        assert all(getattr(scene, name) == value for name, value in found.items())


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", {}),
        ("a photo of something nice", {}),
        ("A RED Mug.", {"target_class": "mug", "colour": "red"}),
        ("a mug beside a chair", {"target_class": "mug"}),
        ("two birds over the sea", {"target_class": "bird", "setting": "beach"}),
        ("a bike without a dog", {"target_class": "bicycle", "companion": "none"}),
        ("a boat, no rain, no stripes", {"target_class": "boat", "weather": "clear", "pattern": "plain"}),
        ("a bus on a clear day", {"target_class": "bus", "weather": "clear"}),
        ("a greenhouse with houseboats", {}),
        ("color: purple, fish", {"colour": "purple", "target_class": "fish"}),
    ],
)
def test_examples(text: str, meaning: dict[str, str]) -> None:
    assert read(text) == meaning


def test_every_value_is_known_by_its_name() -> None:
    for factor, values in FACTORS.items():
        for value in values:
            text = f"no {factor}" if value == "none" else value
            assert read(text) == {factor: value}
