import math

from c2b_ray.audits.c2b.verification.verified import doubt

ROW = {
    "target_class": "bus",
    "bias_class": "snow",
    "class_shown": 0.9,
    "sensitivity": 0.9,
    "specificity": 0.9,
    "shown": 0.9,
    "shown_low": 0.8,
    "shown_high": 0.95,
}


def test_each_reason_for_doubt_says_its_number():
    assert doubt(ROW, 1.0) == []
    assert doubt(ROW | {"class_shown": 0.49}, 1.0) == ["only 49% of the images show a bus"]
    assert doubt(ROW | {"class_shown": 0.79}, 1.0, 0.8) == ["only 79% of the images show a bus"]
    unskilled = "the verifier cannot tell 'snow' from the other values (sensitivity 0.60, specificity 0.65)"
    assert doubt(ROW | {"sensitivity": 0.6, "specificity": 0.65}, 1.0) == [unskilled]
    impure = "only 49% (40% to 60%) of the images show 'snow'"
    rare = ROW | {"shown": 0.49, "shown_low": 0.4, "shown_high": 0.6}
    assert doubt(rare, 1.0) == [impure]
    assert doubt(rare | {"sensitivity": 0.6, "specificity": 0.65}, 1.0) == [unskilled, impure]
    assert doubt(ROW | {"class_shown": math.nan}, 1.0) == []  # a run that did not ask for it
