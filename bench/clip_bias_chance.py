"""Tests `c2b clip-bias` on simulated scores and embeddings, with and without planted biases; times its matching.

    python bench/clip_bias_chance.py [matching] [local] [order] [coverage] [lic] [--seeds N] [--quick]

matching: times the matching of 29 clusterings of 5,000 images (k = 6) on one core, once for noisy copies of one
clustering and once for unrelated ones.

local: 12 models and three localities of 500 images, which k-means finds in noisy embeddings. In one locality, a value
of the attribute is recalled less often; in the others it is recalled slightly more often, so that both values fare
alike over all images.

order: 12 models whose recall differs between groups by their skew; two pairs of models have equal skew.

coverage: how often intervals contain the truth, with up to five captions of an image that share its difficulty, and how
often the test tells apart two models of equal bias.

lic: the same where the captions of a model and of people reveal the attribute equally well.

It prints the rows of a table: what, wanted, got.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from c2b_ray.audits.clip_bias.steps.leakage import GuessingTask, guess, leak_of, table
from c2b_ray.audits.clip_bias.steps.measure import (
    PRETRAINING,
    Attribute,
    Key,
    MeasuredModels,
    measure_disparity,
    views_of,
    with_q_values,
)
from c2b_ray.audits.clip_bias.steps.relations import pair_table
from c2b_ray.models.group_guessers import BagOfWords
from c2b_ray.stats import Floats, Ints, max_skew
from c2b_ray.stats.clustering import kmeans, matched_groups
from c2b_ray.stats.disparity import Chance, Scores, disparity, kl_of_rates
from c2b_ray.stats.resampling import difference_of, rank_correlation
from c2b_ray.stats.skew import mean_max_skew

MODELS, IMAGES, LOCALITIES = 12, 1500, 3
ALPHA = 0.05
Say = Callable[[str, str, str], None]


def matching(seeds: int, say: Say) -> None:
    for name, noise in (("2 % of images elsewhere", 0.02), ("30 % elsewhere", 0.3), ("unrelated", 1.0)):
        for reuse in ("shared", "once"):
            slowest, groups = 0.0, []
            for seed in range(seeds):
                labels = _clusterings(29, 5000, 6, noise, seed)
                began = time.process_time()
                groups = matched_groups(labels, 1, reuse)
                slowest = max(slowest, time.process_time() - began)
            sizes = [len(group.members) for group in groups[:6]]
            say(f"matching of 29 clusterings, {name}, {reuse}", "<= 10 s", f"{slowest:.2f} s; groups of {sizes}")


def _clusterings(number: int, items: int, k: int, noise: float, seed: int) -> Ints:
    random = np.random.default_rng(seed)
    true = random.integers(0, k, items)
    moved = random.random((number, items)) < noise
    names = np.stack([random.permutation(k)[true] for _ in range(number)])
    return np.where(moved, random.integers(0, k, (number, items)), names)


def local(seeds: int, say: Say) -> None:
    found, silent, false, discoveries = [], [], 0, 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        place, coin = random.integers(0, LOCALITIES, IMAGES), random.integers(0, 2, IMAGES)
        embeddings = [_space(place, random) for _ in range(MODELS)]
        labels = np.stack([kmeans(one, LOCALITIES, seed, starts=3) for one in embeddings])
        groups = [group.members for group in matched_groups(labels, 100)]
        worse = np.where(place == 0, -0.25, 0.125) * (coin == 1)
        biased = {f"m{number}": number < MODELS // 2 for number in range(MODELS)}
        scores = {
            model: ((random.random(IMAGES) < 0.6 + worse * bias).astype(float), np.ones(IMAGES))
            for model, bias in biased.items()
        }
        rows = _rows(scores, Attribute.of("coin", [["heads", "tails"][one] for one in coin]), groups, seed)
        here = next(str(at) for at, members in enumerate(groups, 1) if (place[members] == 0).mean() > 0.5)
        found += [row.q_value <= ALPHA for row in rows if biased[row.model] and row.key.group == here]
        silent += [row.value_low == 0 for row in rows if biased[row.model] and row.key.group == "all"]
        false += sum(row.q_value <= ALPHA for row in rows if not biased[row.model])
        discoveries += sum(row.q_value <= ALPHA for row in rows)
    say(f"local bias found in its group (q <= .05), {seeds} seeds x 6 models", ">= 4 of 5", f"{np.mean(found):.2f}")
    say("while the interval over all images holds 0", "", f"{np.mean(silent):.2f}")
    say("false among findings", "<= .05", f"{false} of {discoveries}")


def _space(place: Ints, random: np.random.Generator) -> Floats:
    centres = random.normal(size=(LOCALITIES, 16))
    vectors: Floats = centres[place] * 2 + random.normal(size=(len(place), 16))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _rows(scores: dict[str, tuple[Floats, Floats]], attribute: Attribute, groups: list[Ints], seed: int) -> list:
    measured = MeasuredModels()
    for view in views_of(len(attribute.codes), groups):
        key = Key("d", "kl_recall@5", attribute.name, view.view, view.group, PRETRAINING)
        measure_disparity(measured, key, scores, (attribute, view), Chance(1000, 200, seed))
    return with_q_values(measured.biases)


def order(seeds: int, say: Say) -> None:
    skews = [0.0, 0.0, 0.04, 0.08, 0.12, 0.16, 0.2, 0.2, 0.24, 0.28, 0.32, 0.36]
    rhos, lows, alike, apart = [], [], [], []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        coin = random.integers(0, 2, IMAGES)
        attribute = Attribute.of("coin", [["heads", "tails"][one] for one in coin])
        scores = {
            f"m{number}": ((random.random(IMAGES) < 0.7 - skew * coin).astype(float), np.ones(IMAGES))
            for number, skew in enumerate(skews)
        }
        rows = _rows(scores, attribute, [], seed)
        result = rank_correlation(skews, [row.value for row in rows])
        rhos.append(float(result.rho))
        lows.append(float(result.low))
        verdicts = {
            (row["model_a"], row["model_b"]): row["verdict"] == "apart"
            for row in pair_table(rows, ALPHA, 0.0).to_pylist()
        }
        alike += [not verdicts["m0", "m1"], not verdicts["m6", "m7"]]
        apart.append(verdicts["m0", "m11"])
    say("order of models against their skew: Spearman, least", ">= .8", f"{min(rhos):.2f}")
    say("its lower 95 % limit, least", "> .4", f"{min(lows):.2f}")
    say("pairs of equal skew not told apart", "all", f"{np.mean(alike):.2f}")
    say("the least and the most skewed told apart", "", f"{np.mean(apart):.2f}")


def coverage(seeds: int, say: Say) -> None:
    repeats = 100 * seeds
    for rates, sizes in (
        ((0.6, 0.6), (150, 40)),
        ((0.6, 0.4), (150, 50)),
        ((0.9, 0.5), (30, 30)),
        ((0.6, 0.5, 0.4), (100, 50, 30)),
        ((0.25, 0.04), (200, 25)),
    ):
        random = np.random.default_rng(7)
        groups = np.repeat(np.arange(len(rates)), sizes)
        p = np.array(rates)[groups]
        chances = random.beta(p * 1.5, (1 - p) * 1.5, (repeats, len(groups)))
        counts = random.integers(1, 6, chances.shape)
        scores = Scores(random.binomial(counts, chances).astype(float), counts.astype(float))
        result = disparity(scores, groups, len(rates), Chance(300, 10))
        true = float(kl_of_rates(rates))
        held = np.mean((result.low <= true) & (true <= result.high))
        called = np.mean(result.p_value <= ALPHA)
        say(
            f"KL of rates {rates}, images {sizes}: 95 % interval holds it",
            ".95",
            f"{held:.3f} (p <= .05: {called:.3f})",
        )
    for lean in (0.0, 0.3, 0.8):
        _skew_coverage(lean, 20 * seeds, say)
    for lean in (0.0, 0.3, 0.8):
        _equal_models(lean, 20 * seeds, say)


def _equal_models(lean: float, repeats: int, say: Say) -> None:
    """Compares two models of equal bias on the same images, by KL of recall and by MaxSkew of 8 texts, each with a lean
    of its own."""
    random, apart = np.random.default_rng(13), {"KL of recall": [], "MaxSkew@80": []}
    for seed in range(repeats):
        coin = random.integers(0, 2, 800)
        attribute = Attribute.of("coin", [["heads", "tails"][one] for one in coin])
        ease = random.normal(size=800)  # of each image, the same for both models
        models = {
            name: ((0.5 + 0.7 * ease + random.normal(size=800) > 0.6 * lean * coin).astype(float), np.ones(800))
            for name in ("a", "b")
        }
        (pair,) = pair_table(_rows(models, attribute, [], seed), ALPHA, 0.0).to_pylist()
        apart["KL of recall"].append(pair["p_value"] <= ALPHA)
        groups, base = (random.random(800) < 0.4).astype(np.int64), random.normal(size=800)
        skews = [mean_max_skew(_ranked(groups, lean, base, random), groups, 2, 80, Chance(20, 300)) for _ in range(2)]
        a, b = skews
        _, _, p_value = difference_of(a.replicates, b.replicates, (a.value, b.value), 1 - ALPHA)
        apart["MaxSkew@80"].append(p_value <= ALPHA)
    for metric, called in apart.items():
        say(f"two models of one {metric}, lean {lean}: told apart at p <= .05", "<= .05", f"{np.mean(called):.3f}")


def _ranked(groups: Ints, lean: float, base: Floats, random: np.random.Generator) -> Ints:
    """Returns a model's rankings by 8 texts. Their leans are drawn around `lean`; half of them lean the other way."""
    signs = np.where(np.arange(8) % 2, 1, -1) * random.normal(lean, 0.15, 8)
    scores = signs[:, None] * groups + 0.5 * base + random.normal(size=(8, len(groups)))
    return np.argsort(-scores, axis=1)


def _skew_coverage(lean: float, repeats: int, say: Say) -> None:
    random = np.random.default_rng(11)
    groups, ranked = _rankings(200_000, lean, random)
    true = float(np.mean([max_skew(groups[one], 20_000) for one in ranked])) if lean else 0.0
    found = []
    for _ in range(repeats):
        groups, ranked = _rankings(800, lean, random)
        found.append(mean_max_skew(ranked, groups, 2, 80, Chance(300, 300)))
    held = np.mean([one.low <= true <= one.high for one in found])
    called = np.mean([one.p_value <= ALPHA for one in found])
    value = np.mean([one.value for one in found])
    got = f"{held:.3f} (true {true:.3f}, measured {value:.3f}; p <= .05: {called:.3f})"
    say(f"mean MaxSkew@80 of 8 texts, lean {lean}: 95 % interval holds it", ".95", got)


def _rankings(items: int, lean: float, random: np.random.Generator) -> tuple[Ints, Ints]:
    groups = (random.random(items) < 0.4).astype(np.int64)
    signs = np.where(np.arange(8) % 2, 1, -1)[:, None]
    scores = lean * signs * groups + 0.5 * random.normal(size=items) + random.normal(size=(8, items))
    return groups, np.argsort(-scores, axis=1)


def lic(seeds: int, say: Say) -> None:
    random, held = np.random.default_rng(1), []
    for _ in range(8 * seeds):
        groups = random.integers(0, 2, 150)
        ours, people = (_captions(groups, random) for _ in range(2))
        scores = [np.stack([_guessed(one, groups, 0)]) for one in (ours, people)]
        null = []
        for swap in range(12):
            moved = random.random(len(groups)) < 0.5
            sides = [(b, a) if change else (a, b) for a, b, change in zip(ours, people, moved, strict=True)]
            first, second = (_guessed([side[at] for side in sides], groups, swap) for at in (0, 1))
            null.append(first.mean() - second.mean())
        leak = leak_of(scores[0], scores[1], np.array(null), 0.95)
        held.append(leak.low <= 0 <= leak.high)
    say("LIC of captions that tell as much as people's: interval holds 0", ".95", f"{np.mean(held):.3f} of {len(held)}")


def _captions(groups: Ints, random: np.random.Generator) -> list[str]:
    told = np.where(random.random(len(groups)) < 0.5, groups, random.integers(0, 2, len(groups)))
    return [f"a {['kitchen', 'street'][one]} scene {random.integers(9)}" for one in told]


def _guessed(texts: list[str], groups: Ints, seed: int) -> Floats:
    one = GuessingTask(tuple(texts), tuple(groups.tolist()), 2, 5, seed, BagOfWords.name)
    (row,) = guess(table([one]), BagOfWords()).to_pylist()
    return np.array(row["scores"])


def _print_row(what: str, wanted: str, got: str) -> None:
    print(f"| {what} | {wanted} | {got} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *_PARTS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="One seed.")
    options = parser.parse_args()
    print("| what | wanted | got |\n|---|---|---|")
    for name in options.parts or _PARTS:
        _PARTS[name](1 if options.quick else options.seeds, _print_row)


_PARTS = {"matching": matching, "local": local, "order": order, "coverage": coverage, "lic": lic}


if __name__ == "__main__":
    main()
