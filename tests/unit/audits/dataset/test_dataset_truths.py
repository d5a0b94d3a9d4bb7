"""What counts as right for a dataset's labels, in a classifier's label space."""

from __future__ import annotations

import pytest

from c2b_ray.audits.dataset.config import DatasetConfig
from c2b_ray.audits.dataset.models import truths_of
from c2b_ray.errors import ConfigError
from c2b_ray.roles import Description

KNOWN = Description("1", ("cat", "caterpillar", "traffic light"))


def test_only_a_rule_that_compares_parents_needs_all_labels_in_the_hierarchy(tmp_path) -> None:
    (tmp_path / "parents.csv").write_text("label,parent\ncat,animal\ncaterpillar,animal\n")
    fields = {"classifier": "a", "images": {"labelled": {"table": "t"}}, "hierarchy": f"{tmp_path}/parents.csv"}
    config = DatasetConfig.model_validate(fields)
    assert truths_of(config, "a", KNOWN, ["cat"])["cat"].members.tolist() == [True, False, False]
    compares = DatasetConfig.model_validate({**fields, "rule": "top1_parent"})
    with pytest.raises(ConfigError, match="has no label 'traffic light'"):
        truths_of(compares, "a", KNOWN, ["cat"])
