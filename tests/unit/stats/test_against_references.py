"""Metrics against references that share no code with them: pandas, SciPy, scikit-learn, or every case counted."""

from __future__ import annotations

from itertools import chain, combinations, permutations, product
from math import ceil

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearson3, ttest_ind

from c2b_ray.stats import max_skew
from c2b_ray.stats import outcomes as bm
from c2b_ray.stats.clustering import kmeans, matched_groups
from c2b_ray.stats.disparity import Chance
from c2b_ray.stats.distances import clustered_consistency, clustered_rate
from c2b_ray.stats.paired import error_consistency
from c2b_ray.stats.resampling import upper_tail
from c2b_ray.stats.skew import mean_max_skew, scored_max_skew

EXACT = {"abs": 1e-9, "rel": 1e-9}


def usual_max_skew(scores, groups, k, from_zero, absent_share, ties):
    """The loop of the code in common use, with its three peculiarities as switches."""
    table = pd.DataFrame({"score": scores, "group": groups})
    top = table.nlargest(k, "score", keep="all") if ties else table.sort_values("score", ascending=False, kind="stable")
    counts = (top if ties else top.head(k))["group"].value_counts()
    most = 0.0 if from_zero else -np.inf
    for group, share in table["group"].value_counts(normalize=True).items():
        shown = counts.get(group, 0) / k
        if shown == 0 and absent_share:
            shown = 1 / k
        if shown > 0:
            most = max(most, np.log(shown / share))
    return most


@pytest.mark.parametrize(
    ("rule", "switches"),
    [
        ("formula", (False, False, False)),
        ("from_zero", (True, False, False)),
        ("absent_share", (False, True, False)),
        ("ties", (False, False, True)),
        ("usual", (True, True, True)),
    ],
)
def test_every_rule_of_max_skew_is_that_of_the_usual_codes_loop(rule, switches):
    random = np.random.default_rng(3)
    for size, levels, kinds in ((1, 1, 1), (7, 1, 2), (13, 3, 3), (31, 99, 4), (31, 5, 31)):
        scores, groups = random.integers(0, levels, size) / 7, random.integers(0, kinds, size)
        groups[0] = kinds  # a value of one item
        for k in {1, size // 2 + 1, size}:
            assert scored_max_skew(scores, groups, k, rule) == pytest.approx(
                usual_max_skew(scores, groups, k, *switches), **EXACT
            )


def test_a_mean_max_skew_is_the_mean_of_max_skews_also_with_one_image_of_a_value_and_k_of_all():
    random = np.random.default_rng(4)
    for size, k in ((3, 1), (3, 3), (17, 5), (17, 17)):
        groups = np.concatenate([[2], np.arange(size - 1) % 2])
        order = np.stack([random.permutation(size) for _ in range(5)])
        result = mean_max_skew(order, groups, 3, k, Chance(permutations=100, resamples=50))
        assert result.value == pytest.approx(np.mean([max_skew(groups[one], k) for one in order]), **EXACT)
        assert result.low <= result.value <= result.high


def test_recall_of_matches_with_ties_is_the_mean_over_all_orders_of_what_is_tied():
    random = np.random.default_rng(5)
    for _ in range(40):
        size = int(random.integers(1, 7))
        score = np.sort(random.integers(0, 3, size))[::-1]
        marks, share = random.random(size) < 0.6, float(random.choice([0.01, 0.3, 0.5, 1.0]))
        result = bm.recall_of_matches(marks, share, score)
        total = int(marks.sum())
        if not total:
            assert np.isnan(result.recall)
            continue
        k = max(1, ceil(round(share * total, 9)))
        orders = [one for one in permutations(range(size)) if (np.diff(score[list(one)]) <= 0).all()]
        hits = np.mean([marks[list(one)][:k].sum() for one in orders])
        assert result.k == k
        assert result.recall == pytest.approx(hits / total, **EXACT)
        assert result.reachable == pytest.approx(hits / min(k, total), **EXACT)


def test_keyword_scores_are_welchs_also_with_two_images_and_with_equal_ones():
    random = np.random.default_rng(6)
    for wrong, right in ((2, 2), (2, 91), (40, 3)):
        a, b = random.normal(0.2, 0.03, (wrong, 4)), random.normal(0.2, 0.03, (right, 4))
        result = bm.keyword_scores(a, b)
        assert result.score == pytest.approx(100 * (a.mean(0) - b.mean(0)), **EXACT)
        assert result.p_value == pytest.approx(ttest_ind(a, b, equal_var=False).pvalue, **EXACT)
    assert np.isnan(bm.keyword_scores(np.ones((1, 1)), np.ones((5, 1))).p_value).all()
    assert bm.keyword_scores(np.ones((3, 1)), np.ones((5, 1))).p_value.tolist() == [1.0]


def inertia(vectors, labels):
    return sum(((vectors[labels == one] - vectors[labels == one].mean(0)) ** 2).sum() for one in np.unique(labels))


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_kmeans_finds_the_best_of_all_partitions_of_a_few_vectors(k):
    random = np.random.default_rng(7)
    for repeat in range(4):
        vectors = random.normal(0, 1, (7, 2))
        if repeat == 3:
            vectors[1:3] = vectors[0]  # copies
        best = (
            min(inertia(vectors, np.array(labels)) for labels in product(range(k), repeat=6 if k == 7 else 7))
            if (k < 7)
            else 0.0
        )
        assert inertia(vectors, kmeans(vectors, k)) == pytest.approx(best, **EXACT)


def packings(groups):
    """Every set of groups of which no two share a cluster."""
    for some in chain.from_iterable(combinations(groups, size) for size in range(len(groups) + 1)):
        if all(a != b for one, other in combinations(some, 2) for a, b in zip(one[0], other[0], strict=True)):
            yield some


@pytest.mark.parametrize("least", [1, 2, 3])
def test_matched_clusters_are_the_best_also_with_ties_gaps_and_unequal_numbers_of_clusters(least):
    random = np.random.default_rng(8)
    for _ in range(60):
        clusters = random.integers(1, 5, int(random.integers(1, 5)))  # k differs from model to model
        labels = np.stack([random.integers(0, k, 9) * 3 for k in clusters])  # clusters 1, 2, 4, 5 … are empty
        held = {}
        for item, column in enumerate(map(tuple, labels.T.tolist())):
            held.setdefault(column, []).append(item)
        groups = [(column, items) for column, items in held.items() if len(items) >= least]
        shared = {one.clusters: one.members.tolist() for one in matched_groups(labels, least)}
        assert shared == dict(groups)
        once = matched_groups(labels, least, "once")
        assert sum(len(one.members) for one in once) == max(sum(len(g[1]) for g in some) for some in packings(groups))
        assert all(shared[one.clusters] == one.members.tolist() for one in once)
        assert all(a != b for x, y in combinations(once, 2) for a, b in zip(x.clusters, y.clusters, strict=True))


def test_an_upper_tail_counts_and_beyond_what_it_can_count_is_pearsons():
    random = np.random.default_rng(9)
    drawn = random.gamma(3, 1, 2000)
    assert upper_tail(5.0, drawn) == pytest.approx((1 + (drawn >= 5.0).sum()) / 2001, **EXACT)
    skewness = ((drawn - drawn.mean()) ** 3).mean() / drawn.std() ** 3
    far = drawn.max() + 6
    assert upper_tail(far, drawn) == pytest.approx(pearson3.sf(far, skewness, drawn.mean(), drawn.std()), rel=1e-7)
    assert upper_tail(2.0, np.full(99, 2.0)) == 1.0


def test_rates_and_consistencies_over_captions_are_those_of_all_images():
    random = np.random.default_rng(10)
    a, b = random.random(57) < 0.4, random.random(57) < 0.3
    caption = random.integers(0, 9, 57)
    per = [np.bincount(caption, values, 9).astype(int) for values in (a, b, a & b, np.ones(57))]
    assert clustered_rate(per[0], per[3]).value == pytest.approx(a.mean(), **EXACT)
    assert clustered_consistency(*per).value == pytest.approx(error_consistency(~a, ~b), **EXACT)
