import math

import numpy as np
import pytest
import scipy.stats

from c2b_ray.audits.c2b.scoring.confounding import StandardisedScores
from c2b_ray.audits.c2b.scoring.judge import CALIBRATED, CAPTIONS, LABELS, VERIFIER, Estimate, judged
from c2b_ray.audits.c2b.thresholds import Thresholds

LEVELS = Thresholds(0.05, 0.05)


def estimate(accuracy, images, doubts=None, basis=LABELS, shared=None, classifier="m"):
    n = len(accuracy)
    return Estimate(
        classifier=classifier,
        target_class="bus",
        attribute="lighting",
        values=tuple("abcdef"[:n]),
        accuracy=np.array(accuracy, float),
        effective=np.broadcast_to(np.array(images, float), n).copy(),
        basis=basis,
        doubts=list(doubts or [None] * n),
        shared=np.array(shared or [0.0] * n),
    )


def test_the_only_other_value_in_doubt_leaves_nothing_to_compare_with():
    """`bright` shows a goldfish in 38 % of its images; `dark`, whose φ is −φ(bright), was called `for`."""
    bright, dark = judged([estimate([0.5, 0.95], 400, ["38 % of its images show a goldfish", None])], LEVELS)
    assert bright["verdict"] == dark["verdict"] == "undetermined"
    assert "goldfish" in bright["doubt"]
    assert "'a'" in dark["doubt"]
    assert math.isnan(bright["q_value"])
    assert math.isnan(dark["q_value"])


def test_a_value_in_doubt_leaves_the_reference_of_the_others():
    rows = judged([estimate([0.2, 0.9, 0.9, 0.6], 400, ["impure", None, None, None])], LEVELS)
    # 0.6 - (0.9 + 0.9)/2 = -0.3; with the doubted one it would be -0.07
    assert rows[3]["phi"] == pytest.approx(-0.3)
    assert rows[3]["verdict"] == "against"
    # 0.9 - (0.9 + 0.6)/2 = 0.15; with the doubted one 0.9 - (.2 + .9 + .6)/3 = +.33, the same sign
    assert rows[1]["phi"] == pytest.approx(0.15)
    assert rows[1]["verdict"] == "for"


def test_what_a_value_in_doubt_would_turn_is_in_doubt():
    rows = judged([estimate([0.3, 0.9, 0.6], 400, ["impure", None, None])], LEVELS)
    # 0.6 - 0.9 = -0.3 without it; 0.6 - (0.3 + 0.9)/2 = 0 with it
    assert rows[2]["phi"] == pytest.approx(-0.3)
    assert "'a'" in rows[2]["doubt"]
    assert rows[2]["verdict"] == "undetermined"


def test_without_a_margin_more_images_are_not_said_to_tell_that_there_is_no_difference():
    for row in judged([estimate([1.0, 1.0], 400)], Thresholds(0.0, 0.05)):
        assert (row["verdict"], "τ = 0" in row["undetermined_because"]) == ("undetermined", True)


def test_one_value_in_doubt_among_many_casts_none_on_the_others():
    rows = judged([estimate([0.05, 0.9, 0.9, 0.6], 400, ["impure", None, None, None])], LEVELS)
    # 0.6 - (0.05 + 0.9 + 0.9)/3 = -0.02 with it, but what it says is not to be trusted
    assert (rows[3]["verdict"], rows[3]["doubt"]) == ("against", None)
    rows = judged([estimate([0.05, 0.05, 0.9, 0.9, 0.6], 400, ["impure", "impure", None, None, None])], LEVELS)
    assert "'a', 'b'" in rows[4]["doubt"]


@pytest.mark.parametrize(("basis", "verdict"), [(LABELS, "none"), (CALIBRATED, "none"), (CAPTIONS, "undetermined")])
def test_none_needs_evidence_that_the_values_differ(basis, verdict):
    rows = judged([estimate([0.9, 0.9], 3000, basis=basis)], LEVELS)
    assert [row["verdict"] for row in rows] == [verdict] * 2
    if verdict == "undetermined":
        assert "not measured" in rows[0]["undetermined_because"]


def test_a_verifiers_word_is_no_evidence_either():
    assert judged([estimate([0.9, 0.9], 3000, basis=VERIFIER)], LEVELS)[0]["verdict"] == "undetermined"


def test_none_is_not_said_of_images_that_values_share():
    rows = judged([estimate([0.9, 0.9], 3000, shared=[1.0, 0.1])], LEVELS)
    assert [row["verdict"] for row in rows] == ["undetermined", "none"]
    assert "other values hold 100%" in rows[0]["undetermined_because"]


def test_the_error_of_none_is_controlled_over_the_family():
    """Of two hundred attributes of which a twentieth lies at τ exactly, few of these are called none."""
    random, wrong, called = np.random.default_rng(5), 0, 0
    for _ in range(20):
        gaps = np.where(np.arange(100) < 60, 0.06, 0.0)
        counts = random.binomial(1500, np.stack([0.9 - gaps, np.full(100, 0.9)], axis=1)) / 1500
        rows = judged([estimate(pair, 1500) for pair in counts], LEVELS)
        none = np.array([row["verdict"] == "none" for row in rows]).reshape(100, 2)
        wrong, called = wrong + none[gaps > 0].sum(), called + none.sum()
    assert called > 100
    assert wrong / called <= 0.05


def test_the_false_discovery_rate_is_over_all_classifiers():
    sure, even = [0.70, 0.87], [0.9, 0.9]
    alone = judged([estimate(sure, 100)], LEVELS)
    assert {row["verdict"] for row in alone} == {"for", "against"}
    among = judged([estimate(sure, 100), *(estimate(even, 100, classifier=f"m{i}") for i in range(40))], LEVELS)
    assert among[0]["verdict"] == "undetermined"
    assert "among 82 tests" in among[0]["undetermined_because"] or among[0]["undetermined_because"] == "too few images"


@pytest.mark.long
def test_intervals_of_findings_hold_the_truth_although_they_were_selected():
    """A true φ of −.12 at 100 images is found when it happens to look larger: 95 % intervals of the found ones then
    held it in none of them."""
    random, inside = np.random.default_rng(3), []
    for _ in range(150):
        weak = random.binomial(100, [0.78, 0.90]) / 100
        others = random.binomial(100, np.full((30, 2), 0.9)) / 100
        rows = judged([estimate(weak, 100), *(estimate(pair, 100) for pair in others)], LEVELS)
        if rows[0]["verdict"] == "against":
            inside.append(rows[0]["phi_low"] <= -0.12 <= rows[0]["phi_high"])
    assert len(inside) >= 5
    assert np.mean(inside) >= 0.9


def test_empty_cells_have_no_verdict():
    rows = judged([estimate([math.nan, 0.9], [0, 50])], LEVELS)
    assert {row["verdict"] for row in rows} == {"undetermined"}
    assert all(math.isnan(row["phi"]) for row in rows)
    assert judged([], LEVELS) == []


def test_what_is_found_or_is_none_must_hold_without_predicted_false_accepts_too():
    """A sound classifier (.95) on two values; of the images of `a` one in seven shows something else, and is wrong."""
    plain, tested = estimate([0.81, 0.95], 400), estimate([0.81, 0.95], 400)
    tested.without_false_accepts = np.array([0.81 * 7 / 6, 0.95])
    assert [row["verdict"] for row in judged([plain], LEVELS)] == ["against", "for"]
    a, b = judged([tested], LEVELS)
    assert a["verdict"] == b["verdict"] == "undetermined"
    assert "-0.14 as estimated, -0.01 without the images that the verifier falsely accepts" in a["doubt"]
    assert a["phi"] == pytest.approx(-0.14)
    assert a["phi_low"] == judged([plain], LEVELS)[0]["phi_low"]
    assert a["phi_high"] > 0  # .945 − .95 lies inside

    even = estimate([0.90, 0.90], 4000, basis=CALIBRATED)
    assert {row["verdict"] for row in judged([even], LEVELS)} == {"none"}
    even.without_false_accepts = np.array([0.99, 0.90])
    assert {row["verdict"] for row in judged([even], LEVELS)} == {"undetermined"}


def bounded(accuracy, images, below, above, negatives=40, **more):
    """An estimate of which false accepts are predicted to be none, with accuracies without them that may lie `below`
    and `above`, by less the more similar images the calibration holds."""
    known = np.array(accuracy)
    one = estimate(accuracy, images, **more)
    one.without_false_accepts, one.negatives = known, np.full(len(known), negatives)
    one.bounds = lambda confidence, times: (known - np.array(below) / times, known + np.array(above) / times)
    one.columns = {**one.columns, "false_accepts_high": np.array([0.3, 0.1])}
    return one


def test_a_finding_that_unknown_false_accepts_would_explain_is_in_doubt_and_says_how_many_images_would_tell():
    sure, open_ = bounded([0.7, 0.95], 400, [0, 0], [0.02, 0]), bounded([0.7, 0.95], 400, [0, 0], [0.28, 0])
    assert [row["verdict"] for row in judged([sure], LEVELS)] == ["against", "for"]
    a, b = judged([open_], LEVELS)
    assert a["verdict"] == b["verdict"] == "undetermined"
    assert "-0.25 as estimated, but up to 30% of a value's images may show no" in a["doubt"]
    # φ = -.25, by chance up to -.25 + .04, must stay below -.05: with .28/t as the other deviation,
    # .04² + (.28/t)² < .2², so t > .28/.196 = 1.43, the next of the tried ones (1.25, 1.56) is 1.56: .56 of 40 images
    assert "About 23 more images" in a["doubt"]
    plain = judged([estimate([0.7, 0.95], 400)], LEVELS)[0]
    assert a["phi_low"] == pytest.approx(plain["phi_low"])
    # squares of both deviations add
    assert a["phi_high"] == pytest.approx(-0.25 + np.hypot(plain["phi_high"] + 0.25, 0.28), abs=0.01)


def test_a_rough_judgement_standardises_only_what_may_be_a_verdict():
    asked = []

    def standardised(name):
        def adjust(phi, low, high):
            asked.append(name)
            nothing = np.zeros(2)
            return StandardisedScores(phi, nothing, nothing, nothing, nothing, nothing, (None, None), (None, None))

        return adjust

    def estimates():
        made = [estimate(accuracy, 100, classifier=name) for name, accuracy in (("a", [0.5, 0.95]), ("b", [0.85, 0.9]))]
        for one in made:
            one.adjust = standardised(one.classifier)
        return made

    whole = [row["verdict"] for row in judged(estimates(), LEVELS)]
    rough = [row["verdict"] for row in judged(estimates(), LEVELS, rough=True)]
    assert whole == rough == ["against", "for", "undetermined", "undetermined"]
    assert asked == ["a", "b", "a"]


def test_none_is_not_said_where_false_accepts_are_not_excluded():
    even, unknown = (bounded([0.9, 0.9], 4000, [0, 0], [up, 0], basis=CALIBRATED) for up in (0.005, 0.1))
    assert {row["verdict"] for row in judged([even], LEVELS)} == {"none"}
    assert {row["verdict"] for row in judged([unknown], LEVELS)} == {"undetermined"}


def test_where_no_similar_image_tells_all_images_may_be_false_accepts():
    open_ = bounded([0.7, 0.95], 400, [0, 0], [0.3, 0.05], negatives=0)
    open_.columns["false_accepts_high"] = np.array([np.nan, np.nan])
    doubt = judged([open_], LEVELS)[0]["doubt"]
    assert "up to 100% of a value's images" in doubt
    assert "More images that show no" in doubt


def test_a_finding_that_changes_its_sign_without_false_accepts_is_none():
    turned = estimate([0.7, 0.9], 1000)
    turned.without_false_accepts = np.array([1.0, 0.9])
    for row in judged([turned], LEVELS):
        assert (row["verdict"], row["p_value"], "+0.10" in row["doubt"] or "-0.10" in row["doubt"]) == (
            "undetermined",
            pytest.approx(float("nan"), nan_ok=True),
            True,
        )


def test_a_finding_beyond_what_false_accepts_explain_stays():
    strong, other = estimate([0.5, 0.95], 400), estimate([0.9, 0.9], 400, classifier="n")
    strong.without_false_accepts = np.array([0.5 / 0.9, 0.95])
    rows = judged([strong, other], LEVELS)
    assert [row["verdict"] for row in rows[:2]] == ["against", "for"]
    assert [row["doubt"] for row in rows] == [None] * 4
    assert rows[0]["phi_low"] < -0.45 < -0.395 < rows[0]["phi_high"]


def test_limits_of_a_finding_allow_for_its_selection_from_the_images_and_not_from_the_calibration():
    """One finding of 402 tests, limits at the confidence 1 − .05/402. What the calibration does not exclude moves each
    accuracy by .12 standard deviations: at that confidence by .46, so that the limits would hold 0."""
    confidences = []

    def bounds(confidence, times):
        confidences.append(confidence)
        reach = scipy.stats.norm.ppf((1 + confidence) / 2) * np.array([0.12, 0.0])
        return foggy.accuracy - reach, foggy.accuracy + reach

    foggy = estimate([0.45, 0.99], [40, 300], basis=CALIBRATED)
    foggy.without_false_accepts, foggy.bounds = foggy.accuracy, bounds
    foggy.columns = {"false_accepts_high": [0.3, 0.0]}
    others = [estimate([0.97, 0.97], 30, classifier=f"m{number}") for number in range(200)]
    found = judged([foggy, *others], LEVELS)[0]
    assert found["verdict"] == "against"
    assert found["phi_low"] < found["phi"] < found["phi_high"] < -LEVELS.tau
    assert max(confidences) == pytest.approx(0.95)
