"""The fields of a failures file: `smallest_ratio`, and the ids of runs from before it."""

from __future__ import annotations

from typing import Any

import pytest

from c2b_ray.audits.failures.config import FailuresConfig, read_failures_config
from c2b_ray.errors import ConfigError
from c2b_ray.tables import content_id

CONFIG: dict[str, Any] = {
    "labels": ["bus", "boat"],
    "classifier": "world:resnet-planted-0",
    "images": {"generate": {"model": "world:renderer"}},
    "captioner": "world:captioner",
}


def id_of(**fields: Any) -> str:
    return content_id("failures", FailuresConfig.model_validate(CONFIG | fields).model_dump(mode="json"))


def test_a_run_that_chooses_no_ratio_has_the_id_that_it_had_before_there_was_one() -> None:
    assert id_of() == id_of(smallest_ratio=2.0) == "5f414776c12eb6a1bb26"
    assert id_of(smallest_ratio=1.5) != id_of()


def test_a_chosen_ratio_is_kept() -> None:
    fields = FailuresConfig.model_validate(CONFIG | {"smallest_ratio": 1.5}).model_dump(mode="json")
    assert FailuresConfig.model_validate(fields).smallest_ratio == 1.5
    assert FailuresConfig.model_validate(CONFIG).smallest_ratio == 2.0


@pytest.mark.parametrize("ratio", [1.0, 0.5, 21, float("nan"), True, "a half more"])
def test_a_ratio_that_cannot_be_is_refused_by_its_field(ratio: Any) -> None:
    with pytest.raises(ConfigError, match="smallest_ratio"):
        read_failures_config(CONFIG | {"smallest_ratio": ratio})
