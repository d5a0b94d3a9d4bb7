import numpy as np
import pytest

from c2b_ray.stats import crossed, interaction_p_values
from c2b_ray.stats.interaction import separated

TAU, ALPHA = 0.05, 0.05


def table(truth, rng, images=200):
    total = np.full(np.shape(truth), images)
    return crossed(rng.binomial(total, truth), total)


def exactly(truth, images=200):
    return crossed(np.round(np.asarray(truth) * images), np.full(np.shape(truth), images))


def findings(result):
    return [tuple(cell) for cell in np.argwhere(result.findings).tolist()]


def test_one_bad_cell_is_one_finding_and_the_others_are_its_shadows():
    truth = np.full((3, 4), 0.95)
    truth[1, 2] = 0.35
    counts = exactly(truth)
    assert (interaction_p_values(counts, TAU) < 0.001).sum() == 6  # the cells of its row and column, and itself
    (found,) = separated([counts], TAU, ALPHA)
    assert findings(found) == [(1, 2)]
    assert found.folded.tolist() == [[-1, -1, 6, -1], [6, 6, -1, 6], [-1, -1, 6, -1]]
    assert (np.delete(found.q_value.ravel(), 6) == 1).all()


def test_two_bad_cells_are_two_findings_also_in_one_row():
    for cells in ([(0, 0), (2, 3)], [(1, 0), (1, 2)]):
        truth = np.full((3, 4), 0.9)
        for cell in cells:
            truth[cell] = 0.4
        (found,) = separated([exactly(truth)], TAU, ALPHA)
        assert findings(found) == cells


def test_two_bad_cells_in_a_row_of_three_are_not_one_good_cell_in_a_bad_row():
    (found,) = separated([exactly([[0.9, 0.9, 0.9], [0.5, 0.5, 0.9], [0.9, 0.9, 0.9]])], TAU, ALPHA)
    assert findings(found) == [(1, 0), (1, 1)]
    assert found.folded[1, 2] in (3, 4)  # which had the largest interaction of all at first
    good = [[0.5, 0.5, 0.5], [0.5, 0.5, 0.9], [0.5, 0.5, 0.5]]
    assert findings(separated([exactly(good)], TAU, ALPHA)[0]) == [(1, 2)]


def test_a_bad_row_is_a_main_effect_and_no_interaction():
    truth = np.full((3, 4), 0.9)
    truth[1] = 0.4
    (found,) = separated([exactly(truth)], TAU, ALPHA)
    assert findings(found) == []
    assert (found.folded == -1).all()


def test_of_two_by_two_the_worst_cell_is_told_and_its_mirror_images_are_folded():
    (found,) = separated([exactly([[0.95, 0.9], [0.9, 0.4]])], TAU, ALPHA)
    assert findings(found) == [(1, 1)]
    assert found.folded.tolist() == [[-1, 3], [3, -1]]  # 95 % where 140 % would be expected was no finding at first
    (found,) = separated([exactly([[0.75, 0.7], [0.75, 0.45]])], TAU, ALPHA)
    assert findings(found) == [(1, 1)]
    assert found.folded.tolist() == [[3, 3], [3, -1]]


def test_all_tables_are_one_family():
    borderline, clear = exactly([[0.9, 0.9], [0.9, 0.68]], 100), exactly(np.full((4, 5), 0.9), 100)
    assert findings(separated([borderline], TAU, ALPHA)[0]) == [(1, 1)]
    assert findings(separated([borderline, *[clear] * 40], TAU, ALPHA)[0]) == []


def test_cells_aside_are_never_counted_on():
    truth = np.full((3, 3), 0.9)
    truth[0, 0] = 0.1
    aside = np.zeros((3, 3), bool)
    aside[0, 0] = True
    counts = exactly(truth)
    (found,) = separated([counts.without(aside)], TAU, ALPHA)
    assert findings(found) == []
    assert np.isnan(found.q_value[0, 0])


def test_nothing_in_nothing_out():
    assert separated([], TAU, ALPHA) == []
    (empty,) = separated([crossed(np.zeros((2, 2)), np.zeros((2, 2)))], TAU, ALPHA)
    assert not empty.findings.any()


@pytest.mark.parametrize("kind", ["nothing", "a row", "a cell", "two cells"])
@pytest.mark.long
def test_the_false_discovery_rate_of_the_procedure(kind):
    """Effects of both attributes everywhere; sizes 2 x 2 to 4 x 5 in one family of five tables."""
    rng, rates, planted, hit = np.random.default_rng(11), [], 0, 0
    for _ in range(40):
        truths, cells = [], []
        for shape in ((2, 2), (2, 3), (3, 3), (3, 4), (4, 5)):
            truth = 0.85 + rng.normal(0, 0.03, (shape[0], 1)) + rng.normal(0, 0.03, shape[1])
            if kind == "a row":
                truth[rng.integers(shape[0])] -= 0.4
            count = {"a cell": 1, "two cells": 2 if min(shape) > 2 else 1}.get(kind, 0)
            down, across = rng.permutation(shape[0])[:count], rng.permutation(shape[1])[:count]
            truth[down, across] -= 0.4
            truths.append(np.clip(truth, 0, 1))
            cells.append({(int(i), int(j)) for i, j in zip(down, across, strict=True)})
        results = separated([table(truth, rng, 150) for truth in truths], TAU, ALPHA)
        told = [set(findings(result)) for result in results]
        false = sum(len(one - true) for one, true in zip(told, cells, strict=True))
        rates.append(false / max(sum(map(len, told)), 1))
        planted, hit = planted + sum(map(len, cells)), hit + sum(map(len, map(set.__and__, told, cells)))
    assert np.mean(rates) <= 0.05 + 2 * np.std(rates) / np.sqrt(len(rates))
    assert hit >= 0.95 * planted
