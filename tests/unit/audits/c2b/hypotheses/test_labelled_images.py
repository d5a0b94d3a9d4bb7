"""Rows of a labelled table as draws that are made some at a time."""

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.hypotheses import labelled
from c2b_ray.audits.c2b.hypotheses.labelled import RowDraws, labelled_rows
from c2b_ray.audits.c2b.thresholds import Limit
from c2b_ray.steps.draw import image_id
from c2b_ray.tables import DRAWS


def row_draws(**rows):
    return RowDraws({caption: np.array(numbers, np.int32) for caption, numbers in rows.items()}, "r")


def test_draws_that_are_made_in_batches_are_those_of_one_table(monkeypatch):
    draws = row_draws(fog=[7, 2, 9, 4, 0], rain=[], snow=[2])
    whole = draws.table()
    assert whole.schema == DRAWS
    assert whole["image_id"].to_pylist() == [image_id("r", row) for row in (7, 2, 9, 4, 0, 2)]
    assert whole["rank"].to_pylist() == [0, 1, 2, 3, 4, 0]
    assert whole["caption_id"].to_pylist() == ["fog"] * 5 + ["snow"]
    monkeypatch.setattr(labelled, "IDS_AT_ONCE", 2)
    assert max(map(len, draws.to_batches())) == 2
    assert draws.table().equals(whole)
    assert draws.num_rows == 6


def test_what_is_missing_is_asked_for_once_and_what_is_there_not_at_all(monkeypatch):
    monkeypatch.setattr(labelled, "IDS_AT_ONCE", 2)
    there = {image_id("r", row) for row in (2, 9)}

    def absent(ids: pa.Array):
        return np.array([name not in there for name in ids.to_pylist()])

    missing = row_draws(fog=[7, 2, 9, 4, 0], snow=[2, 7]).where(absent)
    assert missing.distinct().tolist() == [0, 4, 7]
    assert missing.equals(row_draws(fog=[7, 4, 0], snow=[7]))
    assert not missing.equals(row_draws(fog=[7, 4, 0], snow=[]))
    assert row_draws(fog=[], snow=[]).distinct().tolist() == []


def test_the_first_of_more_are_the_first():
    assert row_draws(fog=[7, 2, 9], snow=[3]).first({"fog": 2}).equals(row_draws(fog=[7, 2], snow=[]))


def test_the_order_of_values_does_not_decide_which_rows_are_drawn():
    labels = pa.table({"target_class": ["bus"] * 90, "weather": ["fog", "rain", "snow"] * 30})

    def rows(values):
        _, captions, draws = labelled_rows(labels, "r", ["bus"], {"weather": values}, Limit(7, 0))
        return {row["bias_class"]: draws.rows[row["caption_id"]].tolist() for row in captions.to_pylist()}

    assert rows(["snow", "fog", "rain"]) == rows(["fog", "rain", "snow"])
