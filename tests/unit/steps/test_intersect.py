import math

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.metrics import benjamini_hochberg, interactions
from c2b_ray.schemas import PREDICTIONS
from c2b_ray.steps.draw import labelled, labelled_pairs
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.intersect import is_pair, pairs, score_pairs
from c2b_ray.steps.score import images_of_cells, score

WEATHER, LIGHTING = ("rain", "snow"), ("day", "night")


def world(counts):
    """A labelled run of one class. `counts`: (weather, lighting) → (right, wrong)."""
    rows = [
        {"target_class": "bus", "weather": x, "lighting": y, "predicted_class": answer}
        for (x, y), (right, wrong) in counts.items()
        for answer in ["bus"] * right + ["boat"] * wrong
    ]
    labels = pa.Table.from_pylist([{k: v for k, v in row.items() if k != "predicted_class"} for row in rows])
    proposals, captions, draws, wanted = labelled(labels, "r", ["bus"], None, (None, 0))
    chosen = pairs(proposals, [("weather", "lighting")])
    more_captions, more_draws, more = labelled_pairs(labels, "r", chosen, (None, 0))
    assert set(more["image_id"].to_pylist()) <= set(wanted["image_id"].to_pylist())
    answers = [
        {"prediction_id": i, "image_id": i, "classifier": "m", "revision": "1"}
        | {"predicted_class": rows[at]["predicted_class"]}
        for i, at in zip(wanted["image_id"].to_pylist(), wanted["row"].to_pylist(), strict=True)
    ]
    return (
        proposals,
        pa.concat_tables([captions, more_captions]),
        pa.concat_tables([draws, more_draws]),
        pa.Table.from_pylist(answers, PREDICTIONS),
    )


SNOW_AT_NIGHT = {
    ("rain", "day"): (180, 20),
    ("rain", "night"): (160, 40),
    ("snow", "day"): (180, 20),
    ("snow", "night"): (60, 140),
}


def test_copies_of_one_picture_count_once_in_a_cell():
    tables = world(SNOW_AT_NIGHT)
    images = tables[3]["image_id"].to_pylist()
    marks = [np.random.default_rng(i).bytes(200) for i in range(len(images))]
    copies = pa.table({"image_id": images, "content": [str(i // 4) for i in range(len(images))], "fingerprint": marks})
    whole = score_pairs(tables, ["m"], 0.05, 0.05).to_pylist()
    found = score_pairs(tables, ["m"], 0.05, 0.05, Distinct(copies)).to_pylist()
    assert [row["n"] for row in found] == [50] * 4
    assert [row["repeats"] for row in found] == [150] * 4
    assert [row["repeats"] for row in whole] == [0] * 4
    assert all(a["interaction_high"] > b["interaction_high"] for a, b in zip(found, whole, strict=True))


def test_a_cell_that_its_two_attributes_do_not_explain_is_found():
    table = score_pairs(world(SNOW_AT_NIGHT), ["m"], 0.05, 0.05)
    rows = {row["bias_class"]: row for row in table.to_pylist()}
    assert list(rows) == ["rain, day", "rain, night", "snow, day", "snow, night"]
    told = rows["snow, night"]
    assert (told["attribute"], told["value_a"], told["value_b"]) == ("weather × lighting", "snow", "night")
    assert (told["n"], told["correct"]) == (200, 60)
    assert told["expected"] == pytest.approx(0.9 + 0.8 - 0.9)  # snow by day + rain at night − rain by day
    assert told["interaction"] == pytest.approx(0.3 - 0.8)
    assert told["phi"] == pytest.approx(0.3 - (0.9 + 0.8 + 0.9) / 3)
    assert (told["verdict"], rows["rain, night"]["verdict"]) == ("against", "for")
    assert table["q_value"].to_pylist() == pytest.approx(benjamini_hochberg(table["p_value"].to_numpy()).tolist())


def test_two_effects_that_add_up_are_no_intersection():
    additive = {("rain", "day"): (900, 100), ("rain", "night"): (700, 300),
                ("snow", "day"): (700, 300), ("snow", "night"): (500, 500)}  # fmt: skip
    rows = score_pairs(world(additive), ["m"], 0.1, 0.05).to_pylist()
    assert [row["interaction"] for row in rows] == pytest.approx([0] * 4, abs=1e-12)
    assert {row["verdict"] for row in rows} == {"none"}
    assert rows[3]["phi"] < -0.2  # though the cell itself is bad


def test_an_empty_cell_is_unknown_and_is_not_zero():
    counts = {(x, y): (18, 2) for x in (*WEATHER, "fog") for y in (*LIGHTING, "dusk") if (x, y) != ("snow", "night")}
    rows = {row["bias_class"]: row for row in score_pairs(world(counts), ["m"], 0.05, 0.05).to_pylist()}
    empty = rows["snow, night"]
    assert (empty["n"], empty["verdict"]) == (0, "undetermined")
    assert all(math.isnan(empty[name]) for name in ("accuracy", "phi", "interaction", "p_value", "q_value"))
    table = np.array(
        [
            [rows[f"{x}, {y}"][k] for y in ("day", "dusk", "night")]
            for x in ("fog", "rain", "snow")
            for k in ("correct", "n")
        ]
    )
    assert rows["fog, day"]["interaction"] == pytest.approx(interactions(table[0::2], table[1::2])[0, 0])


def test_the_scores_do_not_see_intersections():
    proposals, captions, draws, predictions = world(SNOW_AT_NIGHT)
    scores = score(captions, draws, predictions, ["m"], 0.05, 0.05)
    assert set(scores["attribute"].to_pylist()) == {"weather", "lighting"}
    assert set(images_of_cells(captions, draws)) == {("bus", "weather"), ("bus", "lighting")}
    assert sum(map(is_pair, captions["proposal_id"].to_pylist())) == 4
    assert not any(map(is_pair, proposals["proposal_id"].to_pylist()))


def test_a_limit_holds_for_each_cell_of_a_pair():
    labels = pa.table(
        {"target_class": ["bus"] * 80, "weather": ["rain", "snow"] * 40, "lighting": ["day"] * 40 + ["night"] * 40}
    )
    proposals, *_ = labelled(labels, "r", ["bus"], None, (5, 0))
    captions, draws, wanted = labelled_pairs(labels, "r", pairs(proposals, [("weather", "lighting")]), (5, 0))
    assert (captions.num_rows, draws.num_rows, wanted.num_rows) == (4, 20, 20)


def test_a_pair_that_cannot_be_made_names_the_nearest():
    proposals = world(SNOW_AT_NIGHT)[0]
    with pytest.raises(ConfigError, match=r"intersections: .*'lightning'.*did you mean 'lighting'"):
        pairs(proposals, [("weather", "lightning")])
    renamed = proposals.set_column(1, "target_class", pa.array(["bus", "boat"]))
    with pytest.raises(ConfigError, match="not both attributes of any one class"):
        pairs(renamed, [("weather", "lighting")])
