"""Which images belong to which cell: copies, images of several cells, captions without images."""

import pyarrow as pa
import pytest
from cell_tables import cell_images

from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import counts_by_source, images_of_cells
from c2b_ray.steps.draw import ImageIds
from c2b_ray.tables import CAPTIONS, DRAWS, PREDICTIONS


def tables(rows, draws):
    """`rows`: (caption id, attribute, value); `draws`: (caption id, image id, source)."""
    captions = [
        {"caption_id": i, "proposal_id": a, "target_class": "bus", "attribute": a, "bias_class": v, "number": 0}
        | {"kind": "attribute", "text": i}
        for i, a, v in rows
    ]
    drawn = [{"caption_id": c, "image_id": i, "rank": 0, "source": s} for c, i, s in draws]
    return pa.Table.from_pylist(captions, CAPTIONS), pa.Table.from_pylist(drawn, DRAWS)


def test_an_image_is_of_the_first_caption_of_its_cell_and_cells_of_an_attribute_stand_together():
    rows = [("1", "weather", "snow"), ("2", "size", "small"), ("3", "weather", "rain"), ("4", "weather", "snow")]
    draws = [("4", "b", "x"), ("1", "b", "x"), ("4", "a", "x"), ("3", "b", "x"), ("no caption", "z", "x")]
    captions, drawn = tables(rows, draws)
    cells = images_of_cells(captions, pa.concat_tables([drawn.slice(3), drawn.slice(0, 3)]))
    assert [group.values for group in cells.groups] == [("snow", "rain"), ("small",)]
    found = [
        (cells.names[cell].bias_class, cells.ids.ids[image].as_py(), captions["caption_id"][caption].as_py())
        for cell, image, caption in zip(cells.cell, cells.image, cells.caption, strict=True)
    ]
    assert sorted(found) == [("rain", "b", "3"), ("snow", "a", "4"), ("snow", "b", "1")]
    assert cells.sizes.tolist() == [2, 1, 0]
    assert cells.shared(None).tolist() == [1, 1, 0]


def test_captions_without_a_kind_are_refused_rather_than_left_out():
    captions, drawn = tables([("1", "weather", "snow"), ("2", "weather", "rain")], [("1", "a", "x")])
    at = captions.schema.get_field_index("kind")
    without = captions.set_column(at, CAPTIONS.field("kind"), pa.array(["attribute", None]))
    with pytest.raises(ValueError, match="captions without a kind: 1 of 2"):
        images_of_cells(without, drawn)


def test_no_draws_and_no_captions_are_cells_without_images_and_no_cells():
    captions, drawn = tables([("1", "weather", "snow")], [])
    cells = images_of_cells(captions, drawn)
    assert (cells.sizes.tolist(), counts_by_source(captions, drawn)) == ([0], {})
    assert images_of_cells(captions.slice(0, 0), drawn).groups == ()
    answers = answers_of(PREDICTIONS.empty_table(), "m").to(cells)
    assert (answers.count(answers.answered).tolist(), answers.wrong_names()) == ([0], [{}])


def test_an_image_that_the_classifier_never_saw_has_no_answer():
    cells = cell_images({("bus", "weather"): {"snow": ["a", "b"]}})
    row = {"prediction_id": "p", "image_id": "b", "classifier": "m", "revision": "1", "predicted_class": "bus"}
    answers = answers_of(pa.Table.from_pylist([row], PREDICTIONS), "m").to(cells)
    assert dict(zip(cells.ids.names(cells.image).to_pylist(), answers.right.tolist(), strict=True)) == {
        "a": False, "b": True,
    }  # fmt: skip
    assert answers.answered.tolist() == answers.right.tolist()


def test_ids_have_one_number_in_all_chunks():
    ids = ImageIds.numbered(pa.chunked_array([["a", "b"], ["a"]]))
    assert ids[1].tolist() == [0, 1, 0]
    assert ids[0].numbers(pa.array(["b", "other", None])).tolist() == [1, -1, -1]
