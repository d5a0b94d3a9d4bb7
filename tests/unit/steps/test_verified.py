import math

import numpy as np
import pyarrow as pa
import pytest
from cell_tables import cell_images

from c2b_ray.schemas import CALIBRATION, DRAWS, PREDICTIONS, VERIFICATIONS
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.caption import caption
from c2b_ray.steps.cells import images_of_cells
from c2b_ray.steps.correction import correction_of
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.propose import propose
from c2b_ray.steps.score import score
from c2b_ray.steps.self_assessed import SELF_TRUST
from c2b_ray.steps.thresholds import Thresholds
from c2b_ray.steps.verified import Verified
from c2b_ray.steps.verifier import VerifierSkill
from c2b_ray.steps.verify import CLASS, OTHER

LEVELS = Thresholds(0.05, 0.05)
PERFECT = {(value, value): 4000.0 for value in ("snow", "rain", "bus", "boat")}


def mark(seed):
    return np.random.default_rng(seed).integers(0, 256, 200, dtype=np.uint8).tobytes()


class Made:
    """Tables of images of buses in two weathers, row by row."""

    def __init__(self, classes=("bus",), values=("snow", "rain"), captions=1):
        proposals, _ = propose("task", list(classes), None, {"weather": list(values)}, seed=0)
        self.captions, _ = caption("task", proposals, None, captions, seed=0)
        self.ids = {
            (r["target_class"], r["bias_class"], r["number"]): r["caption_id"] for r in self.captions.to_pylist()
        }
        self.draws, self.predictions, self.verifications, self.images = [], [], [], {}

    def add(self, drawn, shows, n, right, class_shown="bus", marks=None, target="bus", name=None, light=None, number=0):
        """`n` images drawn for one value that show (are said to show) another, of which `right` are answered so.

        `light`: what each is said to show of another attribute. `number`: of the cell's captions, which drew them.
        """
        for i in range(n):
            image = name or f"{target}-{drawn}-{len(self.draws):04}"
            self.draws.append(
                {"caption_id": self.ids[target, drawn, number], "image_id": image, "rank": i, "source": "retrieve"}
            )
            self.verifications.append(
                {
                    "verification_id": f"{image} {target}",
                    "image_id": image,
                    "target_class": target,
                    "class_shown": class_shown,
                    "attributes": ["lighting", "weather"],
                    "values": [light, shows],
                    "certainties": [None, None],
                }
            )
            mark_of = marks or mark(len(self.draws))
            self.images[image] = {"image_id": image, "content": str(hash(mark_of)), "fingerprint": mark_of}
            row = {"prediction_id": image, "image_id": image, "classifier": "m", "revision": "1"}
            self.predictions.append({**row, "predicted_class": target if i < right else "mug"})
        return self

    def distinct(self):
        return Distinct(pa.Table.from_pylist(list(self.images.values())))

    def verified(self, calibration):
        rows = [
            {"attribute": CLASS if value in ("bus", "boat") else "weather", "value": value, "answer": answer}
            | {"images": n, "source": "table"}
            for (value, answer), n in calibration.items()
        ]
        table = pa.Table.from_pylist(self.verifications, VERIFICATIONS)
        return Verified(table, pa.Table.from_pylist(rows, CALIBRATION), self.distinct())

    def cells(self):
        return images_of_cells(self.captions, pa.Table.from_pylist(self.draws, DRAWS))

    def scores(self, calibration=None):
        tables = pa.Table.from_pylist(self.draws, DRAWS), pa.Table.from_pylist(self.predictions, PREDICTIONS)
        verified = None if calibration is None else self.verified(calibration)
        rows = score(self.captions, *tables, ["m"], 0.05, 0.05, verified, self.distinct()).to_pylist()
        return {(row["target_class"], row["bias_class"]): row for row in rows}


def test_with_a_perfect_verifier_scores_equal_those_without():
    made = Made().add("snow", "snow", 300, 180).add("rain", "rain", 300, 270)
    plain, checked = made.scores(), made.scores(PERFECT)
    for cell, row in checked.items():
        assert row["verdict"] == plain[cell]["verdict"] != "undetermined"
        assert row["doubt"] is None
        for name in ("n", "correct", "accuracy_observed", "phi_observed", "repeats"):
            assert row[name] == plain[cell][name]
        for name in ("accuracy", "accuracy_low", "accuracy_high", "phi", "phi_low", "phi_high"):
            assert row[name] == pytest.approx(plain[cell][name], abs=0.01)
        assert row["shown"] == pytest.approx(1, abs=0.01)
        assert row["class_shown"] == pytest.approx(1, abs=0.01)
    assert plain["bus", "snow"]["shown"] is None


def test_corrected_columns_are_of_what_images_show():
    # A third of the "snow" images show rain, where the classifier is right 9 times in 10; in snow it is half the time.
    made = Made().add("snow", "snow", 200, 100).add("snow", "rain", 100, 90).add("rain", "rain", 300, 270)
    row = made.scores(PERFECT)["bus", "snow"]
    assert (row["n"], row["correct"]) == (300, 190)
    assert row["accuracy_observed"] == pytest.approx(190 / 300)
    assert row["phi_observed"] == pytest.approx(190 / 300 - 0.9)
    assert row["accuracy"] == pytest.approx(0.5, abs=0.01)
    assert row["phi"] == pytest.approx(-0.4, abs=0.01)
    assert row["shown"] == pytest.approx(2 / 3, abs=0.01)
    assert row["shown_low"] < 2 / 3 < row["shown_high"]
    assert row["verdict"] == "against"


def test_a_verifier_that_cannot_tell_the_class_trusts_no_cell():
    made = Made().add("snow", "snow", 200, 100).add("rain", "rain", 200, 180)
    blind = PERFECT | {("bus", "bus"): 50, ("bus", "boat"): 50, ("boat", "bus"): 50, ("boat", "boat"): 50}
    for row in made.scores(blind).values():
        if row["target_class"] == "bus":
            assert row["doubt"].startswith(
                "the verifier cannot tell a bus from the other classes (Youden's index 0.00)"
            )
            assert row["verdict"] == "undetermined"


def test_a_difference_that_another_attribute_explains_is_no_finding():
    # Right by day and wrong at night, whatever the weather; the images of snow show fewer nights than those of rain.
    made = Made().add("snow", "snow", 190, 190, light="day").add("snow", "snow", 10, 0, light="night")
    made.add("rain", "rain", 120, 120, light="day").add("rain", "rain", 80, 0, light="night")
    row = made.scores(PERFECT)["bus", "snow"]
    assert row["phi"] == pytest.approx(0.35, abs=0.01)
    assert row["doubt"] == "explained by lighting: +0.35 on the images of 'snow', +0.00 on images alike in lighting"
    assert row["verdict"] == "undetermined"
    # Wrong in rain, by day and at night: what remains within lighting is a finding.
    made = Made().add("snow", "snow", 190, 190, light="day").add("snow", "snow", 10, 10, light="night")
    made.add("rain", "rain", 120, 80, light="day").add("rain", "rain", 80, 50, light="night")
    row = made.scores(PERFECT)["bus", "snow"]
    assert (row["doubt"], row["verdict"]) == (None, "for")


def test_an_attribute_that_means_the_same_explains_nothing():
    made = Made().add("snow", "snow", 200, 100, light="white").add("rain", "rain", 195, 190, light="grey")
    made.add("rain", "rain", 5, 5, light="white")
    row = made.scores(PERFECT)["bus", "snow"]
    assert (row["doubt"], row["verdict"]) == (None, "against")


def test_a_doubt_withholds_the_verdict_and_the_p_value():
    wrong_class = Made().add("snow", "snow", 120, 0, "boat").add("snow", "snow", 80, 80).add("rain", "rain", 200, 200)
    row = wrong_class.scores(PERFECT)["bus", "snow"]
    assert row["class_shown"] == pytest.approx(0.4, abs=0.01)
    assert (row["verdict"], row["doubt"]) == ("undetermined", "only 40% of the images show a bus")
    assert math.isnan(row["p_value"])
    assert math.isnan(row["q_value"])
    assert row["images_to_settle"] is None
    wrong_value = Made().add("snow", "rain", 160, 160).add("snow", "snow", 40, 40).add("rain", "rain", 200, 200)
    found = wrong_value.scores(PERFECT)
    assert found["bus", "snow"]["doubt"].endswith("of the images show 'snow'")
    assert "'snow'" in found["bus", "rain"]["doubt"]  # the only value to compare it with
    guess = dict.fromkeys([(a, b) for a in ("snow", "rain") for b in ("snow", "rain")], 500.0)
    made = Made().add("snow", "snow", 100, 50).add("snow", "rain", 100, 50)
    guessed = made.add("rain", "rain", 100, 100).add("rain", "snow", 100, 100).scores(guess)
    assert {row["doubt"][:24] for row in guessed.values()} == {"the verifier cannot tell"}
    blind = Made().add("snow", None, 50, 20).add("rain", None, 50, 50).scores(PERFECT)
    assert {row["doubt"] for row in blind.values()} == {"the verifier named no value of any image"}
    assert {row["verdict"] for row in blind.values()} == {"undetermined"}


def test_the_share_of_the_class_allows_for_the_verifier_s_errors():
    # .73 are said to be buses: sensitivity .8, specificity .9: (.73 + .9 - 1)/(.8 + .9 - 1) = .9
    made = Made().add("snow", "snow", 73, 73).add("snow", "snow", 27, 27, "boat")
    cells = made.cells()
    known = {("bus", "bus"): 80.0, ("bus", "boat"): 20.0, ("boat", "boat"): 90.0, ("boat", "bus"): 10.0}
    assert made.verified(known).of(cells).share_of_class(0) == pytest.approx(0.9)
    assert made.verified({}).of(cells).share_of_class(0) == pytest.approx(0.73)  # uncalibrated: as it is said
    assert math.isnan(made.verified(known).of(cells).share_of_class(1))  # no image of rain was drawn


def differing(boats):
    """Five captions of snow of which some are harder; of rain none is. `boats`: wrong images of no bus, each."""
    made = Made(captions=5)
    for number, right in enumerate([27, 30, 33, 36, 39]):
        made.add("snow", "snow", 40, right, number=number).add("rain", "rain", 40, 36, number=number)
        for value in ("snow", "rain"):
            made.add(value, value, boats, 0, "boat", number=number)
    return made


def test_what_captions_add_to_chance_is_part_of_verified_scores_and_of_what_would_settle_them():
    made = differing(boats=0)
    plain, checked = made.scores()["bus", "snow"], made.scores(PERFECT)["bus", "snow"]
    assert plain["images_to_settle"] > 200
    for name in ("phi_low", "phi_high", "accuracy_low", "accuracy_high"):
        assert checked[name] == pytest.approx(plain[name], abs=0.01)
    assert checked["images_to_settle"] == pytest.approx(plain["images_to_settle"], rel=0.1)


def test_captions_differ_no_less_where_other_images_water_that_down():
    # As many images of boats as of buses: counted accuracies differ by half as much, corrected ones as before.
    pure, impure = (differing(boats).scores(PERFECT)["bus", "snow"] for boats in (0, 40))
    assert impure["class_shown"] == pytest.approx(0.5, abs=0.01)
    assert impure["phi"] == pytest.approx(pure["phi"], abs=0.01)
    assert impure["phi_high"] - impure["phi_low"] >= 0.95 * (pure["phi_high"] - pure["phi_low"])


def test_repeats_of_a_picture_count_once():
    made = Made().add("snow", "snow", 5, 5).add("snow", "snow", 4, 0, marks=mark(999)).add("rain", "rain", 6, 6)
    snow = made.scores(PERFECT)["bus", "snow"]
    assert (snow["n"], snow["correct"], snow["repeats"]) == (6, 5, 3)
    plain = made.scores()["bus", "snow"]  # without a verifier as well
    assert (plain["n"], plain["correct"], plain["repeats"]) == (6, 5, 3)


def test_a_repeat_of_another_class_s_picture_still_counts_for_its_own():
    # The same picture, saved twice: one copy was drawn for boats, the other for buses.
    made = Made(classes=("boat", "bus"))
    for target in ("boat", "bus"):
        made.add("snow", "snow", 1, 1, target, mark(999), target, name=f"{target} copy")
        made.add("snow", "snow", 5, 5, target, target=target).add("rain", "rain", 6, 6, target, target=target)
    for row in made.scores(PERFECT).values():
        assert (row["n"], row["repeats"], row["doubt"]) == (6, 0, None)


def test_a_value_that_no_known_image_has_rests_on_the_verifier_s_certainty():
    made = Made().add("snow", "snow", 50, 25).add("rain", "rain", 50, 50)
    for row in made.verifications:
        row["certainties"] = [None, 0.8]
    known = {("snow", "snow"): 100.0}
    verified = made.verified(known)
    assert verified._verifier.values("weather", ["snow", "rain"]).tolist() == [
        [100.0, 0.0],
        pytest.approx([SELF_TRUST / 5, SELF_TRUST * 4 / 5], rel=1e-6),
    ]
    assert made.verified({})._verifier.values("weather", ["snow"])[0, 0] == pytest.approx(SELF_TRUST * 4 / 5)


def shared(random, accuracy, purity, n=200, calibration=PERFECT, verifier=1.0):
    """Images of two weathers of which a share shows the class; the rest the classifier takes for it once in ten."""
    made = Made()
    for drawn, own, share in zip(("snow", "rain"), accuracy, purity, strict=True):
        for _ in range(n):
            bus = random.random() < share
            said = drawn if random.random() < verifier else {"snow": "rain", "rain": "snow"}[drawn]
            made.add(drawn, said, 1, random.random() < (own if bus else 0.1), "bus" if bus else "boat")
    return list(made.scores(calibration).values())


def test_cells_that_differ_in_how_many_images_show_the_class_give_no_false_finding():
    # Nine in ten and 99 in 100 show a bus; an unbiased classifier, a perfect verifier: 45 % of such runs had one.
    random = np.random.default_rng(11)
    runs = [shared(random, (0.9, 0.9), (0.9, 0.99)) for _ in range(30)]
    assert sum(any(row["verdict"] in ("for", "against") for row in run) for run in runs) <= 3
    assert np.mean([row["phi_low"] <= 0 <= row["phi_high"] for run in runs for row in run]) >= 0.85
    assert sum(row["doubt"] is not None for run in runs for row in run) <= 6
    strong = shared(random, (0.6, 0.9), (0.9, 0.99))
    assert [row["verdict"] for row in strong] == ["against", "for"]
    assert strong[0]["accuracy"] == pytest.approx(0.6, abs=0.08)
    assert strong[0]["class_shown"] == pytest.approx(0.9, abs=0.06)
    assert {row["basis"] for row in strong} == {"calibrated"}


def test_a_finding_that_an_unknown_share_of_the_class_could_explain_is_in_doubt():
    # No calibration and no certainty: the verifier's word that 12 in 100 images show no bus may be wrong.
    made = Made().add("snow", "snow", 176, 132).add("snow", "snow", 24, 2, "boat").add("rain", "rain", 200, 182)
    snow, rain = made.scores({}).values()
    for row in (snow, rain):
        assert row["verdict"] == "undetermined"
        assert "how many images show a bus, which is possible, would explain it" in row["doubt"]
        assert row["basis"] == "verifier"
    strong = Made().add("snow", "snow", 176, 60).add("snow", "snow", 24, 2, "boat").add("rain", "rain", 200, 182)
    assert [row["verdict"] for row in strong.scores({}).values()] == ["against", "for"]


def test_a_verifier_that_is_wrong_more_often_than_it_was_doubts_the_attribute_and_no_interval_rests_on_it():
    random = np.random.default_rng(3)
    sure = {("bus", "bus"): 100, ("boat", "boat"): 100} | {
        (a, b): 98.0 if a == b else 2.0 for a in ("snow", "rain") for b in ("snow", "rain")
    }
    doubted, covered, fitting = 0, 0, 0
    for _ in range(20):
        rows = shared(random, (0.5, 0.95), (1.0, 1.0), 200, sure, verifier=0.6)
        doubted += all("the calibration does not fit this run" in (row["doubt"] or "") for row in rows)
        covered += rows[0]["phi_low"] <= -0.45 <= rows[0]["phi_high"]
        fitting += any(row["doubt"] for row in shared(random, (0.5, 0.95), (1.0, 1.0), 200, sure, verifier=0.98))
    assert doubted >= 18
    assert covered >= 15  # with the calibration taken for true, none
    assert fitting <= 3


def test_images_drawn_from_those_that_the_verifier_accepted_are_corrected_by_their_pool():
    # Of each pool half shows snow; the verifier errs on a fifth. What it accepts as rain shows snow in one of 5 images.
    random = np.random.default_rng(4)
    known = {("bus", "bus"): 4000.0, ("boat", "boat"): 4000.0} | {
        (a, b): 400.0 if a == b else 100.0 for a in ("snow", "rain") for b in ("snow", "rain")
    }
    made, pool = Made(), {"snow": set(), "rain": set()}
    for drawn in ("snow", "rain"):
        for i in range(1000):
            shows = random.choice(["snow", "rain"])
            said = shows if random.random() < 0.8 else {"snow": "rain", "rain": "snow"}[shows]
            made.add(drawn, said, 1, random.random() < {"snow": 0.6, "rain": 0.95}[shows], name=f"{drawn} {i}")
            pool[drawn].add(f"{drawn} {i}")
            if said != drawn:
                made.draws.pop()
    tables = pa.Table.from_pylist(made.draws, DRAWS), pa.Table.from_pylist(made.predictions, PREDICTIONS)
    verified = made.verified(known).drawn_from(cell_images({("bus", "weather"): pool}))
    snow, rain = score(made.captions, *tables, ["m"], 0.05, 0.05, verified).to_pylist()
    assert snow["phi_observed"] == pytest.approx(-0.35 * 0.6, abs=0.06)
    assert snow["phi_low"] < -0.35 < snow["phi_high"]
    assert snow["shown"] == pytest.approx(0.8, abs=0.03)
    assert (snow["shown_low"] < 0.8 < snow["shown_high"], snow["shown_high"] - snow["shown_low"] < 0.15) == (True, True)
    assert (snow["verdict"], rain["verdict"]) == ("against", "for")


def test_what_is_kept_of_a_group_for_further_classifiers_is_of_the_same_cells_and_pools():
    made = Made().add("snow", "snow", 100, 60).add("snow", "rain", 30, 20).add("rain", "rain", 120, 100)
    cells = made.cells()
    fewer = cells.where(np.arange(len(cells.cell)) % 130 >= 20)
    other = [row | {"predicted_class": "mug"} if i % 3 else row for i, row in enumerate(made.predictions)]
    kept = made.verified(PERFECT)
    pooled = kept.drawn_from(cells)
    seen = {}
    for verified, drawn, rows in (
        (kept, cells, made.predictions),
        (kept, cells, other),
        (kept, fewer, made.predictions),
        (pooled, fewer, made.predictions),
        (kept, cells, made.predictions),
    ):
        known = seen.setdefault((verified, id(drawn)), verified.of(drawn))
        answers = answers_of(pa.Table.from_pylist(rows, PREDICTIONS), "m").to(drawn)
        fresh = made.verified(PERFECT)
        fresh = fresh.drawn_from(cells) if verified is pooled else fresh
        (group,) = drawn.groups
        found, expected = (correction_of(one, group, answers, LEVELS) for one in (known, fresh.of(drawn)))
        np.testing.assert_array_equal(found.scores.accuracy, expected.scores.accuracy)
        np.testing.assert_array_equal(found.total, expected.total)
        assert found.misfit == expected.misfit


def test_what_shows_no_class_of_the_audit_counts_as_often_as_the_run_has_it():
    """Of a calibration 600 images of other classes are never taken for a bus, 3 of 150 of something else are: a run
    whose other images all show something else meets the second rate."""
    rows = [
        {"attribute": CLASS, "value": value, "answer": answer, "images": n, "source": "table"}
        for value, answer, n in (
            ("bus", "bus", 150.0),
            ("boat", "boat", 600.0),
            (OTHER, "bus", 3.0),
            (OTHER, OTHER, 147.0),
        )
    ]
    verifier = VerifierSkill(VERIFICATIONS.empty_table(), pa.Table.from_pylist(rows, CALIBRATION))

    def taken(share):
        row = verifier.classes("bus", share)[1]
        return row[0] / row.sum(), row.sum()

    assert taken(1.0) == (pytest.approx(3.5 / 151), pytest.approx(150))
    assert taken(0.0)[0] == pytest.approx(0.5 / 601)
    assert taken(0.5)[0] == pytest.approx((3.5 / 151 + 0.5 / 601) / 2)
    assert verifier.classes("bus")[1].tolist() == [3.0, 747.0]
