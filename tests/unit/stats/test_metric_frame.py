"""The frame of a metric over groups, against fairlearn; limits and the permutation test by simulation."""

import fairlearn.metrics as fairlearn
import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics as oracle
from statsmodels.stats.proportion import proportion_confint

from c2b_ray.stats.classification import METRICS, ClassMetric, Outcomes
from c2b_ray.stats.metric_frame import label_frames, metric_frame, permuted_scores

EXACT = 1e-12
ORACLES = {"recall": oracle.recall_score, "precision": oracle.precision_score, "f1": oracle.f1_score}


def outcomes(seed: int, images: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    truth = random.random(images) < 0.4
    groups = random.choice(["day", "fog", "night"], images)
    probabilities = np.clip(random.normal(0.3 + 0.4 * truth - 0.2 * (truth & (groups == "fog")), 0.2), 0, 1)
    return truth, probabilities > 0.5, probabilities, groups


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("seed", range(3))
def test_the_frame_is_that_of_fairlearn(name: str, seed: int) -> None:
    truth, answers, _, groups = outcomes(seed)
    frame = metric_frame(name, truth, answers, groups.tolist())
    theirs = fairlearn.MetricFrame(metrics=ORACLES[name], y_true=truth, y_pred=answers, sensitive_features=groups)
    assert frame.groups == tuple(theirs.by_group.index)
    assert frame.by_group == pytest.approx(theirs.by_group.to_numpy(), abs=EXACT)
    assert frame.overall[0] == pytest.approx(theirs.overall, abs=EXACT)
    assert frame.group_min() == pytest.approx(theirs.group_min(), abs=EXACT)
    assert frame.group_max() == pytest.approx(theirs.group_max(), abs=EXACT)
    for method in ("between_groups", "to_overall"):
        assert frame.difference(method) == pytest.approx(theirs.difference(method=method), abs=EXACT)
        assert frame.ratio(method) == pytest.approx(theirs.ratio(method=method), abs=EXACT)


def test_auroc_by_group_is_that_of_scikit_learn() -> None:
    truth, answers, probabilities, groups = outcomes(0)
    frame = metric_frame("auroc", truth, answers, groups.tolist(), probabilities)
    expected = [oracle.roc_auc_score(truth[groups == g], probabilities[groups == g]) for g in frame.groups]
    assert frame.by_group == pytest.approx(expected, abs=EXACT)


def test_limits_of_a_share_are_wilsons() -> None:
    truth, answers, _, groups = outcomes(1)
    frame = metric_frame("precision", truth, answers, groups.tolist())
    for at, name in enumerate(frame.groups):
        said = answers & (groups == name)
        low, high = proportion_confint((said & truth).sum(), said.sum(), method="wilson")
        assert (frame.low[at], frame.high[at]) == pytest.approx((low, high), abs=1e-9)


def test_scores_are_the_value_minus_the_mean_of_the_others() -> None:
    frame = metric_frame("recall", [1] * 6, [1, 1, 1, 0, 0, 0], list("aabbcc"))
    # a: 1, b: 1/2, c: 0
    assert frame.scores() == pytest.approx([0.75, 0, -0.75], abs=EXACT)


@pytest.mark.parametrize("name", ["f1", "auroc", "confidence"])
def test_limits_hold_the_truth_as_often_as_they_say(name: str) -> None:
    random, images = np.random.default_rng(5), 120
    truth = np.arange(images) < 40

    def drawn(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        probabilities = random.beta(1 + 4 * rows, 3)
        return probabilities > 0.5, probabilities

    many = np.arange(600_000) < 200_000
    expected = METRICS[name].value(Outcomes.of(many, *drawn(many)))
    frames = [
        metric_frame(name, truth, answers, ["all"] * images, p) for answers, p in (drawn(truth) for _ in range(1000))
    ]
    held = sum(frame.low[0] <= expected <= frame.high[0] for frame in frames)
    assert binomtest(held, 1000, 0.95).pvalue > 1e-3 or held > 950  # conservative is no error


@pytest.mark.parametrize(("images", "mistaken"), [(10, 0.1), (20, 0.05), (20, 0.1), (50, 0.02), (50, 0.05)])
@pytest.mark.parametrize("name", ["auroc", "confidence"])
def test_limits_allow_for_mistakes_that_the_sample_does_not_show(name: str, images: int, mistaken: float) -> None:
    """A confident classifier gives the class .98 but where it mistakes an image, .03. A sample without one of these has
    hardly any variance: limits by the variance alone held the truth in .62 of samples, and called differences 0 that
    were as large."""
    random, runs = np.random.default_rng(4), 400
    many = 200_000
    groups = np.repeat(np.arange(runs), 5 * images)
    truth = np.tile(np.arange(5 * images) < images, runs)

    def drawn(shown: np.ndarray) -> np.ndarray:
        is_high = shown & (random.random(len(shown)) >= mistaken)
        return np.where(is_high, random.beta(60, 1, len(shown)), random.beta(1, 30, len(shown)))

    is_class = np.arange(many) % 2 == 0
    expected = METRICS[name].value(Outcomes.of(is_class, is_class, drawn(is_class)))
    frame = metric_frame(name, truth, truth, groups.tolist(), drawn(truth))
    assert ((frame.low <= expected) & (expected <= frame.high)).mean() >= 0.92


def test_bootstrapped_limits_hold_the_truth() -> None:
    own = ClassMetric.from_function("balanced", lambda t, a, p: (a[t].mean() + 1 - a[~t].mean()) / 2)
    random, held = np.random.default_rng(2), 0
    truth = np.arange(160) < 80
    for seed in range(60):
        answers = random.random(160) < np.where(truth, 0.8, 0.3)
        frame = metric_frame(own, truth, answers, ["all"] * 160, answers.astype(float), seed=seed)
        held += frame.low[0] <= 0.75 <= frame.high[0]
    assert held >= 52  # of 60, of which 57 are due: fewer have a probability of 0.02


@pytest.mark.parametrize("images", [3, 5, 20])
def test_bootstrapped_limits_of_few_images_that_are_all_right_are_no_point(images: int) -> None:
    """Percentiles of a bootstrap of 3 to 5 images of each class held the truth in .34 and .30 of samples."""
    own = ClassMetric.from_function("informedness", lambda t, a, p: a[t].mean() - a[~t].mean())
    random, held, runs = np.random.default_rng(2), 0, 60
    truth = np.repeat([True, False, True, False], [images, images, 100, 100])
    groups = np.repeat(["few", "many"], [2 * images, 200]).tolist()
    for seed in range(runs):
        answers = np.where(random.random(len(truth)) < 0.95, truth, ~truth)
        frame = metric_frame(own, truth, answers, groups, answers.astype(float), seed=seed)
        held += frame.low[0] <= 0.9 <= frame.high[0]
    assert held >= 0.8 * runs


@pytest.mark.parametrize("sharper", [1.0, 1.6])
def test_limits_of_calibration_hold_in_groups_of_any_size(sharper: float) -> None:
    """Chance alone makes the calibration error of 30 images .1 to .2: percentiles of a bootstrap lay below the truth in
    nearly every sample, and told two groups of equal calibration apart by their size."""
    random, sizes = np.random.default_rng(8), {"rare": 30, "usual": 600}

    def drawn(images: int) -> tuple[np.ndarray, np.ndarray]:
        logits = random.normal(0, 1.5, images)
        return random.random(images) < 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(-sharper * logits))

    truth, probabilities = drawn(1_000_000)
    expected = METRICS["calibration"].value(Outcomes.of(truth, truth, probabilities))
    groups = [name for name, images in sizes.items() for _ in range(images)]
    held = np.zeros(2)
    for seed in range(40):
        truth, probabilities = drawn(len(groups))
        frame = metric_frame("calibration", truth, truth, groups, probabilities, seed=seed)
        held += (frame.low <= expected) & (expected <= frame.high)
    assert (held >= 36).all()


def permuted_p_values(mixed: bool, answered: float, runs: int = 200) -> np.ndarray:
    """p-values of a group's precision where one in 10, or half, of its images are of the class; `answered`: the share
    of the class's images in it that are recognised, 0.8 elsewhere."""
    random, values = np.random.default_rng(3), []
    groups = np.arange(400) % 2
    for seed in range(runs):
        truth = random.random(400) < np.where(groups == 0, 0.1 if mixed else 0.5, 0.5)
        answers = random.random(400) < np.where(truth, np.where(groups == 0, answered, 0.8), 0.2)
        data = Outcomes.of(truth, answers)
        permuted = permuted_scores(METRICS["precision"], data, groups, 2, truth.astype(int), [True, False], seed, 199)
        values.append(permuted.p_value[0])
    return np.array(values)


def test_classes_in_another_mix_are_no_finding() -> None:
    """The precision falls by 0.5 where the class is rare, though no answer depends on the group."""
    assert (permuted_p_values(mixed=True, answered=0.8) <= 0.05).mean() <= 0.1


def test_the_permutation_test_keeps_its_level() -> None:
    assert (permuted_p_values(mixed=False, answered=0.8) <= 0.05).mean() <= 0.1


def test_answers_that_depend_on_the_group_are_found() -> None:
    assert (permuted_p_values(mixed=False, answered=0.3, runs=40) <= 0.05).mean() > 0.8


def test_the_mean_says_what_the_mix_alone_gives() -> None:
    groups = np.arange(4000) % 2
    truth = np.random.default_rng(1).random(4000) < np.where(groups == 0, 0.1, 0.5)
    answers = np.random.default_rng(2).random(4000) < np.where(truth, 0.8, 0.2)
    of = permuted_scores(
        METRICS["precision"], Outcomes.of(truth, answers), groups, 2, truth.astype(int), [True, True], 0, 99
    )
    # 0.08 / (0.08 + 0.18) = 0.31 against 0.4 / (0.4 + 0.1) = 0.8
    assert of.mean == pytest.approx([-0.49, 0.49], abs=0.03)
    assert of.smallest == 0.02


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "accuracy"}, "no metric 'accuracy'"),
        ({"metric": "auroc"}, "needs probabilities"),
        ({"groups": ["a"]}, "groups has 1 rows, truth 2"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_what_cannot_be_computed_is_refused(changes: dict, message: str) -> None:
    arguments = {"metric": "recall", "truth": [1, 0], "answers": [1, 1], "groups": ["a", "b"]} | changes
    with pytest.raises(ValueError, match=message):
        metric_frame(**arguments)


@pytest.mark.parametrize(("name", "function"), [("f1", oracle.f1_score), ("precision", oracle.precision_score)])
def test_of_many_labels_each_is_a_task_of_its_own(name: str, function: object) -> None:
    random = np.random.default_rng(4)
    truth = random.random((300, 3)) < [0.3, 0.5, 0.1]
    probabilities = np.clip(random.normal(0.3 + 0.3 * truth, 0.2), 0, 1)
    groups, thresholds = random.choice(["day", "night"], 300), [0.5, 0.4, 0.6]
    frames = label_frames(name, truth, probabilities, groups.tolist(), ["a", "b", "c"], thresholds)
    for group in ("day", "night"):
        rows = groups == group
        expected = function(truth[rows], probabilities[rows] >= thresholds, average=None)
        found = [frame.by_group[frame.groups.index(group)] for frame in frames.values()]
        assert found == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize(
    ("truth", "thresholds", "message"),
    [(np.ones((2, 3)), 0.5, r"\(images, 2\)"), (np.ones((2, 2)), [0.5] * 3, "one for each of 2 labels")],
)
def test_columns_and_thresholds_must_fit_the_labels(truth: np.ndarray, thresholds: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        label_frames("f1", truth, truth, ["a", "a"], ["x", "y"], thresholds)
