"""Words of captions that go with wrong answers, found on one half of the images."""

from __future__ import annotations

import numpy as np
from scipy.stats import fisher_exact

from c2b_ray.audits.c2b.finding import FEWEST, MOST_WORDS, telling_words, typical_words, words_of


def test_words_of_the_class_and_of_grammar_are_none():
    assert words_of("A photo of a bus in thick fog, at night", "bus") == {"thick", "fog", "night", "thick fog"}
    assert words_of("two buses near traffic lights", "traffic light") == {"buses", "near", "buses near"}


def test_the_planted_word_comes_first_and_wrong_answers_of_the_other_half_change_nothing():
    random = np.random.default_rng(0)
    fog, red = random.random(400) < 0.25, random.random(400) < 0.5
    captions = [
        f"a photo of a bus{', in fog' if f else ''}{', red paint' if r else ''}" for f, r in zip(fog, red, strict=True)
    ]
    finding = random.random(400) < 0.5
    wrong = np.where(fog, random.random(400) < 0.6, random.random(400) < 0.07)
    found = telling_words(captions, "bus", finding, wrong)
    assert found[0].text == "fog"
    assert (found[0].has == fog).all()
    here = finding
    table = [
        [(fog & wrong & here).sum(), (fog & ~wrong & here).sum()],
        [(~fog & wrong & here).sum(), (~fog & ~wrong & here).sum()],
    ]
    assert found[0].p_value == fisher_exact(table).pvalue
    turned = np.where(finding, wrong, ~wrong)
    assert [one.text for one in telling_words(captions, "bus", finding, turned)] == [one.text for one in found]


def test_two_words_of_the_same_images_are_one_and_rare_words_none():
    captions = ["bus, dense fog"] * 20 + ["bus"] * 40 + ["bus, snow"] * (FEWEST - 1)
    wrong = np.array([True] * 18 + [False] * 42 + [True] * (FEWEST - 1))
    found = telling_words(captions, "bus", np.ones(len(captions), bool), wrong)
    assert [one.text for one in found] == ["fog"], "the shortest of fog, dense and dense fog"
    assert len(telling_words(captions, "bus", np.zeros(len(captions), bool), wrong)) == 0


def test_there_is_a_most_of_words():
    random = np.random.default_rng(1)
    wrong = random.random(200) < 0.3
    captions = [
        "bus " + ", ".join(f"w{k}" for k in range(30) if random.random() < (0.7 if bad else 0.2)) for bad in wrong
    ]
    assert len(telling_words(captions, "bus", np.ones(200, bool), wrong)) == MOST_WORDS


def test_a_cluster_is_named_by_what_its_captions_say_beside_the_others():
    captions = ["bus, in fog, red"] * 10 + ["bus, red"] * 10
    inside = np.arange(20) < 10
    assert typical_words(captions, "bus", inside, np.ones(20, bool)) == ["fog"]
    assert typical_words(captions, "bus", ~inside, np.ones(20, bool)) == []
