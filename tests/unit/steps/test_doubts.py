import math
from types import SimpleNamespace

from c2b_ray.steps.doubts import doubt, taken_for_class

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


def test_cells_that_other_things_may_fill_ask_for_the_images_that_would_tell():
    scores = SimpleNamespace(false_accepts=[0.02, 0.04, 0.31, math.nan], false_accepts_high=[0.09, 0.16, 0.4, math.nan])
    assert taken_for_class(scores, 0, ("bicycle", "large"), 225.0, near=False) == []
    assert taken_for_class(scores, 3, ("bicycle", "large"), 225.0, near=False) == []
    # Limits .12 away must come within .06: four times the images, 675 more.
    (few,) = taken_for_class(scores, 1, ("bicycle", "red"), 225.0, near=False)
    assert few.startswith("up to 16% of the images may show no bicycle, which the verifier takes for one (estimate 4%)")
    assert few.endswith("calibrate it on 680 more images that show none of the classes, with the value 'red'")
    (weak,) = taken_for_class(scores, 2, ("bicycle", "small"), 225.0, near=False)
    assert weak.endswith("its calibration says that it errs so often on images of 'small'; use a better verifier")
    # Odds of .02 and .09 times two are shares of .04 and .17: images near to a caption resemble its class.
    (near,) = taken_for_class(scores, 0, ("bicycle", "large"), 225.0, near=True)
    assert near.startswith(
        "up to 17% of the images may show no bicycle, which the verifier takes for one (estimate 4%)"
    )
