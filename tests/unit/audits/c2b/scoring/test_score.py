import math

import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.steps.caption import caption
from c2b_ray.steps.propose import propose
from c2b_ray.tables import DRAWS, PREDICTIONS


def run(counts, tau=0.05, alpha=0.05, captions_per_cell=1, source="retrieve"):
    """Scores of one class and attribute; `counts`: value → (right, wrong, without a prediction)."""
    proposals, _ = propose("task", ["bus"], None, {"weather": list(counts)}, seed=0)
    captions, _ = caption("task", proposals, None, captions_per_cell, seed=0)
    draws, predictions = [], []
    for row in captions.to_pylist():
        right, wrong, missing = counts[row["bias_class"]]
        for i, answer in enumerate(["bus"] * right + ["boat"] * wrong + [None] * missing):
            image = f"{row['bias_class']}-{i}"
            draws.append({"caption_id": row["caption_id"], "image_id": image, "rank": i, "source": source})
            if row["number"] == 0:
                error = None if answer else "broken"
                names = {"prediction_id": f"m-{image}", "image_id": image, "classifier": "m", "revision": "1"}
                predictions.append({**names, "predicted_class": answer, "error": error})
    tables = pa.Table.from_pylist(draws, DRAWS), pa.Table.from_pylist(predictions, PREDICTIONS)
    rows = scored(captions, *tables, ["m"], Thresholds(tau, alpha))[0].to_pylist()
    return {row["bias_class"]: row for row in rows}


def test_counts_phi_and_verdicts():
    rows = run({"snow": (60, 140, 3), "rain": (180, 20, 0), "clear": (180, 20, 0)})
    snow = rows["snow"]
    assert (snow["n"], snow["correct"], snow["errors"]) == (200, 60, 3)
    assert snow["accuracy"] == pytest.approx(0.3)
    assert snow["phi"] == pytest.approx(0.3 - 0.9)
    assert rows["rain"]["phi"] == pytest.approx(0.9 - 0.6)
    assert snow["phi_low"] < snow["phi"] < snow["phi_high"] < -0.05
    assert (snow["verdict"], snow["paper_verdict"]) == ("against", -1)
    assert (rows["rain"]["verdict"], rows["rain"]["paper_verdict"]) == ("for", 1)
    assert snow["images_to_settle"] is None


def test_the_papers_rule_calls_noise_a_bias_and_the_verdict_does_not():
    rows = run({"snow": (15, 5, 0), "rain": (17, 3, 0)})
    assert [row["paper_verdict"] for row in rows.values()] == [-1, 1]
    assert [row["verdict"] for row in rows.values()] == ["undetermined"] * 2
    assert all(row["images_to_settle"] > 20 for row in rows.values())


def test_enough_images_of_an_unbiased_cell_say_none_where_it_is_known_what_they_show():
    counts = {"snow": (1800, 200, 0), "rain": (1800, 200, 0)}
    assert {row["verdict"] for row in run(counts, source="labelled").values()} == {"none"}
    unverified = run(counts)["snow"]
    assert (unverified["verdict"], unverified["basis"]) == ("undetermined", "captions")
    assert "whether the images of the values differ was not measured" in unverified["undetermined_because"]


def test_a_value_with_one_image_is_named_where_it_alone_keeps_the_others_open():
    """17 of 40 right in fog against 826 of 900 is no matter of too few images of fog: one image of snow is half of what
    it is compared with."""
    counts = {"clear": (826, 74, 0), "fog": (17, 23, 0), "snow": (1, 0, 0)}
    rows = run(counts, source="labelled")
    assert rows["fog"]["verdict"] == "undetermined"
    assert rows["fog"]["images_to_settle"] < 40
    assert rows["fog"]["undetermined_because"] == (
        "too few images to compare with, of 'snow' (1): give them more, or leave them out of `attributes`"
    )
    assert rows["snow"]["undetermined_because"] == "too few images"
    without = run({name: counts[name] for name in ("clear", "fog")}, source="labelled")
    assert without["fog"]["verdict"] == "against"


def test_no_number_of_images_is_promised_to_settle_what_it_cannot():
    few = {"snow": (36, 4, 0), "rain": (36, 4, 0)}
    assert all(row["images_to_settle"] > 40 for row in run(few, source="labelled").values())
    unverified = run(few)["snow"]  # near 0, and more of such images would not tell that there is no difference
    assert unverified["images_to_settle"] is None
    assert "no number of them tells that there is none" in unverified["undetermined_because"]
    at_tau = run({"snow": (19, 1, 0), "rain": (20, 0, 0)}, source="labelled")["snow"]  # φ = −0.05
    assert at_tau["images_to_settle"] is None
    assert at_tau["undetermined_because"] == "φ lies next to ±0.05: no number of images would settle it"


def test_values_that_share_their_images_are_not_clear_of_one_another():
    """Two values of which the same images were drawn differ in nothing, whatever the classifier does on either."""
    proposals, _ = propose("task", ["bus"], None, {"weather": ["snow", "rain"]}, seed=0)
    captions, _ = caption("task", proposals, None, 1, seed=0)
    draws, predictions = [], []
    for i in range(2000):
        draws += [
            {"caption_id": row["caption_id"], "image_id": f"{i}", "rank": i, "source": "labelled"}
            for row in captions.to_pylist()
        ]
        names = {"prediction_id": f"{i}", "image_id": f"{i}", "classifier": "m", "revision": "1"}
        predictions.append({**names, "predicted_class": "bus" if i % 10 else "boat"})
    tables = pa.Table.from_pylist(draws, DRAWS), pa.Table.from_pylist(predictions, PREDICTIONS)
    for row in scored(captions, *tables, ["m"], Thresholds(0.05, 0.05))[0].to_pylist():
        assert (row["shared"], row["verdict"]) == (2000, "undetermined")


def test_missing_is_not_zero():
    rows = run({"snow": (0, 0, 4), "rain": (8, 2, 0)})
    assert math.isnan(rows["snow"]["accuracy"])
    assert all(math.isnan(row["phi"]) and row["verdict"] == "undetermined" for row in rows.values())
    assert rows["snow"]["errors"] == 4


def test_an_image_that_two_captions_of_a_cell_drew_counts_once():
    assert run({"snow": (3, 1, 0), "rain": (3, 1, 0)}, captions_per_cell=2)["snow"]["n"] == 4


def test_the_commonest_wrong_answer_is_named():
    rows = run({"snow": (1, 3, 0), "rain": (4, 0, 0), "boat": (1, 2, 1)})
    assert [(r["mistaken_for"], r["mistaken"]) for r in rows.values()] == [("boat", 3), (None, 0), ("boat", 2)]
    # "boat" is a class too: its cell counts how many images were answered with it
    assert [r["answered_bias_class"] for r in rows.values()] == [None, None, 2]
