from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.hypotheses.derived import (
    Derived,
    ImageClasses,
    cut_at,
    cut_within_classes,
    derived_properties,
    named_values,
    ranges_of,
    with_derived,
    with_origins,
)
from c2b_ray.steps.image_properties import PROPERTIES_OF_IMAGES
from c2b_ray.tables import PROPERTIES, PROPOSALS


def of(*classes: str) -> ImageClasses:
    labels = pa.table({"target_class": pa.array(classes).dictionary_encode()})
    return ImageClasses.of(labels, ["day", "night"])


def test_each_class_is_cut_at_its_own_quantiles():
    # A class of night pictures has a bright fifth too, which edges over both classes would not give it.
    classes = of(*["day"] * 10, *["night"] * 10, "other")
    found = cut_within_classes(
        "brightness", "property", "m", [*range(100, 110), *range(10), 55], classes, ("dark", "m", "bright")
    )
    assert isinstance(found, Derived)
    assert found.column.to_pylist() == [*["dark"] * 2, *["m"] * 6, *["bright"] * 2] * 2 + [None]
    assert found.ranges == {
        "day": {"dark": "below 102", "m": "102 to 108", "bright": "108 or more"},
        "night": {"dark": "below 2", "m": "2 to 8", "bright": "8 or more"},
    }


def test_classes_are_found_in_any_spelling_and_images_without_a_number_have_no_value():
    classes = of("Day", "day ", "DAY", "day", "day", "night")
    found = cut_within_classes("x", "number", "m", [1, 2, 3, 4, np.nan, 5], classes)
    assert isinstance(found, Derived)
    assert found.column.to_pylist() == ["low", "medium", "medium", "high", None, None]
    assert list(found.ranges) == ["day"]  # one night picture cannot be cut


def test_a_class_with_one_edge_has_the_first_and_the_last_word():
    found = cut_within_classes("width", "property", "m", [375] * 3 + [500] * 7, of(*["day"] * 10))
    assert isinstance(found, Derived)
    assert found.ranges == {"day": {"low": "below 400", "high": "400 or more"}}


def test_numbers_that_are_too_alike_give_a_reason():
    classes = of(*["day"] * 20)
    assert cut_within_classes("x", "property", "m", [3] * 20, classes) == (
        "the images of each class are too alike in it (100% have 3)"
    )
    assert cut_within_classes("x", "property", "m", [np.nan] * 20, classes) == "no image has it"


def test_the_cut_does_not_depend_on_the_order_of_rows():
    random = np.random.default_rng(0)
    numbers, order = random.normal(size=50).round(1), random.permutation(50)
    classes = of(*["day"] * 50)
    one, other = (cut_within_classes("x", "number", "m", x, classes) for x in (numbers, numbers[order]))
    assert isinstance(one, Derived)
    assert isinstance(other, Derived)
    assert one.ranges == other.ranges
    assert [one.column[int(i)].as_py() for i in order] == other.column.to_pylist()


def test_edges_of_the_file_are_the_same_for_all_classes():
    found = cut_at("age", "number", "m", [17, 18, 40.5, 65, np.nan], [18, 40, 65])
    assert found.column.to_pylist() == ["below 18", "18 to 40", "40 to 65", "65 or more", None]


def test_ranges_in_words():
    assert ranges_of([0.1 + 0.2]) == ["below 0.3", "0.3 or more"]
    assert ranges_of([-2, 1e6]) == ["below -2", "-2 to 1000000", "1000000 or more"]


def test_rare_names_are_left_out_of_a_class_and_not_of_another():
    hues = pa.array([*["red"] * 60, *["blue"] * 39, "pink", *["pink"] * 5, *["red"] * 5, None])
    found = named_values("hue", "property", "m", hues, of(*["day"] * 100, *["night"] * 11))
    assert isinstance(found, Derived)
    assert found.column.to_pylist() == [*["red"] * 60, *["blue"] * 39, None, *["pink"] * 5, *["red"] * 5, None]


def test_names_that_no_class_has_two_of_give_a_reason():
    hues = pa.array(["red", "red", "blue", "blue"])
    assert "no class has two values" in str(
        named_values("hue", "property", "m", hues, of("day", "day", "night", "night"))
    )


def test_properties_belong_to_the_rows_that_were_measured():
    rows = [
        {"image_id": f"i{row}", "row": row, "key": "k", "brightness": float(row), "hue": "red" if row % 2 else "blue"}
        for row in (9, 3, 5, 7, 4, 6, 8, 2, 1, 0)
    ]
    properties = pa.Table.from_pylist(rows, PROPERTIES)
    wanted = [PROPERTIES_OF_IMAGES[name] for name in ("brightness", "hue", "JPEG quality")]
    found, reasons = derived_properties(properties, wanted, of(*["day"] * 10, "other", "day"))
    brightness, hue = found
    assert brightness.column.to_pylist() == [*["dark"] * 2, *["medium"] * 6, *["bright"] * 2, None, None]
    assert hue.column.to_pylist() == ["blue", "red"] * 5 + [None, None]
    assert reasons == {"JPEG quality": "no image has it"}


def test_derived_columns_join_the_labels_and_proposals_name_their_origin():
    labels = pa.table({"target_class": ["day"], "age": ["7"]})
    derived = [cut_at("age", "number", "m", [7], [5]), cut_at("noise", "property", "m", [1], [5])]
    joined = with_derived(labels, derived)
    assert joined.select(["age", "noise"]).to_pylist() == [{"age": "5 or more", "noise": "below 5"}]
    proposals = pa.Table.from_pylist(
        [
            {
                "proposal_id": n,
                "target_class": "day",
                "attribute": n,
                "bias_classes": [],
                "source": "user",
                "merged_from": [],
            }
            for n in ("age", "weather", "noise")
        ],
        PROPOSALS,
    )
    assert with_origins(proposals, derived)["source"].to_pylist() == ["number", "user", "property"]


@pytest.mark.parametrize("share", [0.1, 0.25])
def test_failures_of_the_darkest_images_are_most_visible_in_the_lowest_value(share: float):
    # Of 1,000 images the darkest 10 or 25 % are wrong: the darkest fifth shows it, the others next to nothing.
    numbers = np.arange(1000.0)
    found = cut_within_classes("x", "property", "m", numbers, of(*["day"] * 1000))
    assert isinstance(found, Derived)
    wrong = numbers < share * 1000
    rates = {value: wrong[np.array(found.column.to_pylist()) == value].mean() for value in ("low", "medium", "high")}
    assert rates["low"] >= 0.5
    assert rates["medium"] < 0.1
    assert rates["high"] == 0
