"""Planted words in a simulated generator: found, whatever they go together with; where nothing is planted, nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

import numpy as np
import pytest
from scipy.stats import t as student

from c2b_ray.audits.prompts.steps.experiment import (
    STILL_OPEN,
    Block,
    Finding,
    LooksMade,
    Shows,
    SlotDesign,
    analysed,
    contexts_of_second,
    families,
    first_look,
    least_effects,
    left_open,
    pair,
    q_values,
    second_look,
    wanted,
)
from c2b_ray.tables import seed_of

ADJECTIVES = ["rusty", "elegant", "modern", "quiet", "simple", "curious", "polished", "ordinary"]
THINGS = ["fence", "barrel", "ladder", "basket", "bench", "signpost"]
SUBJECTS = ["bus", "mug", "boat", "house", "bird"]
PLANTED = {"rusty": ("night", 0.9), "elegant": ("night", 0.5), "ladder": ("sunset", 0.6), "boat": ("day", 0.6)}
VALUES = ["day", "sunset", "night"]


def prompts(seed: int) -> list[str]:
    """ "rusty" and "bench" mostly go together."""
    random = Random(seed)
    result = []
    for _ in range(150):
        adjective = random.choice(ADJECTIVES)
        thing = "bench" if adjective == "rusty" and random.random() < 0.9 else random.choice(THINGS)
        result.append(f"a photo of a {adjective} {random.choice(SUBJECTS)} near a {thing}")
    return result


def judged(prompt: str, seeds: Sequence[int], value: str, links: dict[str, tuple[str, float]]) -> Shows:
    logs = np.zeros(3)
    for word, (linked, strength) in links.items():
        if word in prompt.split():
            share = 1 / 3 + strength * 2 / 3
            logs += np.log([share if v == linked else (1 - share) / 2 for v in VALUES])
    chances = np.exp(logs) / np.exp(logs).sum()
    drawn = [np.random.default_rng(seed_of(seed, "v")).choice(3, p=chances) for seed in seeds]
    return np.array([VALUES[k] == value for k in drawn], float)


def design(prompts: Sequence[str], words: Sequence[str], sizes: tuple[int, int], seed: int) -> list[SlotDesign]:
    return [first_look(family, SUBJECTS, sizes, 1, seed) for family in families(prompts, words, SUBJECTS, 4, seed)]


def experiment(links: dict[str, tuple[str, float]], seed: int) -> tuple[list[Finding], list[float]]:
    words = [*ADJECTIVES, *THINGS, *SUBJECTS]
    designs = design(prompts(seed), words, (16, 6), seed)
    values = {value: partial(judged, value=value, links=links) for value in VALUES}
    findings = analysed(designs, "lighting", values, 0.05, 0.05)
    return findings, q_values(findings)


def raised(links: dict[str, tuple[str, float]], seed: int) -> set[tuple[str, str]]:
    findings, q = experiment(links, seed)
    return {(one.word, one.value) for one, each in zip(findings, q, strict=True) if each <= 0.05}


def test_planted_words_are_found_and_none_that_goes_with_them() -> None:
    found = [raised(PLANTED, seed) for seed in range(3)]
    truth = {(word, value) for word, (value, _) in PLANTED.items()}
    assert sum(len(one & truth) for one in found) >= 0.8 * 3 * len(truth)
    assert sum(len(one - truth) for one in found) <= 0.05 * max(1, sum(map(len, found)))
    assert all(("bench", "night") not in one for one in found)


def test_where_nothing_is_planted_nothing_is_found() -> None:
    assert sum(len(raised({}, seed)) for seed in range(3)) == 0


def test_words_without_pictures_have_no_effect_and_take_none_from_others() -> None:
    """A generator refuses one word outright, and a context with all its words."""
    refused = min(prompts(5), key=len)

    def seen(prompt: str, seeds: Sequence[int], value: str) -> Shows:
        if "ladder" in prompt or prompt == refused:
            return np.full(len(seeds), np.nan)
        return judged(prompt, seeds, value, PLANTED)

    designs = design(prompts(5), [*ADJECTIVES, *THINGS], (16, 6), 5)
    findings = analysed(designs, "lighting", {v: partial(seen, value=v) for v in VALUES}, 0.05, 0.05)
    assert not [one for one in findings if one.word == "ladder" or np.isnan(one.p_value)]
    rusty = next(one for one in findings if (one.word, one.value) == ("rusty", "night"))
    assert rusty.low > 0.2


def test_the_effect_is_what_the_word_adds() -> None:
    findings, _ = experiment(PLANTED, 5)
    rusty = next(one for one in findings if (one.word, one.value) == ("rusty", "night"))
    assert rusty.low < 0.6 < rusty.high  # from 1/3 (two links in three contexts of ten) to .93
    assert rusty.against == "without it, and other words"
    boat = next(one for one in findings if (one.word, one.value) == ("boat", "day"))
    assert boat.against == "other words"  # a picture of nothing is no comparison


def test_the_seeds_of_a_context_are_the_same_for_every_word() -> None:
    designs = design(prompts(1), ADJECTIVES, (16, 6), 1)
    [one] = designs
    assert len(one.blocks) == 16
    assert len(wanted(designs)) == 16 * 9
    assert len({seeds for _, seeds in wanted(designs)}) == 16


def test_a_family_has_the_contexts_of_every_preposition_and_no_word_by_accident() -> None:
    texts = [f"a photo of a {s} {by} a {t}" for s in SUBJECTS for by in ("near", "beside") for t in THINGS]
    texts += [f"a photo of a rusty {t}" for t in THINGS[:3]]  # a thing where subjects stand
    texts += [f"a photo of a quiet {s} near a bench" for s in SUBJECTS]
    things = next(one for one in families(texts, [*THINGS, *SUBJECTS], SUBJECTS, 4, 0) if "bench" in one.words)
    assert set(things.words) == set(THINGS)
    assert {place.tokens[place.at - 2] for place in things.contexts} == {"near", "beside"}
    assert not things.noun
    assert len(things.contexts) == 3 * len(SUBJECTS)


def two_looks(links: dict[str, tuple[str, float]], seed: int) -> tuple[list[Finding], list[float], list[SlotDesign]]:
    words = [*ADJECTIVES, *THINGS]
    known = families(prompts(seed), words, SUBJECTS, 12, seed)
    designs = [first_look(family, SUBJECTS, (8, 2), 3, seed) for family in known]
    values = {value: partial(judged, value=value, links=links) for value in VALUES}
    first = analysed(designs, "lighting", values, 0.05, 0.05)
    counts = contexts_of_second(first, 40)
    later = [
        second_look(family, counts, SUBJECTS, (len(d.blocks), 2), seed)
        for family, d in zip(known, designs, strict=True)
    ]
    second = [one for one in later if one is not None]
    findings = analysed(second, "lighting", values, 0.05, 0.05)
    return findings, q_values(findings, {pair(one) for one in left_open(first)}), [*designs, *second]


def test_a_second_look_decides_on_contexts_and_seeds_that_the_first_has_not_seen() -> None:
    findings, q, designs = two_looks(PLANTED, 3)
    raised = {(one.word, one.value) for one, each in zip(findings, q, strict=True) if each <= 0.05}
    assert raised == {("rusty", "night"), ("elegant", "night"), ("ladder", "sunset")}
    first, second = designs[:2], designs[2:]
    assert not {s for d in first for b in d.blocks for s in b.seeds} & {
        s for d in second for b in d.blocks for s in b.seeds
    }
    looked = {word: sum(word in block.with_word for d in second for block in d.blocks) for word in ADJECTIVES}
    assert looked["rusty"] < looked["elegant"] <= 40  # the images go where the first look leaves doubt
    assert all(len(block.with_word) <= 5 for block in second[0].blocks)  # few beside the two that are references


def test_what_the_first_look_leaves_out_raises_nothing_and_costs_the_others_nothing() -> None:
    findings, _ = experiment(PLANTED, 5)
    among = [one for one in findings if one.word in ("rusty", "elegant")]
    q = dict(zip(map(pair, findings), q_values(findings, {pair(one) for one in among}), strict=True))
    assert all(q[pair(one)] == 1 for one in findings if one not in among)
    assert [q[pair(one)] for one in among] == q_values(among)


def test_a_small_family_is_followed_whole_as_its_words_have_nothing_else_beside_them() -> None:
    texts = [f"a photo of a {a} {s} near a {t}" for a in ADJECTIVES[:4] for s in SUBJECTS for t in THINGS]
    family = families(texts, ADJECTIVES[:4], SUBJECTS, 12, 0)[0]
    design = second_look(family, {"rusty": 16, "modern": 16}, SUBJECTS, (4, 2), 0)
    assert design is not None
    assert set(design.words) == set(ADJECTIVES[:4])
    assert not design.references
    assert len(design.blocks) == 16
    assert second_look(family, {"boat": 16}, SUBJECTS, (4, 2), 0) is None


def test_contexts_that_all_agree_are_no_more_certain_than_with_one_image_less() -> None:
    def interval(missing: int) -> float:
        blocks = tuple(Block({"red": f"red {n}"}, f"bare {n}", (2 * n, 2 * n + 1)) for n in range(24))

        def shown(prompt: str, seeds: Sequence[int]) -> Shows:
            return np.array([prompt.startswith("red") and seed >= missing for seed in seeds], float)

        [finding] = analysed([SlotDesign(("a", "."), ("red",), blocks)], "x", {"v": shown}, 0.05, 0.05)
        return finding.effect - finding.low

    # One image of 48 less: differences 23 x 1 and 0.5, their standard deviation 0.5 / sqrt(24), the error 0.5 / 24.
    assert interval(1) == pytest.approx(student.ppf(0.975, 23) * 0.5 / 24)
    assert interval(0) == pytest.approx(interval(1))


MADE = LooksMade(decided=20, raising=3, least=0.05, alpha=0.05, most=96)


def looked(differences: np.ndarray) -> Finding:
    """One look at differences by context, by scipy's formulas."""
    count, error = len(differences), differences.std(ddof=1) / np.sqrt(len(differences))
    reach = student.ppf(0.975, count - 1) * error
    mean = float(differences.mean())
    p = float(student.sf((mean - 0.05) / error, count - 1))
    return Finding("old", "light", "night", mean, mean - reach, mean + reach, p, "without it", count, 2 * count)


@pytest.mark.parametrize("effect", [0.1, 0.15, 0.2])
@pytest.mark.parametrize("most", [0, 96])
def test_the_power_is_how_often_the_looks_report_it(effect: float, most: int) -> None:
    random, repeats, reported = np.random.default_rng(7), 1_500, 0
    for _ in range(repeats):
        last = looked(random.normal(effect, 0.3, 24))
        if most:
            if last.p_value >= STILL_OPEN:
                continue
            last = looked(random.normal(effect, 0.3, contexts_of_second([last], most)["old"]))
        reported += last.p_value <= 0.05 * 4 / 21
    made = LooksMade(20, 3, 0.05, 0.05, most)
    assert made.power(effect, 0.3, 24) == pytest.approx(reported / repeats, abs=0.05)


def test_the_least_effect_is_found_four_times_in_five_and_falls_with_contexts() -> None:
    first = [looked(np.random.default_rng(seed).normal(0, 0.3, 24)) for seed in range(40)]
    ((key, least),) = least_effects(first, MADE).items()
    assert key == ("light", "night")
    assert least is not None
    assert MADE.power(least, 0.3, 24) == pytest.approx(0.8, abs=0.05)
    one_look = least_effects(first, LooksMade(20, 3, 0.05, 0.05, 0))[key]
    assert one_look is not None
    assert one_look > least > 0.05


def test_contexts_that_differ_too_much_find_nothing_and_say_so() -> None:
    first = [looked(np.random.default_rng(seed).normal(0, 3.0, 4)) for seed in range(10)]
    assert list(least_effects(first, LooksMade(20, 0, 0.05, 0.05, 0)).values()) == [None]
