"""Hidden associations: their links, what they do to scenes, and files of links."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.world.associations import (
    LINKS,
    NEUTRAL,
    Link,
    draw_views,
    expected_frequency,
    hidden_attributes,
    read_links,
    sample_linked,
    value_probabilities,
    without_effect,
    words_of,
)
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import ATTRIBUTES, sample

TWO = (Link("rusty", "weather", "fog", 0.6), Link("quiet", "weather", "rain", 0.6))


def test_probabilities_of_one_and_of_two_linked_words() -> None:
    # 1/4 + 0.6 * 3/4 = 0.7, the other three share 0.3; two words: (0.7 * 0.1, 0.1 * 0.7, 0.1 * 0.1, 0.1 * 0.1) / 0.16
    np.testing.assert_allclose(value_probabilities(["rusty"], "weather", TWO), [0.1, 0.1, 0.1, 0.7])
    both = [0.01 / 0.16, 0.07 / 0.16, 0.01 / 0.16, 0.07 / 0.16]
    np.testing.assert_allclose(value_probabilities(["rusty", "quiet"], "weather", TWO), both)
    np.testing.assert_allclose(value_probabilities(["rusty"], "lighting", TWO), [1 / 3] * 3)
    opposed = (Link("rusty", "size", "small", 1.0), Link("quiet", "size", "large", 1.0))
    np.testing.assert_allclose(value_probabilities(["rusty", "quiet"], "size", opposed), [0.5, 0.5])


def test_views_of_a_scene_show_each_value_in_its_proportion() -> None:
    scene = sample(1, 3)[0]
    control = draw_views(scene, ["rusty"], without_effect(LINKS), 6, "seed")
    assert Counter(view.lighting for view in control) == dict.fromkeys(ATTRIBUTES["lighting"], 2)
    assert len({(view.lighting, view.weather) for view in control}) > 3  # attributes are drawn independently
    assert {view.colour for view in control} == {scene.colour}  # no link, so captions may name it
    nights = [sum(v.lighting == "night" for v in draw_views(scene, ["rusty"], LINKS, 4, f"{n}")) for n in range(400)]
    assert set(nights) <= {3, 4}  # P(night | rusty) = .933 of 4
    assert np.mean(nights) == pytest.approx(4 * (1 / 3 + 0.9 * 2 / 3), abs=0.05)


def test_a_prompt_that_names_the_attribute_has_it() -> None:
    assert expected_frequency("A rusty bus.", "weather", "fog", TWO) == pytest.approx(0.7)
    assert expected_frequency("a rusty bus in the rain", "weather", "fog", TWO) == 0
    assert expected_frequency("a trusty bus", "weather", "fog", TWO) == 0.25
    with pytest.raises(ValueError, match="hail"):
        expected_frequency("a bus", "weather", "hail", TWO)


def test_captions_hide_what_their_words_go_with() -> None:
    rows = sample_linked(6000, 3)
    hidden = set(hidden_attributes(LINKS))
    assert not [caption for _, caption in rows if hidden & set(read(caption))]
    for link in LINKS:
        shown = [getattr(s, link.attribute) == link.value for s, c in rows if link.word in words_of(c)]
        assert abs(np.mean(shown) - link.probability) < 4.5 * np.sqrt(0.25 / len(shown)) + 0.03  # other words are in it
    for word in NEUTRAL:
        scenes = [scene for scene, caption in rows if word in words_of(caption)]
        for name in hidden:
            shares = [np.mean([getattr(scene, name) == value for scene in scenes]) for value in ATTRIBUTES[name]]
            np.testing.assert_allclose(shares, 1 / len(shares), atol=4.5 * np.sqrt(0.25 / len(scenes)))
    assert rows[:50] == sample_linked(50, 3)


def test_a_control_has_the_same_words_and_no_gap() -> None:
    rows = sample_linked(4000, 5, without_effect(LINKS))
    assert {word for _, caption in rows for word in words_of(caption)} >= {link.word for link in LINKS}
    foggy = [scene.weather == "fog" for scene, caption in rows if "vintage" in words_of(caption)]
    assert np.mean(foggy) == pytest.approx(0.25, abs=0.1)


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
