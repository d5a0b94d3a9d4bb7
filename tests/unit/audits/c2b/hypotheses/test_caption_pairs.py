import json

import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.hypotheses.labelled import caption_pairs
from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.steps.caption import caption
from c2b_ray.steps.cells import pairs
from c2b_ray.steps.propose import propose
from c2b_ray.tables import CAPTIONS

PROPOSALS, _ = propose("task", ["bus"], None, {"weather": ["snow", "rain"], "lighting": ["day", "night"]}, seed=0)
PAIRS = pairs(PROPOSALS, [("lighting", "weather")])


def single(*texts):
    captions, _ = caption("task", PROPOSALS, None, 1, seed=0)
    return captions.set_column(CAPTIONS.names.index("text"), "text", pa.array(texts)) if texts else captions


WRITTEN = ("a photo of a bus in the snow.", "A rainy bus", "a bus by day", "a photo of the Bus at night")


def test_without_a_model_the_first_caption_goes_on_with_the_second():
    captions, rejected = caption_pairs(PAIRS, single(), None, seed=0)
    assert captions["bias_class"].to_pylist() == ["day, snow", "day, rain", "night, snow", "night, rain"]
    assert captions["text"].to_pylist()[2] == "a photo of a bus at night in the snow"
    assert rejected.num_rows == 0
    assert set(captions["kind"].to_pylist()) == {"intersection"}
    texts = caption_pairs(PAIRS, single(*WRITTEN), None, seed=0)[0]["text"].to_pylist()
    assert texts == [
        "a bus by day in the snow",
        "a photo of a bus by day in the rain",  # what shows the rain stands before the class
        "a photo of the Bus at night in the snow",
        "a photo of a bus at night in the rain",
    ]


def test_a_reply_must_name_the_class_and_show_both():
    model = ScriptedLanguageModel(
        [
            json.dumps({"caption": "a bus  in the snow on a bright day"}),
            json.dumps({"caption": "a bus by day"}),
            json.dumps({"caption": "a minibus in the snow at night"}),
            "prose",
        ]
    )
    captions, rejected = caption_pairs(PAIRS, single(*WRITTEN), model, seed=0)
    assert captions["text"].to_pylist()[:2] == [
        "a bus in the snow on a bright day",
        "a photo of a bus by day in the rain",
    ]
    assert captions["text"].to_pylist()[3] == "a photo of a bus at night in the rain"
    reasons = [(row["about"], row["reason"]) for row in rejected.to_pylist()]
    assert reasons[:2] == [
        ("bus/lighting × weather/day, rain", "the caption does not show that weather is rain"),
        ("bus/lighting × weather/night, snow", "the caption does not name the class"),
    ]
    assert "not JSON" in reasons[2][1]
    asked = model.requests[0].messages[-1].content
    assert "First caption: a bus by day" in asked
    assert "Second caption: a photo of a bus in the snow." in asked


@pytest.mark.parametrize("number", [1, 3])
def test_each_cell_has_as_many_captions_as_its_values(number):
    several, _ = caption("task", PROPOSALS, None, number, seed=0)
    captions, _ = caption_pairs(PAIRS, several, None, seed=0)
    assert captions.num_rows == 4 * number
    assert len(set(captions["caption_id"].to_pylist())) == 4 * number


def test_no_pairs_no_captions():
    model = ScriptedLanguageModel([])
    captions, rejected = caption_pairs([], single(), model, seed=0)
    assert (captions.num_rows, rejected.num_rows) == (0, 0)
