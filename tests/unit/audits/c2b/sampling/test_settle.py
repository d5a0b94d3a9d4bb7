import math

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.sampling.settled import evidence_of, open_groups, settled
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.stats import confidence_sequence, sequential_evidence, sequential_verdicts
from c2b_ray.steps.caption import caption
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.propose import propose
from c2b_ray.tables import CALIBRATION, DRAWS, IMAGES, PREDICTIONS, SCORES, VERIFICATIONS

LEVELS = Thresholds(0.05, 0.05)


class Made:
    """Images of buses, drawn in the order of `add`: a row of answers is one image of a cell each, rank by rank."""

    def __init__(self, attributes=None, captions=1, source="retrieve"):
        proposals, _ = propose("task", ["bus"], None, attributes or {"weather": ["snow", "rain"]}, seed=0)
        self.captions, _ = caption("task", proposals, None, captions, seed=0)
        self.ids = {}
        for row in self.captions.to_pylist():
            self.ids.setdefault(row["bias_class"], []).append(row["caption_id"])
        self.source = source
        self.draws, self.predictions, self.verifications = [], [], []

    def add(self, drawn, answers, shows=None, names=None):
        """`answers`: 1 right, 0 wrong, None not answered; `shows`: the value seen, of each image."""
        for rank, right in enumerate(answers):
            # Names against the order of drawing, so that sorting by name would show.
            image = names[rank] if names else f"{drawn}-{999 - rank}"
            turn, of_cell = divmod(rank, len(self.ids[drawn])), self.ids[drawn]
            draw = {"caption_id": of_cell[turn[1]], "image_id": image, "rank": turn[0], "source": self.source}
            self.draws.append(draw)
            row = {"prediction_id": image, "image_id": image, "classifier": "m", "revision": "1"}
            self.predictions.append({**row, "predicted_class": None if right is None else ("boat", "bus")[right]})
            row = {"verification_id": image, "image_id": image, "target_class": "bus", "class_shown": "bus"}
            value = shows[rank] if shows else drawn
            self.verifications.append({**row, "attributes": ["weather"], "values": [value], "certainties": [None]})
        return self

    @property
    def tables(self):
        return (
            self.captions,
            pa.Table.from_pylist(self.draws, DRAWS),
            pa.Table.from_pylist(self.predictions, PREDICTIONS),
        )

    def distinct(self, marks):
        rows = [{"image_id": row["image_id"], "content": None} for row in self.draws]
        rows = [row | {"fingerprint": marks.get(row["image_id"])} for row in rows]
        return Distinct(pa.Table.from_pylist(rows, pa.schema([IMAGES.field(name) for name in DISTINCT_COLUMNS])))

    def verified(self, marks=None):
        rows = pa.Table.from_pylist(self.verifications, VERIFICATIONS)
        return VerifiedImages(rows, CALIBRATION.empty_table(), self.distinct(marks or {}))

    def look(self, verified=None, distinct=None):
        ((_, at),) = evidence_of(*self.tables, ["m"], LEVELS, verified, distinct)
        return at

    def settled(self):
        return settled(scored(*self.tables, ["m"], LEVELS)[0], [("m", self.look())], LEVELS)


def assert_rounds(found, outcomes):
    """What is found rests on exactly these rounds. Evidence does not depend on their order, only on who met whom."""
    expected = sequential_evidence(outcomes, LEVELS[0])
    for name in ("phi", "above_tau", "below_minus_tau", "below_tau", "above_minus_tau"):
        np.testing.assert_allclose(getattr(found.evidence, name), getattr(expected, name))
    np.testing.assert_allclose((found.low, found.high), confidence_sequence(outcomes, 1 - LEVELS[1]))


def test_rounds_are_formed_in_the_order_of_drawing():
    # The image without an answer is passed over; the cell with fewer answers ends the rounds.
    made = Made().add("snow", [1, None, 0, 1, 1, 1]).add("rain", [0, 1, 1])
    assert_rounds(made.look(), [[1, 0], [0, 1], [1, 1]])
    assert made.look().groups == ((("bus", "weather"), ("snow", "rain")),)


def test_an_image_of_two_captions_counts_at_its_least_rank():
    made = Made().add("snow", [1, 0, 0]).add("rain", [1, 1])
    first = made.draws[2]  # the last of snow is drawn first of all by another caption of its cell
    made.captions = pa.concat_tables([made.captions, made.captions.slice(0, 1)])
    again = made.captions.to_pylist()
    again[-1] |= {"caption_id": "second", "number": 1}
    made.captions = pa.Table.from_pylist(again, made.captions.schema)
    made.draws.append(first | {"caption_id": "second", "rank": 0})
    # ranks of snow: 0, 1 and 0; between equal ranks the name decides, "snow-997" before "snow-999"
    assert_rounds(made.look(), [[0, 1], [1, 1]])


def test_verified_images_count_for_the_value_that_they_show():
    made = (
        Made()
        .add("snow", [1, 1, 0], shows=["rain", "snow", None])
        .add("rain", [0, 0, 1], shows=["rain", "rain", "snow"])
    )
    # snow holds its second (1) and rain's third (1); rain its own two (0, 0) and snow's first (1)
    assert_rounds(made.look(made.verified()), [[1, 0], [1, 1]])
    assert_rounds(made.look(), [[1, 0], [1, 0], [0, 1]])


def test_verified_repeats_count_once():
    made = Made().add("snow", [1, 1, 0], names=["a", "b", "c"]).add("rain", [0, 0, 0], names=["x", "y", "z"])
    mark = np.arange(200, dtype=np.uint8).tobytes()
    assert_rounds(made.look(made.verified({"a": mark, "b": mark})), [[1, 0], [0, 0]])
    # Without a verifier as well.
    assert_rounds(made.look(distinct=made.distinct({"a": mark, "b": mark})), [[1, 0], [0, 0]])


def test_an_image_that_is_not_drawn_yet_stands_for_none_that_is():
    # A resumed run has verified images that its first look does not draw; "a" is a repeat of "b".
    made = Made().add("snow", [1, 1], names=["b", "a"]).add("rain", [0, 0])
    mark = np.arange(200, dtype=np.uint8).tobytes()
    verified = made.verified({"a": mark, "b": mark})
    del made.draws[1]
    assert_rounds(made.look(verified), [[1, 0]])


def test_groups_are_open_until_every_cell_is_settled():
    made = Made({"weather": ["snow", "rain"], "size": ["small", "large"]})
    made.add("snow", [0] * 60).add("rain", [1] * 60).add("small", [1, 0] * 5).add("large", [1, 0] * 5)
    rows = made.settled()
    assert rows["verdict"].to_pylist() == ["against", "for", "undetermined", "undetermined"]
    assert set(open_groups(rows)) == {("bus", "size")}
    assert set(open_groups(Made().settled())) == {("bus", "weather")}  # nothing drawn


ROW = {"classifier": "m", "target_class": "bus", "attribute": "weather", "verdict": "undetermined", "n": 100}


@pytest.mark.parametrize(
    ("changes", "still_open"),
    [
        ({}, True),
        ({"doubt": "explained by lighting", "shown": 0.9}, True),  # the other cell is open still
        ({"doubt": "only 20% show snow", "shown": 0.2}, False),  # and would find no partners for its rounds
        ({"doubt": "only 20% show snow", "shown": 0.2, "n": 99}, True),  # which may be chance
        ({"doubt": "the verifier named no value of any image"}, False),
    ],
)
def test_doubts_that_stay_close_a_group(changes, still_open):
    rows = [{**ROW, "bias_class": "snow"} | changes, {**ROW, "bias_class": "rain", "shown": 0.9}]
    tables = [pa.Table.from_pylist(part, SCORES) for part in (rows, [row | changes for row in rows])]
    assert bool(open_groups(tables[0])) == still_open
    assert bool(open_groups(tables[1])) == (not changes or changes.get("n") == 99)


def test_settled_scores_hold_the_evidence_and_hulls_of_the_limits():
    made = Made().add("snow", [0] * 50 + [1] * 10).add("rain", [1] * 60)
    plain, at = scored(*made.tables, ["m"], LEVELS)[0], made.look()
    rows = settled(plain, [("m", at)], LEVELS).to_pylist()
    for i, (row, before) in enumerate(zip(rows, plain.to_pylist(), strict=True)):
        assert row["phi"] == before["phi"]
        assert row["phi_low"] == min(before["phi_low"], at.low[i])
        assert row["phi_high"] == max(before["phi_high"], at.high[i])
        claimed = at.evidence.above_tau if row["phi"] > 0 else at.evidence.below_minus_tau
        assert row["p_value"] == pytest.approx(1 / claimed[i])
        assert row["q_value"] >= row["p_value"]
        assert row["verdict"] == ("against", "for")[i]
        assert row["images_to_settle"] is None
        assert row["group"] is None


def test_where_the_corrected_score_does_not_bear_it_out_a_verdict_is_open():
    made = Made().add("snow", [0] * 60).add("rain", [1] * 60)
    rows = scored(*made.tables, ["m"], LEVELS)[0].to_pylist()
    for row in rows:  # as the verifier sorts them these images differ; corrected for its errors they need not
        row |= {"shown": 0.7, "p_value": 0.3}
    checked = settled(pa.Table.from_pylist(rows, SCORES), [("m", made.look())], LEVELS)
    assert checked["verdict"].to_pylist() == ["undetermined"] * 2
    assert checked["undetermined_because"].to_pylist() == ["too few images"] * 2
    same = Made().add("snow", [1] * 400).add("rain", [1] * 400)
    rows = scored(*same.tables, ["m"], LEVELS)[0].to_pylist()
    (unverified, *_) = settled(pa.Table.from_pylist(rows, SCORES), [("m", same.look())], LEVELS).to_pylist()
    assert (unverified["basis"], unverified["verdict"]) == ("captions", "undetermined")
    assert "was not measured" in unverified["undetermined_because"]
    assert unverified["images_to_settle"] is None
    for row in rows:
        row["basis"] = "calibrated"
    (clear, *_) = settled(pa.Table.from_pylist(rows, SCORES), [("m", same.look())], LEVELS).to_pylist()
    assert (clear["verdict"], clear["undetermined_because"]) == ("none", None)
    rows[0] |= {"shown": 0.7, "phi_high": 0.06}
    assert settled(pa.Table.from_pylist(rows, SCORES), [("m", same.look())], LEVELS)["verdict"][0].as_py() != "none"


def test_where_captions_drew_the_images_a_verdict_is_borne_out_by_captions_as_well():
    # Four captions of snow are right, one always wrong: one wrong caption of five says little about snow.
    made = Made(captions=5).add("snow", [0, 1, 1, 1, 1] * 80).add("rain", [1] * 400)
    score_alone, at = scored(*made.tables, ["m"], LEVELS)[0], made.look()
    assert sequential_verdicts(at.evidence, *LEVELS) == ["against", "for"]  # as if images were drawn one by one
    rows = settled(score_alone, [("m", at)], LEVELS).to_pylist()
    assert [row["verdict"] for row in rows] == ["undetermined"] * 2
    assert all(row["undetermined_because"] for row in rows)


def test_an_image_keeps_its_round_whatever_else_draws_it():
    made = Made({"weather": ["snow", "rain"], "size": ["small", "large"]})
    made.add("snow", [1, 0, 1], names=["a", "b", "c"]).add("rain", [1, 1, 1], names=["d", "e", "f"])
    before = made.look().outcomes[0]
    for row in made.draws[:3]:  # the same images, the other way round, for another attribute
        made.draws.append({**row, "caption_id": made.ids["small"][0], "rank": 2 - row["rank"]})
    np.testing.assert_array_equal(made.look().outcomes[0], before)


def test_evidence_may_be_thinner_than_the_score_s_and_then_the_verdict_is_open():
    made = Made().add("snow", [0] * 10 + [1] * 10).add("rain", [1] * 17 + [0] * 3)
    plain = scored(*made.tables, ["m"], LEVELS)[0]
    assert plain["verdict"].to_pylist() == ["against", "for"]
    assert plain["group"].to_pylist() == [1, 1]
    rows = settled(plain, [("m", made.look())], LEVELS)
    assert rows["verdict"].to_pylist() == ["undetermined"] * 2
    assert rows["group"].to_pylist() == [None] * 2  # no finding, no group
    assert min(rows["images_to_settle"].to_pylist()) > 20  # which the score's own test did not know


def test_a_doubt_stays_whatever_the_evidence():
    made = Made().add("snow", [0] * 60).add("rain", [1] * 60)
    rows = scored(*made.tables, ["m"], LEVELS)[0].to_pylist()
    rows[0] |= {"doubt": "only 10% of the images show a bus", "verdict": "undetermined", "p_value": math.nan}
    rows[0] |= {"q_value": math.nan}
    doubted = pa.Table.from_pylist(rows, scored(*made.tables, ["m"], LEVELS)[0].schema)
    first, second = settled(doubted, [("m", made.look())], LEVELS).to_pylist()
    assert (first["verdict"], first["doubt"]) == ("undetermined", "only 10% of the images show a bus")
    assert math.isnan(first["p_value"])
    assert second["verdict"] == "for"
