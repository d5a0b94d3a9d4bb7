import numpy as np
import pytest

from c2b_ray.stats import contrast_test, effective_images, effective_pairs, paired_difference_interval


def coverage(spread, images, accuracy, runs=25, groups=8, values=3, captions=5):
    """Share of intervals that hold the true score, with captions counted and without; and by how much they widen."""
    rng = np.random.default_rng(3)
    effects = accuracy + spread * rng.standard_normal(100_000)
    mean = np.clip(effects, 0, 1).mean()
    assert abs(mean - accuracy) < 0.02
    held, plain, wider = [], [], []
    for _ in range(runs):
        of_caption = np.clip(accuracy + spread * rng.standard_normal((groups * values, captions)), 0, 1)
        total = np.full(of_caption.shape, images // captions)
        right = rng.binomial(total, of_caption)
        n = total.sum(axis=1)
        effective = effective_images(right, total).effective
        assert (effective <= n).all()
        shape = groups, values
        rate = (right.sum(axis=1) / n).reshape(shape)
        found, naive = (contrast_test(rate, m.reshape(shape).astype(float), 0.05) for m in (effective, n))
        held.append(((found.phi_low <= 0) & (found.phi_high >= 0)).mean())
        plain.append(((naive.phi_low <= 0) & (naive.phi_high >= 0)).mean())
        wider.append(((found.phi_high - found.phi_low) / (naive.phi_high - naive.phi_low)).mean())
    return np.mean(held), np.mean(plain), np.mean(wider)


@pytest.mark.parametrize(("spread", "images", "accuracy"), [(0.05, 400, 0.8), (0.03, 400, 0.9), (0.05, 100, 0.7)])
def test_intervals_hold_where_captions_differ(spread, images, accuracy):
    held, plain, _ = coverage(spread, images, accuracy)
    assert 0.93 <= held <= 0.985
    assert plain < 0.95 if images < 400 else plain < 0.9


@pytest.mark.long
@pytest.mark.parametrize("captions", [2, 5])
def test_few_captions_that_differ_much_are_believed(captions):
    held, _, _ = coverage(0.17, 200, 0.55, runs=120, groups=1, values=2, captions=captions)
    assert held >= 0.94


def test_intervals_hold_where_effects_are_cut_off_at_one():
    held, plain, _ = coverage(0.05, 400, 0.97)
    assert held >= 0.93
    assert plain < 0.8


@pytest.mark.parametrize("accuracy", [0.8, 0.97])
def test_little_is_lost_where_captions_do_not_differ(accuracy):
    _, _, wider = coverage(0.0, 200, accuracy)
    assert wider < 1.12


@pytest.mark.parametrize(("spread", "captions"), [(0.0, 2), (0.05, 5), (0.15, 5)])
def test_intervals_of_differences_hold_where_captions_differ(spread, captions):
    rng, true = np.random.default_rng(5), 0.12
    held, plain = [], []
    for _ in range(60):
        a, b = (
            np.clip(accuracy + spread * rng.standard_normal((18, captions)), 0, 1) for accuracy in (0.5, 0.5 + true)
        )
        n = np.full((18, captions), 200 // captions)
        *only, _ = np.moveaxis(
            rng.multinomial(n, np.stack([a * (1 - b), b * (1 - a), a * b + (1 - a) * (1 - b)], -1)), -1, 0
        )
        worth = effective_pairs(*only, n).effective
        counts = [values.sum(axis=1) for values in (*only, n)]
        for share, hold in ((worth / counts[-1], held), (1.0, plain)):
            low, high = paired_difference_interval(*(values * share for values in counts))
            hold.append(((low <= true) & (true <= high)).mean())
    assert 0.93 <= np.mean(held) <= 0.985
    assert np.mean(plain) < 0.9 or not spread


def test_two_cells_of_two_captions_are_not_taken_for_sure():
    # 2 degrees of freedom in all: the captions agree, and may by chance
    effective = effective_images([[80, 80], [80, 80]], [[100, 100], [100, 100]]).effective
    assert (effective < 150).all()


def test_one_caption_a_cell_says_nothing_of_captions():
    found = effective_images([[8, 0], [0, 7], [0, 0]], [[10, 0], [0, 10], [0, 0]])
    assert found.effective.tolist() == [10, 10, 0]
    assert np.isnan(found.spread).all()


def test_a_cell_of_one_caption_takes_the_spread_of_the_others():
    rng = np.random.default_rng(2)
    total = np.full((30, 4), 50)
    total[0, 1:] = 0
    right = rng.binomial(total, np.clip(0.8 + 0.08 * rng.standard_normal(total.shape), 0, 1))
    found = effective_images(right, total)
    assert found.effective[0] < 25 < found.effective[1]
    assert 0.05 < found.spread[1] < 0.11
    nothing = effective_images(np.zeros((0, 3)), np.zeros((0, 3)))
    assert nothing.effective.size == 0
    with pytest.raises(ValueError, match="captions"):
        effective_images([1, 2], [3, 3])
