"""Label names as exporters write them."""

from __future__ import annotations

import pytest

from c2b_ray.errors import WeightsError
from c2b_ray.models.spec_options import by_number, names_in, names_of

NAMES = ["cat", "dog", "hen"]


@pytest.mark.parametrize(
    "text",
    [
        "{0: 'cat', 1: 'dog', 2: 'hen'}",
        "{2: 'hen', 0: 'cat', 1: 'dog'}",
        '{"0": "cat", "1": "dog", "2": "hen"}',
        "{'cat': 0, 'dog': 1, 'hen': 2}",
        "['cat', 'dog', 'hen']",
        "('cat', 'dog', 'hen')",
        '["cat", "dog", "hen"]',
        "cat, dog, hen",
        "cat\ndog\nhen\n",
    ],
)
def test_names_are_read_in_every_form(text: str) -> None:
    assert names_of(text, "m") == NAMES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{1: 'cat', 2: 'dog'}", "begins at 1"),
        ("{0: 'cat', 2: 'dog'}", "has no number 1"),
        ("{'0': 1, '1': 0}", "in two ways"),
        ("{'a': 'b'}", "no mapping from numbers"),
        ("[['a'], 'b']", "neither a list of names"),
        ("{0: open('x')}", "neither JSON nor a Python"),
        ("[" * 5000, "neither JSON nor a Python"),
        ("[]", "neither a list of names"),
        ("{}", "no mapping from numbers"),
        ("x" * 5_000_000, "has 5000000 characters"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_remedy(text: str, message: str) -> None:
    with pytest.raises(WeightsError, match=rf"{message}.*\?labels=PATH"):
        names_of(text, "m")


def test_a_files_metadata_names_labels_once() -> None:
    assert names_in({"Names": "{0: 'a', 1: 'b'}", "author": "x"}, "m") == (["a", "b"], "Names")
    assert names_in({"author": "x"}, "m") == (None, "")
    assert names_in({"labels": "a,b", "classes": '["a", "b"]'}, "m") == (["a", "b"], "labels")
    with pytest.raises(WeightsError, match="twice, differently: `labels` and `classes`"):
        names_in({"labels": "a,b", "classes": "b,a"}, "m")


def test_numbers_may_be_numbers_or_texts() -> None:
    assert by_number({0: "a", "1": "b"}, "m") == ["a", "b"]
    assert by_number({0: 10, 1: 20}, "m") == ["10", "20"]
