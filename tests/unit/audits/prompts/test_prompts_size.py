"""What counts as a small search for prompts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from c2b_ray.audits.kit.backend import SMALL_RUN
from c2b_ray.audits.prompts.config import PromptsConfig
from c2b_ray.audits.prompts.estimate import images_by_part, most_images
from c2b_ray.audits.prompts.steps.experiment import families, first_look, second_look, wanted

ADJECTIVES = ["rusty", "quiet", "modern"]
THINGS = ["fence", "bench", "ladder", "barrel"]

SMALL = {
    "subjects": ["bus"],
    "attributes": {"lighting": {"values": ["day", "night"]}},
    "generators": {"base": "world:linked"},
    "language_model": "world:prompter",
    "judge": "world:clip",
    "guide": "judge",
    "search": {"weights": [100], "images": 4},
    "evaluation": {"prompts": 2, "images": 5},
    "associations": None,
    "modifiers": None,
}


def test_a_small_search_is_small_and_what_it_is_multiplied_by_counts() -> None:
    small = most_images(PromptsConfig.model_validate(SMALL))
    assert small == 2 * (5 * 2 * 5 + 24 * 16 * 2)
    assert small <= SMALL_RUN
    fixed = PromptsConfig.model_validate({**SMALL, "search": {"weights": [100], "images": 4, "raced": False}})
    assert most_images(fixed) == 2 * (5 * 2 * 5 + 24 * 16 * 4)
    two = PromptsConfig.model_validate({**SMALL, "generators": {"base": "world:linked", "other": "world:hidden"}})
    assert most_images(two) == 2 * small
    heads = PromptsConfig.model_validate({**SMALL, "guide": "heads"})
    assert most_images(heads) == small + 120 * 4
    assert most_images(PromptsConfig.model_validate({**SMALL, "evaluation": {"prompts": 200}})) > SMALL_RUN


def test_a_second_look_at_words_is_counted_as_if_every_word_needed_it() -> None:
    words = {"words": 10, "contexts": 8, "images": 2, "follow_up": 0}
    nothing = most_images(PromptsConfig.model_validate(SMALL))
    one = most_images(PromptsConfig.model_validate({**SMALL, "associations": words})) - nothing
    assert one == 2 * 10 * 8 * 2
    two = most_images(PromptsConfig.model_validate({**SMALL, "associations": {**words, "follow_up": 20}})) - nothing
    assert two == one + 2 * 10 * 20 * 2
    by_default = {name: value for name, value in words.items() if name != "follow_up"}
    four_times = most_images(PromptsConfig.model_validate({**SMALL, "associations": by_default})) - nothing
    assert four_times == one + 2 * 10 * 4 * 8 * 2


def test_the_command_says_what_each_part_asks_for_and_starts_nothing(c2b, tmp_path: Path) -> None:
    words = {"words": 10, "contexts": 8, "images": 2}
    config = {**SMALL, "associations": words}
    (tmp_path / "prompts.yaml").write_text(json.dumps(config))
    status, out, _ = c2b("prompts", tmp_path / "prompts.yaml", "--estimate", "--json")
    told = json.loads(out)
    assert status == 0
    assert told["images_at_most"]["words, first look"] == 2 * 10 * 8 * 2
    assert told["images_at_most"]["words, second look"] == 2 * 10 * 32 * 2
    assert told["total"] == most_images(PromptsConfig.model_validate(config))
    an_image = {round(told["most_seconds"][name] / count, 9) for name, count in told["images_at_most"].items() if count}
    assert len(an_image) == 1
    assert an_image.pop() > 0
    assert [path.name for path in tmp_path.iterdir()] == ["prompts.yaml"]


def test_the_estimate_speaks_of_activations_only_where_heads_read_them(c2b, tmp_path: Path) -> None:
    for guide, reads in (("judge", False), ("heads", True)):
        (tmp_path / "prompts.yaml").write_text(json.dumps({**SMALL, "guide": guide}))
        _, out, _ = c2b("prompts", tmp_path / "prompts.yaml", "--estimate")
        assert ("activations" in out) == reads
        assert "0 minutes" not in out, "a most that rounds to nothing is no most"
        assert re.search(r"At most (?=[\d.]*[1-9])[\d.]+\W(s|min \d+\Ws) of one process", out), out


@pytest.mark.parametrize("words", [["rusty"], ["rusty", "fence"], ["rusty", "quiet", "fence", "bench", "ladder"]])
def test_no_look_at_words_draws_more_than_the_estimate_says(words: list[str]) -> None:
    texts = [f"a photo of a {a} {s} near a {t}" for a in ADJECTIVES for s in ("bus", "mug", "bird") for t in THINGS]
    sizes = {"words": len(words), "contexts": 4, "images": 2, "follow_up": 6}
    most = images_by_part(PromptsConfig.model_validate({**SMALL, "associations": sizes}))
    known = families(texts, words, ["bus"], 4, 0)
    first = [first_look(family, ["bus"], (4, 2), 3, 0) for family in known]
    counts = dict.fromkeys(words, 6)
    second = [second_look(family, counts, ["bus"], (4, 2), 0) for family in known]
    for designs, part in ((first, "words, first look"), ([one for one in second if one], "words, second look")):
        assert 0 < sum(len(seeds) for _, seeds in wanted(designs)) <= most[part]
