"""Labelled latents: which labels are missing, which rows and columns count."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.latent.inputs import Labelled, labelled_latents
from c2b_ray.errors import ConfigError


def test_an_empty_label_is_none_of_the_two_values():
    labelled = Labelled(
        np.zeros((5, 2), np.float32),
        {"hat": ["yes", "", "no", None, " "], "one": ["yes", "", "yes", "", ""], "size": [1.0, np.nan, 2.0, 3.0, None]},
    )
    rows, second = labelled.two_valued("hat")
    assert (rows.tolist(), second.tolist()) == ([0, 2], [True, False])
    with pytest.raises(ConfigError, match=r"latents.one: has one value, 'yes'"):
        labelled.two_valued("one")
    assert labelled.two_valued("size")[0].tolist() == [0, 2, 3]


def test_copies_of_a_latent_are_one_and_contradictions_no_label():
    table = pa.table(
        {
            "latent": [[3.0, 0.0], [1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [1.0, 0.0]],
            "hat": ["yes", "no", "yes", "no", "yes"],
            "size": [1.0, None, float("nan"), 2.0, 5.0],
        }
    )
    merged = labelled_latents(table, {"g": ["g"]}, {"g": 2})["g"]
    assert merged.latents[:, 0].tolist() == [3.0, 1.0, 2.0]
    assert merged.attributes == {"hat": ["yes", None, "no"], "size": [1.0, 5.0, 2.0]}


def test_columns_that_hold_no_labels_are_left_alone():
    day = datetime.datetime(2020, 1, 1)
    table = pa.table({"latent": [[0.0], [1.0]], "hat": [True, False], "box": [[1], [2]], "drawn": [day, day]})
    assert list(labelled_latents(table, {"g": ["g"]}, {"g": 1})["g"].attributes) == ["hat"]
