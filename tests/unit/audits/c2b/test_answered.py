import pyarrow as pa

from c2b_ray.audits.c2b.first_look import unanswered
from c2b_ray.tables import DRAWS, PREDICTIONS


def tables(image_errors, prediction_errors):
    """Draws, images and the predictions of `c`; None in `prediction_errors`: answered."""
    names = [f"i{n}" for n in range(len(image_errors))]
    draws = pa.Table.from_pylist([{"caption_id": "x", "image_id": name, "rank": 0} for name in names], DRAWS)
    images = pa.table({"image_id": names, "error": pa.array(image_errors, pa.string())})
    rows = [
        {"prediction_id": name, "image_id": name, "classifier": "c", "revision": "1", "label": "bus", "error": error}
        for name, error in zip(names, prediction_errors, strict=True)
    ]
    return draws, images, pa.Table.from_pylist(rows, PREDICTIONS)


def test_half_of_the_images_answered_is_enough_and_less_is_not():
    assert unanswered(*tables([None] * 4, [None, None, "nan", "nan"]), ["c"]) is None
    said = unanswered(*tables([None] * 4, [None, "nan", "nan", "nan"]), ["c"])
    assert said == "c answered 1 of the 4 images drawn; the commonest reason, of 3: nan"


def test_the_commonest_reason_is_counted_whatever_file_it_names():
    errors = ["photos/7.jpg: no such file", "photos/12.jpg: no such file", "truncated", None, None]
    said = unanswered(*tables(errors, [None] * 3 + ["timeout", None]), ["c"])
    assert "c answered 1 of the 5 images drawn; the commonest reason, of 2: photos/12.jpg: no such file" in said


def test_each_classifier_must_have_answered_and_images_never_shown_count():
    draws, images, predictions = tables([None] * 4, [None] * 4)
    assert unanswered(draws, images, predictions, ["c"]) is None
    said = unanswered(draws, images, predictions, ["c", "other"])
    assert (
        said == "other answered 0 of the 4 images drawn; the commonest reason, of 4: the classifier was never shown it"
    )


def test_no_image_drawn_is_no_audit():
    draws, images, predictions = tables([], [])
    assert "no image was drawn" in unanswered(draws, images, predictions, ["c"])
