import re

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.false_accepts import (
    FalseAccepts,
    Predicted,
    lacks_something_else,
    too_few_negatives,
    without_false_accepts,
)
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.steps.caption import caption
from c2b_ray.steps.cells import images_of_cells
from c2b_ray.steps.observe import CLASS, OTHER
from c2b_ray.steps.propose import propose
from c2b_ray.tables import CALIBRATION, DRAWS, NEGATIVES, PREDICTIONS, VERIFICATIONS

VALUES = ("snow", "rain")
LEVELS = Thresholds(0.05, 0.05)


class World:
    """Pools of "bus in the snow" and "bus in the rain" that hold buses and other things.

    The more a thing looks like the caption, the likelier the verifier takes it for a bus: with probability `rate` times
    its similarity, cubed. Pools hold similar things; a calibration holds any. A classifier is right on `right` of the
    buses and on nothing else. `kinds`: what the verifier calls the things of the pools and of the calibration that it
    does not take for a bus. `recognised`: the share of the pools' buses that it takes for one; the others it calls
    something else.
    """

    known_buses = 1000, 0  # of the calibration: recognised and missed

    def __init__(
        self, rates, things=500, buses=150, negatives=1500, right=0.9, seed=3, kinds=(OTHER, OTHER), recognised=1.0
    ):
        self.random = np.random.default_rng(seed)
        of_pool, self.of_calibration = kinds
        proposals, _ = propose("task", ["bus"], None, {"weather": list(VALUES)}, seed=0)
        self.captions, _ = caption("task", proposals, None, 1, seed=0)
        self.caption = {row["bias_class"]: row["caption_id"] for row in self.captions.to_pylist()}
        self.looked, self.drawn, self.verifications, self.predictions, self.negatives = [], [], [], [], []
        self.false, self.accepted = dict.fromkeys(VALUES, 0), dict.fromkeys(VALUES, 0)
        for value, rate in zip(VALUES, rates, strict=True):
            for _ in range(buses):
                similarity, is_right = self.random.uniform(0.7, 1), self.random.random() < right
                said = "bus" if recognised == 1 or self.random.random() < recognised else OTHER
                self._look(value, similarity, said, is_right, is_bus=True)
            for similarity in self.random.beta(6, 2, things):
                said = "bus" if self.random.random() < rate * similarity**3 else of_pool
                self._look(value, similarity, said, False, is_bus=False)
            for similarity in self.random.beta(3, 3, negatives):
                said = "bus" if self.random.random() < rate * similarity**3 else self.of_calibration
                self._negative(value, similarity, said)

    def _look(self, value, similarity, said, right, is_bus):
        image = f"i{len(self.looked):05}"
        draw = {"caption_id": self.caption[value], "image_id": image, "rank": 0, "similarity": similarity}
        self.looked.append(draw | {"source": "retrieve"})
        self.verifications.append(self._said(image, said, value))
        if said == "bus":
            self.accepted[value] += 1
            self.false[value] += not is_bus
            self.drawn.append(self.looked[-1])
            row = {"prediction_id": image, "image_id": image, "classifier": "m", "revision": "1"}
            self.predictions.append({**row, "predicted_class": "bus" if right else "mug"})

    def _negative(self, value, similarity, said):
        image = f"n{len(self.negatives):05}"
        near = {"captions": [self.caption[value]], "similarities": [similarity], "negative_id": image}
        self.negatives.append(self._said(image, said, value) | near)

    def _said(self, image, said, value):
        return {
            "verification_id": image,
            "image_id": image,
            "target_class": "bus",
            "revision": "1",
            "class_shown": said,
            "attributes": ["weather"],
            "values": [value],
            "certainties": [None],
        }

    @property
    def truth(self):
        return [self.false[value] / self.accepted[value] for value in VALUES]

    @property
    def verified(self):
        # A large calibration of images at large, few of which look like a bus: 1 in 1000 is taken for one.
        other = self.of_calibration
        recognised, missed = self.known_buses
        known = [(CLASS, "bus", "bus", recognised), (CLASS, "bus", OTHER, missed)]
        known += [(CLASS, other, "bus", 5), (CLASS, other, other, 4995)]
        known += [("weather", value, value, 1000) for value in VALUES]
        rows = [
            {"attribute": attribute, "value": value, "answer": answer, "images": float(n), "source": "table"}
            for attribute, value, answer, n in known
        ]
        verified = VerifiedImages(table(self.verifications, VERIFICATIONS), table(rows, CALIBRATION))
        return verified.drawn_from(images_of_cells(self.captions, table(self.looked, DRAWS)))

    @property
    def false_accepts(self):
        return FalseAccepts(self.verified, self.captions, table(self.looked, DRAWS), table(self.negatives, NEGATIVES))

    def predicted(self):
        (group,) = images_of_cells(self.captions, table(self.drawn, DRAWS)).groups
        return self.false_accepts.of(group)

    def scores(self, tested=True):
        tables = table(self.drawn, DRAWS), table(self.predictions, PREDICTIONS)
        predicted = self.false_accepts if tested else None
        rows = scored(self.captions, *tables, ["m"], LEVELS, self.verified, false_accepts=predicted)[0]
        return {row["bias_class"]: row for row in rows.to_pylist()}


def table(rows, schema):
    return pa.Table.from_pylist(rows, schema)


def test_the_share_of_false_accepts_is_predicted_from_images_that_look_like_the_pool():
    worlds = [World((0.1, 0.4), seed=seed) for seed in range(6)]
    predicted = [world.predicted() for world in worlds]
    truth = np.array([world.truth for world in worlds])
    share = np.array([one.share for one in predicted])
    assert share.mean(axis=0) == pytest.approx(truth.mean(axis=0), abs=0.03)
    inside = [(one.low <= true) & (true <= one.high) for one, true in zip(predicted, truth, strict=True)]
    assert np.mean(inside) >= 0.8
    # By all negatives, whatever they look like, a third as many would be expected.
    taken = np.mean([row["class_shown"] == "bus" for world in worlds for row in world.negatives[1500:]])
    refused = np.mean([650 - world.accepted["rain"] for world in worlds])
    accepted = np.mean([world.accepted["rain"] for world in worlds])
    assert taken / (1 - taken) * refused / accepted < truth[:, 1].mean() / 2


def test_limits_allow_for_how_few_images_of_the_class_tell_the_verifier_s_sensitivity():
    of_few, of_many = World((0.3, 0.3)), World((0.3, 0.3))
    of_few.known_buses, of_many.known_buses = (20, 10), (2000, 1000)
    few, many = of_few.predicted(), of_many.predicted()
    assert few.share == pytest.approx(many.share)
    assert (few.limits(0.95)[0] < many.limits(0.95)[0] - 0.005).all()
    assert (few.limits(0.95)[1] > many.limits(0.95)[1] + 0.005).all()


def test_a_cell_with_more_false_accepts_than_its_scores_are_corrected_for_is_in_doubt():
    world = World((0.0, 0.6), negatives=4000)
    plain, tested = world.scores(tested=False), world.scores()
    assert plain["rain"]["verdict"] == "against"  # the classifier is equally good at both: a false finding
    assert plain["rain"]["doubt"] is None
    assert world.truth[1] > 1 - plain["rain"]["class_shown"] + 0.25
    assert "of the images show no bus, by what the verifier accepts among similar images" in tested["rain"]["doubt"]
    assert tested["snow"]["false_accepts"] == 0
    assert {row["verdict"] for row in tested.values()} == {"undetermined"}
    # The estimate itself is left as it is.
    assert tested["rain"]["accuracy"] == pytest.approx(plain["rain"]["accuracy"])


def test_a_finding_that_false_accepts_would_explain_is_in_doubt_and_its_limits_hold_the_truth():
    # About 9 in 100 of "rain" are no buses: less than a cell may hold, and enough for a finding.
    world = World((0.0, 0.07), buses=300, things=900, negatives=8000, right=1.0, seed=1)
    plain, tested = world.scores(tested=False)["rain"], world.scores()["rain"]
    assert plain["verdict"] == "against"
    assert plain["phi_high"] < 0
    assert tested["verdict"] == "undetermined"
    assert "without the images that the verifier falsely accepts" in tested["doubt"]
    assert tested["phi_low"] <= 0 <= tested["phi_high"]


def worse_in_rain(negatives):
    """A world whose verifier takes 2 in 100 things for a bus, and whose classifier misses 60 of the buses in rain."""
    world = World((0.02, 0.02), negatives=negatives)
    for row in world.predictions[-60:]:
        row["predicted_class"] = "mug"
    return world


def test_a_true_finding_of_a_good_verifier_stays_with_enough_negatives():
    world = worse_in_rain(1500)
    plain, tested = world.scores(tested=False)["rain"], world.scores()["rain"]
    assert plain["verdict"] == tested["verdict"] == "against"
    assert tested["doubt"] is None
    # The prediction is uncertain, and so is φ without false accepts.
    assert tested["phi_low"] <= plain["phi_low"] < plain["phi_high"] < tested["phi_high"] < -0.05


def test_false_accepts_that_too_few_negatives_do_not_exclude_put_a_finding_in_doubt_which_says_how_many_would():
    world = worse_in_rain(60)
    tested = world.scores()["rain"]
    assert tested["verdict"] == "undetermined"
    most = tested["false_accepts_high"]
    assert f"but up to {most:.0%} of a value's images may show no bus, which would explain it" in tested["doubt"]
    more = int(re.search(r"About ([\d,]+) more images that show no bus", tested["doubt"])[1].replace(",", ""))
    assert 20 < more < 2000
    assert worse_in_rain(60 + 2 * more).scores()["rain"]["verdict"] == "against"


@pytest.mark.parametrize("negatives", [30, 120])
def test_a_small_calibration_makes_no_finding_of_a_perfect_classifier(negatives):
    # About 9 in 100 of "rain" are no buses, of which so few negatives hold one or none.
    worlds = [
        World((0.0, 0.07), buses=300, things=900, negatives=negatives, right=1.0, seed=seed) for seed in range(20, 23)
    ]
    plain = [world.scores(tested=False)["rain"]["verdict"] for world in worlds]
    tested = [world.scores()["rain"] for world in worlds]
    assert plain.count("against") >= 2
    assert [row["verdict"] for row in tested] == ["undetermined"] * len(worlds)
    assert all(row["phi_low"] <= 0 <= row["phi_high"] for row in tested)


def test_a_calibration_without_similar_images_predicts_nothing_and_is_asked_for_them():
    world = World((0.3, 0.3), negatives=0)
    predicted = world.predicted()
    assert np.isnan(predicted.share).all()
    assert np.isnan(predicted.low).all()
    (warning,) = too_few_negatives(["bus", "mug"], [("bus", predicted)])
    assert "holds too few images that show none of bus, mug and look like one: for 2 of 2 cells" in warning
    assert warning.endswith(f"would tell: {predicted.lacking.max():,} for bus")
    (of_both,) = too_few_negatives(["bus", "mug"], [("bus", predicted), ("mug", predicted), ("cup", None)])
    assert "for 4 of 4 cells" in of_both
    assert f"{predicted.lacking.max():,} for bus" in of_both
    assert f"{predicted.lacking.max():,} for mug" in of_both
    assert {row["doubt"] for row in world.scores().values()} == {None}
    assert too_few_negatives(["bus"], [("bus", World((0.3, 0.3), negatives=6000).predicted())]) == []


def test_a_calibration_of_the_audits_classes_alone_does_not_tell_what_is_accepted_of_other_things():
    world = World((0.1, 0.1), kinds=(OTHER, "mug"))
    assert world.predicted().unknown > 1
    for row in world.scores().values():
        assert row["doubt"].startswith(
            "how many of the images show no bus is not known: for each 100 that the verifier"
        )
        assert row["doubt"].endswith("of the audit's classes, and the calibration holds no such image")
    predicted = [("bus", world.predicted()), ("bus", world.predicted()), ("mug", None)]
    (warning,) = lacks_something_else(["bus", "mug"], predicted)
    assert "holds no image that shows none of bus, mug, and many images near to the captions of bus show" in warning


@pytest.mark.parametrize("kinds", [("mug", "mug"), (OTHER, OTHER), ("mug", OTHER)])
def test_a_calibration_that_holds_what_the_pools_hold_leaves_no_class_unknown(kinds):
    world = World((0.1, 0.1), kinds=kinds)
    assert world.predicted().unknown == 0
    assert not any("is not known" in (row["doubt"] or "") for row in world.scores().values())
    assert lacks_something_else(["bus", "mug"], [("bus", world.predicted())]) == []


def test_images_of_a_class_that_the_verifier_does_not_recognise_are_no_unknown_kind():
    world = World((0.1, 0.1), kinds=("mug", "mug"))
    for rows in (world.verifications, world.negatives):  # of both the verifier calls every fifth mug something else
        mugs = [row for row in rows if row["class_shown"] == "mug"]
        for row in mugs[::5]:
            row["class_shown"] = OTHER
    assert world.predicted().unknown == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("known", [(1200, 300), (24, 6)])
def test_missed_images_of_the_class_itself_are_no_unknown_kind(known):
    # An audit of all classes of its index: a fifth of the buses is called something else, as in the calibration.
    worlds = [World((0.02, 0.02), kinds=("mug", "mug"), buses=200, recognised=0.8, seed=seed) for seed in range(10)]
    for world in worlds:
        world.known_buses = known
    assert [world.predicted().unknown for world in worlds] == pytest.approx([0] * len(worlds), abs=0.05)
    assert not any("is not known" in (row["doubt"] or "") for row in worlds[0].scores().values())


def test_things_of_an_unknown_kind_are_told_from_missed_images_of_the_class():
    world = World((0.1, 0.1), kinds=(OTHER, "mug"), recognised=0.8)
    world.known_buses = 1200, 300
    assert world.predicted().unknown > 1


def test_a_few_known_images_do_not_say_that_a_kind_is_unknown():
    # Of 1,000 mugs in the pools the verifier calls 50 something else, of 40 in the calibration none: by chance .13.
    world = World((0.0, 0.0), kinds=("mug", "mug"), negatives=20)
    for row in [row for row in world.verifications if row["class_shown"] == "mug"][::20]:
        row["class_shown"] = OTHER
    assert world.predicted().unknown == 0


def test_accuracies_without_false_accepts():
    accuracy, claimed = np.array([0.8, 0.8, 0.8, 0.95, 0.5]), np.array([0.0, 0.1, 0.1, 0.0, np.nan])
    share = np.array([0.1, 0.05, np.nan, 0.2, 1.0])
    # 0.8 / 0.9; less than claimed, and not predicted: unchanged; 0.95 / 0.8 is more than all; nothing shows the class
    assert without_false_accepts(accuracy, share, claimed).tolist() == pytest.approx([0.8 / 0.9, 0.8, 0.8, 1, 1])


def test_groups_without_a_question_about_the_class_are_not_predicted():
    world = World((0.1, 0.1), negatives=5)
    for row in [*world.verifications, *world.negatives]:
        row["class_shown"] = None
    assert world.predicted() is None
    assert too_few_negatives(["bus"], [("bus", None)]) == []
    assert isinstance(World((0.1, 0.1)).predicted(), Predicted)
