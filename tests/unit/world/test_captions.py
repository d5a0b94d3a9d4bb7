"""Captions vary, tell the truth and are the same every time."""

import re
from dataclasses import replace

import pytest

from c2b_ray.world import ATTRIBUTES, CLASSES, caption, sample
from c2b_ray.world.captions import ADJECTIVES, PHRASES

SCENES = sample(2000, 0)


def test_a_caption_depends_on_scene_and_seed_alone() -> None:
    assert [caption(scene, 3) for scene in SCENES[:50]] == [caption(scene, 3) for scene in SCENES[:50]]
    assert [caption(scene, 3) for scene in SCENES[:50]] != [caption(scene, 4) for scene in SCENES[:50]]


def test_one_scene_has_many_captions() -> None:
    assert len({caption(SCENES[0], seed) for seed in range(1000)}) > 500


def test_the_class_word_is_there_and_no_other() -> None:
    for k, scene in enumerate(SCENES):
        words = set(re.findall(r"[a-z]+", caption(scene, k).lower()))
        assert words & set(CLASSES) == {scene.target_class}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_no_caption_uses_another_values_word(name: str) -> None:
    for k, scene in enumerate(SCENES):
        words = set(re.findall(r"[a-z]+", caption(scene, k).lower())) - {"none"}
        assert words & set(ATTRIBUTES[name]) <= {scene.attribute(name)}, (scene, caption(scene, k))


def test_a_caption_reads_as_text() -> None:
    for k, scene in enumerate(SCENES):
        text = caption(scene, k)
        assert text == text.strip()
        assert not re.search(r"  | ,|,,|\.\.|\ba (airplane|umbrella)\b", text, re.IGNORECASE), text


def test_phrases_cover_every_value_and_complete_a_noun() -> None:
    assert {name: set(values) for name, values in PHRASES.items()} == {n: set(v) for n, v in ATTRIBUTES.items()}
    for values in PHRASES.values():
        for phrases in values.values():
            assert len(set(phrases)) == len(phrases) >= 4
    for name, adjectives in ADJECTIVES.items():
        assert set(adjectives) <= set(ATTRIBUTES[name])


def test_plain_templates_lie_in_the_distribution() -> None:
    scene = replace(SCENES[0], target_class="bus", colour="red", lighting="night", setting="beach", weather="rain")
    text = "\n".join(caption(scene, seed) for seed in range(4000))
    for wanted in ("setting: beach", "with lighting night", "weather is rain", "red bus", "at night", "on a beach"):
        assert wanted in text


def test_most_attributes_are_mentioned_most_of_the_time() -> None:
    scenes = [scene for scene in SCENES if scene.companion == "dog"]
    share = sum("dog" in caption(scene, 0) for scene in scenes) / len(scenes)
    # 0.25 name all seven, the others each with p = 0.7: 0.25 + 0.75 * 0.7 = 0.775.
    assert 0.7 < share < 0.85
