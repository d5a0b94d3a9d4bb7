"""The images that settle a paired difference do settle it: outcomes of that many images, simulated, in four of five."""

import numpy as np
import pytest

from c2b_ray import stats

TAU, ALPHA = 0.05, 0.05


def settled(shares, images, draws=4000):
    """Returns the share of simulated outcomes that are settled."""
    only_a, only_b = shares
    random = np.random.default_rng(100_002)
    a, b, _ = random.multinomial(images, (only_a, only_b, 1 - only_a - only_b), draws).T
    n = np.full(draws, images)
    d = stats.paired_difference(a, b, n)
    if abs(only_b - only_a) > TAU:
        p = np.maximum(stats.paired_difference_p_values(a, b, n, TAU), stats.mcnemar_p_values(a, b))
        return ((p <= ALPHA) & (np.sign(d) == np.sign(only_b - only_a))).mean()
    return (stats.paired_equivalence_p_values(a, b, n, TAU) <= ALPHA).mean()


@pytest.mark.parametrize(
    "shares", [(0.3, 0.02), (0.02, 0.3), (0.25, 0.1), (0.12, 0.01), (0.02, 0.02), (0.01, 0.03), (0.1, 0.1)]
)
def test_so_many_images_settle_four_of_five_outcomes(shares):
    scale = 100_000  # shares are known exactly, so that half an image does not matter
    images = int(stats.paired_images_to_settle(*(share * scale for share in shares), scale, TAU, ALPHA))
    assert 0.78 < settled(shares, images) < 0.9  # counts come in steps, so it may be a few images more than need be
    assert settled(shares, max(2, images // 2)) < 0.74


def test_next_to_the_margin_and_without_images_no_number_settles_it():
    assert stats.paired_images_to_settle(10_000, 5_000, 100_000, TAU) == -1  # d = -.05 = -tau
    assert stats.paired_images_to_settle([0, 3], [0, 0], [0, 9], TAU).tolist()[0] == -1
    assert stats.paired_images_to_settle([], [], [], TAU).shape == (0,)


def test_fewer_images_suffice_for_a_larger_difference_and_more_for_a_smaller_alpha():
    few, many = stats.paired_images_to_settle([40, 15], [0, 0], [100, 100], TAU)
    assert few < many
    assert stats.paired_images_to_settle(15, 0, 100, TAU, 0.005) > many


@pytest.mark.parametrize("wrong", [{"tau": -1}, {"alpha": 0}, {"power": 1}])
def test_wrong_levels_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        stats.paired_images_to_settle(1, 0, 9, **{"tau": TAU, **wrong})
