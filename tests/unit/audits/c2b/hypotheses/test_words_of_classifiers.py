"""Words that are found for several classifiers, in different classes, are one attribute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from c2b_ray.audits.c2b import finding
from c2b_ray.audits.c2b.hypotheses.derived import ImageClasses

EACH = 60


def test_a_word_has_values_in_every_class_in_which_it_was_found_for_any_classifier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One classifier fails on buses in fog, the other on fish in fog."""
    of = ImageClasses(("bus", "fish"), np.repeat([0, 1], EACH))
    rows = np.arange(2 * EACH)
    fog, halves_by_row = rows % 4 < 2, rows % 2 == 0
    halves = finding.Halves(
        rows,
        halves_by_row,
        {"a": fog & (of.places == 0), "b": fog & (of.places == 1)},
        {name: np.ones(2 * EACH, bool) for name in "ab"},
        ["a photo in fog" if one else "a photo" for one in fog],
        None,
    )
    monkeypatch.setattr(finding, "_halves", lambda *_: halves)
    nothing: Any = None
    looked: Any = SimpleNamespace(image_classes=of)
    found, reasons = finding.found_attributes(nothing, nothing, nothing, [nothing, nothing], looked, None, nothing)
    assert reasons == {}
    values = {one.attribute: np.array(one.column.to_pylist(), object) for one in found}
    assert list(values) == ["caption says fog"]
    tested = values["caption says fog"][~halves_by_row]
    assert tested.tolist() == ["yes" if one else "no" for one in fog[~halves_by_row]]
    assert set(values["caption says fog"][halves_by_row]) == {None}
