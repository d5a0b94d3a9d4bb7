"""One name in several forms (accents, case, spaces and characters that nobody sees) is one name wherever it is read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from c2b_ray.audits.gate import cells_of, check
from c2b_ray.errors import ConfigError
from c2b_ray.names import folded, normalise
from c2b_ray.roles import Description
from c2b_ray.steps.classify import classification
from c2b_ray.steps.labels import chosen, not_compared

CAFE = "caf\u00e9"
FORMS = [
    "cafe\u0301",
    "CAF\u00c9",
    " caf\u00e9 ",
    "\ufeffcaf\u00e9",
    "ca\u200bf\u00e9",
    "caf\u00e9\u200d",
    "c\u00adaf\u00e9",
]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_the_name(form: str) -> None:
    assert folded(form) == CAFE
    assert normalise(f"{form}\u00a0bar") == f"{CAFE} bar"
    known = Description("r", (form, "bus"))
    assert classification("m", known, [CAFE, "bus"], None).labels_of_class == ((0,), (1,))
    assert classification("m", known, [CAFE, "bus"], {form: [1], "bus": [0]}).labels_of_class == ((1,), (0,))
    labels = pa.table({"target_class": ["x", "x", "x"], "place": [CAFE, form, "bar"]})
    assert sorted(map(normalise, chosen(labels, None)["place"])) == ["bar", CAFE]
    cells = cells_of([{"target_class": CAFE, "attribute": "at", "bias_class": "x", "n": 3, "phi": 0.5}])
    for gate in (f"{form}/at/x: phi>0.2", f"{form}/*: phi>0.2"):
        assert [one.outcome for one in check([gate], cells)] == ["failed"]


def test_two_entries_of_a_label_map_that_are_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"label_map: .* are the same name; keep one entry for the class"):
        classification("m", Description("r", ("a", "b")), [CAFE], {CAFE: ["a"], "cafe\u0301": ["b"]})


def test_attributes_that_show_one_value_in_a_class_are_said() -> None:
    labels = pa.table(
        {
            "target_class": ["red", "red", "green", "green", "blue"],
            "colour": ["Red", "red", "green", "green", "blue"],
            "weather": ["sun", "rain", "sun", "sun", "fog"],
            "size": ["big", "small", "big", "small", None],
        }
    )
    said = not_compared(labels, ["red", "green"], ["colour", "weather", "size"])
    assert said == [
        "column colour is the class itself, so nothing is compared by it",
        "column weather has one value only in 1 of 2 classes, such as 'sun' of green, so nothing is compared there",
    ]
