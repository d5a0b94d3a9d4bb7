from __future__ import annotations

from typing import Any

import pyarrow as pa
from cell_tables import cell_images

from c2b_ray.audits.c2b.scoring.findings import explained
from c2b_ray.steps.answers import answers_of
from c2b_ray.tables import PREDICTIONS, SCORES

TAU = 0.05


def row(attribute: str, value: str, phi: float, group: int | None, reason: str | None = None) -> dict[str, Any]:
    verdict = "undetermined" if group is None else "against" if phi < 0 else "for"
    return {
        "classifier": "m", "target_class": "bus", "attribute": attribute, "bias_class": value, "n": 1, "correct": 1,
        "errors": 0, "phi": phi, "verdict": verdict, "paper_verdict": 0, "mistaken": 0, "group": group,
        "group_reason": reason,
    }  # fmt: skip


def told(rows: list[dict[str, Any]], images: dict[str, dict[str, set[int]]], wrong: set[int], derived: set[str]):
    """(group, reason) of every value. `wrong`: the images with wrong answers, of 0 to 99."""
    cells = cell_images(
        {("bus", n): {v: {str(i) for i in of} for v, of in values.items()} for n, values in images.items()}
    )
    predictions = pa.Table.from_pylist(
        [
            {
                "prediction_id": str(i), "image_id": str(i), "classifier": "m", "revision": "r",
                "label": "boat" if i in wrong else "bus", "predicted_class": "boat" if i in wrong else "bus",
            }
            for i in range(100)
        ],
        PREDICTIONS,
    )  # fmt: skip
    table = explained(
        pa.Table.from_pylist(rows, SCORES), {"m": answers_of(predictions, "m").to(cells)}, derived, TAU, 0.05
    )
    assert table.schema.equals(SCORES)
    return {r["bias_class"]: (r["group"], r["group_reason"]) for r in table.to_pylist()}


# Images 0 to 19 are dark, and 0 to 39 blue; the dark ones are wrong. Of the blue ones that are not dark none is.
DARK, BLUE = set(range(20)), set(range(40))
IMAGES = {
    "brightness": {"dark": DARK, "bright": set(range(20, 100))},
    "hue": {"blue": BLUE, "red": set(range(40, 100))},
}
ROWS = [
    row("brightness", "dark", -1.0, 1),
    row("brightness", "bright", 1.0, 1, "complement of brightness: dark"),
    row("hue", "blue", -0.5, 2),
    row("hue", "red", 0.5, 2, "complement of hue: blue"),
]


def test_a_finding_of_which_nothing_is_left_without_a_stronger_one_joins_it():
    assert told(ROWS, IMAGES, DARK, {"brightness", "hue"}) == {
        "dark": (1, None),
        "bright": (1, "complement of brightness: dark"),
        "blue": (1, "without the images of brightness: dark φ is +0.00"),
        "red": (1, "complement of hue: blue"),
    }


def test_what_images_whose_value_was_misread_leave_of_a_finding_is_no_finding():
    """Three of the twenty dark images are read as bright: 3 of the 23 other blue images are wrong, of the red ones
    none. That establishes nothing beyond tau, and is a quarter of what hue showed. With ten it would be a finding."""
    for misread, group in ((3, 1), (10, 2)):
        read = {"dark": set(range(misread, 20)), "bright": set(range(misread)) | set(range(20, 100))}
        found = told(ROWS, {**IMAGES, "brightness": read}, DARK, {"hue"})
        assert found["blue"][0] == group, found


def test_a_finding_that_stays_without_a_stronger_one_stands_apart():
    # Half of the other blue images are wrong too: 10 of 20, and no red one.
    found = told(ROWS, IMAGES, DARK | set(range(20, 30)), {"brightness", "hue"})
    assert found["blue"] == (2, None)


def test_a_finding_within_a_stronger_one_joins_it():
    images = {**IMAGES, "hue": {"blue": set(range(10)), "red": set(range(10, 100))}}
    assert told(ROWS, images, DARK, {"hue"})["blue"] == (1, "without the images of brightness: dark no image is left")


def test_what_is_undetermined_explains_nothing_and_is_not_grouped():
    rows = [row("brightness", "dark", -1.0, None), *ROWS[2:]]
    assert told(rows, IMAGES, DARK, {"hue"}) == {
        "dark": (None, None),
        "blue": (2, None),
        "red": (2, ROWS[3]["group_reason"]),
    }


def test_of_two_annotated_columns_one_explains_the_other_only_where_they_go_together():
    """Forty images show rain, which makes half of them wrong. Of 30 on a wet road 20 show rain, and the road does
    nothing."""
    rain, wet = set(range(40)), set(range(20, 50))
    images = {
        "weather": {"rain": rain, "clear": set(range(40, 100))},
        "road": {"wet": wet, "dry": set(range(100)) - wet},
    }
    wrong = set(range(0, 40, 2))
    rows = [
        row("weather", "rain", -0.5, 1),
        row("weather", "clear", 0.5, 1, "complement of weather: rain"),
        row("road", "wet", 10 / 70 - 10 / 30, 2),
        row("road", "dry", 10 / 30 - 10 / 70, 2, "complement of road: wet"),
    ]
    found = told(rows, images, wrong, set())
    assert found["wet"] == (1, "without the images of weather: rain φ is +0.00")
    assert found["dry"][0] == 1
    # The same φ of a column that holds as much rain on both sides: two causes that meet, or chance; they stand apart.
    half = {*range(0, 40, 2), *range(40, 70)}
    apart = {**images, "road": {"wet": half, "dry": set(range(100)) - half}}
    assert told(rows, apart, wrong, set())["wet"] == (2, None)
