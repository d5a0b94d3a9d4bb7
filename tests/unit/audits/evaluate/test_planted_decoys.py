"""Decoys of one's own in the ground truth of the embedded world."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from c2b_ray.audits.evaluate.config import WorldTruth
from c2b_ray.audits.evaluate.truth import world_table
from c2b_ray.errors import ConfigError

LAMP = {"name": "fog lamp", "attribute": "weather", "value": "fog"}


def test_a_decoy_goes_with_the_other_values_and_stands_in_the_place_of_the_worlds_own():
    table = world_table(WorldTruth.model_validate({"scenes": 2000, "planted": [LAMP]}))
    fog = np.array(table["weather"].to_pylist()) == "fog"
    lamp = np.array(table["fog lamp"].to_pylist()) == "present"
    assert lamp[fog].mean() < 0.15 < 0.75 < lamp[~fog].mean()
    assert "fog horn" not in table.column_names


@pytest.mark.parametrize(
    ("decoy", "why"),
    [({**LAMP, "value": "hail"}, "no weather: hail"), ({**LAMP, "name": "weather"}, "is a column of scenes already")],
)
def test_a_decoy_that_scenes_cannot_have_is_refused(decoy, why):
    with pytest.raises(ConfigError, match=why):
        world_table(WorldTruth.model_validate({"scenes": 100, "planted": [decoy]}))


@pytest.mark.parametrize("fields", [{"planted": [LAMP, LAMP]}, {"decoys": False, "planted": [LAMP]}])
def test_decoys_that_cannot_be_meant_are_refused(fields):
    with pytest.raises(ValidationError):
        WorldTruth.model_validate(fields)
