import numpy as np
import pytest

from c2b_ray.stats.shown_values import composition, effects, shown, standardised

PERFECT = 10_000 * np.eye(2)


def made(random, n, values=2, cause=-0.4, own=0.0, right=1.0, together=0.8, drawn_for=(0, 1)):
    """Images drawn for each value of the first or second attribute, which go together; the second is the cause."""
    truth, drawn = [], []
    for a in drawn_for:
        for v in range(values):
            shows, of = random.integers(0, values, (n, 3)), np.full((n, 3), -1)
            shows[:, a], of[:, a] = v, v
            apart = (v + random.integers(1, values, n)) % values
            shows[:, 1 - a] = np.where(random.random(n) < together, v, apart)
            truth.append(shows)
            drawn.append(of)
    truth, drawn = np.vstack(truth), np.vstack(drawn)
    chance = 0.9 + cause * (truth[:, 1] == 0) + own * (truth[:, 0] == 0)
    said = np.where(
        random.random(truth.shape) < right, truth, (truth + random.integers(1, values, truth.shape)) % values
    )
    rates = np.where(np.eye(values, dtype=bool), right, (1 - right) / (values - 1))
    known = [np.array([random.multinomial(150, row) for row in rates], float) for _ in range(3)]
    return said, drawn, random.random(len(truth)) < chance, known


def plain(right, drawn, attribute):
    rates = np.array([right[drawn[:, attribute] == v].mean() for v in range(drawn[:, attribute].max() + 1)])
    return rates - (rates.sum() - rates) / (len(rates) - 1)


def judged(random, attribute, **options):
    said, drawn, right, known = made(random, **options)
    images = shown(said, drawn, known)
    found = standardised(images, effects(images, right), right, composition(images, attribute))
    return plain(right, drawn, attribute), found


def test_it_is_the_regression_coefficient_where_answers_are_sure():
    # An oracle: least squares with a term for each value of each attribute. Priors and smoothing take little of 8,000.
    said, drawn, right, _ = made(np.random.default_rng(0), 2000, own=-0.1)
    images = shown(said, drawn, [PERFECT] * 3)
    found = standardised(images, effects(images, right), right, composition(images, 0))
    design = np.column_stack([np.ones(len(said)), said == 0])
    expected = np.linalg.lstsq(design, right.astype(float), rcond=None)[0]
    differ = [(said[drawn[:, 0] == 0, b] == 0).mean() - (said[drawn[:, 0] == 1, b] == 0).mean() for b in (1, 2)]
    assert found.moved[0] == pytest.approx(differ @ expected[2:], abs=0.01)
    assert found.parts[0].sum() == pytest.approx(found.moved[0])
    assert found.parts[0, 1] == pytest.approx(differ[0] * expected[2], abs=0.01)
    assert found.parts[0, 0] == 0


@pytest.mark.parametrize("right", [1.0, 0.9, 0.7])
def test_a_cause_that_is_verified_with_errors_explains_all_that_it_makes(right):
    """φ of the bystander is -0.24 as images have it, and 0; the cause's φ stays."""
    random = np.random.default_rng(7)
    left, kept = [], []
    for _ in range(12):
        phi, found = judged(random, 0, n=200, right=right)
        left.append(phi[0] - found.moved[0])
        phi, found = judged(random, 1, n=200, right=right)
        kept.append(phi[0] - found.moved[0])
    assert np.mean(left) == pytest.approx(0, abs=0.06)
    assert np.mean(kept) == pytest.approx(-0.4, abs=0.06)


def test_what_explains_nothing_adds_no_noise():
    random = np.random.default_rng(3)
    for _ in range(10):
        _, found = judged(random, 0, n=200, own=-0.3, cause=0.0, together=0.5, right=0.9)
        assert np.abs(found.moved).max() < 0.03
        assert found.added.max() < 0.3 * 0.002


@pytest.mark.parametrize("right", [1.0, 0.8])
def test_its_limits_hold_the_truth(right):
    random, held, repeats = np.random.default_rng(11), 0, 60
    for _ in range(repeats):
        phi, found = judged(random, 0, n=150, right=right, values=3, own=-0.2)
        error = np.sqrt(0.2 / 150 * 1.5 + found.added[0])
        held += abs(phi[0] - found.moved[0] + 0.2) < 1.96 * error
    assert held >= 0.88 * repeats


def test_two_attributes_that_are_one_cannot_be_told_apart():
    # Each half of the difference, and a doubt as wide as the whole.
    said, drawn, right, _ = made(np.random.default_rng(5), 200, together=1.0)
    images = shown(said, drawn, [PERFECT] * 3)
    found = standardised(images, effects(images, right), right, composition(images, 0))
    assert found.moved[0] == pytest.approx(-0.2, abs=0.1)
    assert 1.96 * found.noise[0] > 0.2
    left_out = standardised(images, effects(images, right), right, composition(images, 0, (1,)))
    assert abs(left_out.moved[0]) < 0.02


def test_an_interaction_is_taken_at_the_share_that_images_have():
    # 20 points worse where the other attribute is 0, and 40 more where both are: at a third of all images -0.13, while
    # one effect for all values (what additive regression has) leaves more than -0.18.
    random, found = np.random.default_rng(2), []
    for _ in range(12):
        truth = np.column_stack([np.repeat([0, 1, 2], 300), random.integers(0, 3, 900)])
        truth[:, 1] = np.where(random.random(900) < 0.7, truth[:, 0], truth[:, 1])
        right = random.random(900) < 0.95 - 0.2 * (truth[:, 1] == 0) - 0.4 * (truth.sum(axis=1) == 0)
        drawn = np.where([True, False], truth, -1)
        images = shown(truth, drawn, [10_000 * np.eye(3)] * 2)
        at = standardised(images, effects(images, right), right, composition(images, 0))
        found.append(plain(right, drawn, 0)[0] - at.moved[0])
    assert np.mean(found) == pytest.approx(-0.4 / 3, abs=0.03)


def test_values_without_images_are_nan():
    images = shown([[0, 0], [0, 1]], [[0, -1], [0, -1]], [PERFECT] * 2)
    found = standardised(images, effects(images, [True, False]), [True, False], composition(images, 0))
    assert np.isnan(found.moved).all()
    with pytest.raises(ValueError, match="right must be"):
        effects(images, [True])
    empty = shown(np.zeros((0, 2)), np.zeros((0, 2)), [PERFECT] * 2)
    assert effects(empty, []).mean.tolist() == [0] * 5


# Of three values, told apart 7 times in 10; images known to show each, by what was said.
KNOWN = np.array([[700.0, 200, 100], [100, 700, 200], [150, 150, 700]])


def test_an_answer_stands_for_the_row_of_the_inverse():
    found = shown([[0], [1], [2], [-1]], np.full((4, 1), -1), [KNOWN])
    confusion = (KNOWN + np.eye(3)) / (KNOWN + np.eye(3)).sum(axis=1, keepdims=True)
    assert confusion @ found.columns[:3, 1:] == pytest.approx(np.eye(3))
    assert found.columns[3, 1:] == pytest.approx(found.columns[:3, 1:].mean(axis=0))
    assert found.columns[:, 0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("with_caption", [False, True])
def test_means_and_products_are_those_of_what_images_show(with_caption):
    # An oracle: what 60,000 images show is known here. The two attributes go together.
    random, n = np.random.default_rng(4), 60_000
    truth = random.integers(0, 3, (n, 2))
    truth[:, 1] = np.where(random.random(n) < 0.7, truth[:, 0], truth[:, 1])
    rates = (KNOWN / KNOWN.sum(axis=1, keepdims=True)).cumsum(axis=1)
    said = (random.random((n, 2, 1)) > rates[truth]).sum(axis=2)
    drawn = np.full((n, 2), -1)
    if with_caption:  # nine in ten show what they were drawn for
        drawn[:, 0] = np.where(random.random(n) < 0.9, truth[:, 0], (truth[:, 0] + 1) % 3)
    found = shown(said, drawn, [1000 * KNOWN, 1000 * KNOWN]).columns
    real = np.hstack([np.eye(3)[truth[:, 0]], np.eye(3)[truth[:, 1]]])
    assert found[:, 1:].mean(axis=0) == pytest.approx(real.mean(axis=0), abs=0.02)
    assert found[:, 1:4].T @ found[:, 4:] / n == pytest.approx(real[:, :3].T @ real[:, 3:] / n, abs=0.02)


def test_with_the_caption_stand_ins_are_surer():
    random = np.random.default_rng(4)
    truth = random.integers(0, 2, (2000, 1))
    said = np.where(random.random((2000, 1)) < 0.7, truth, 1 - truth)
    known = [np.array([[700.0, 300], [300, 700]])]
    spread = [
        np.square(shown(said, drawn, known).columns[:, 1:] - np.eye(2)[truth[:, 0]]).mean()
        for drawn in (truth, -1 + 0 * truth)
    ]
    assert spread[0] < 0.1 * spread[1]


def test_an_answer_that_tells_nothing_is_not_blown_up():
    found = shown([[0], [1]], [[-1], [-1]], [np.full((2, 2), 50.0)])
    assert np.abs(found.columns).max() < 4


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="answers and drawn"):
        shown([[0]], [[0, 0]], [KNOWN])
    with pytest.raises(ValueError, match="square"):
        shown([[0]], [[0]], [KNOWN[:2]])
    with pytest.raises(ValueError, match="values 0 to 2"):
        shown([[3]], [[0]], [KNOWN])
    assert shown(np.zeros((0, 1)), np.zeros((0, 1)), [KNOWN]).columns.shape == (0, 4)
