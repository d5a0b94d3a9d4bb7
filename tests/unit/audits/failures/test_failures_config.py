"""The fields of a failures file, baseline captions, and the ids of runs from before `smallest_ratio`."""

from __future__ import annotations

from typing import Any

import pytest

from c2b_ray.audits.failures.config import FailuresConfig, read_failures_config
from c2b_ray.audits.failures.state import baselines
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


def prompts(**changes):
    fields = {"classifier": "timm:x", "images": {"generate": {"model": "world:renderer"}}, "captioner": "world:clip"}
    return {label: one.text for label, one in baselines(FailuresConfig(**fields, **changes)).items()}


def test_a_label_stands_with_its_parent_where_a_hierarchy_names_one():
    assert prompts(labels=["fly", "crayfish"], hierarchy="imagenet") == {
        "fly": "a realistic photograph of a fly (insect).",
        "crayfish": "a realistic photograph of a crayfish (crustacean).",
    }
    assert prompts(labels=["umbrella"]) == {"umbrella": "a realistic photograph of an umbrella."}


def test_a_label_of_one_s_own_has_the_parent_of_the_labels_that_stand_for_it():
    cats = {"house cat": ["Persian cat", "tabby"], "vehicle": ["jeep", "airliner"], "thing": [3]}
    assert prompts(labels=list(cats), label_map=cats, hierarchy="imagenet") == {
        "house cat": "a realistic photograph of a house cat (domestic animal).",
        "vehicle": "a realistic photograph of a vehicle.",
        "thing": "a realistic photograph of a thing.",
    }


def test_a_label_that_the_hierarchy_lacks_is_refused():
    with pytest.raises(ConfigError, match="hierarchy: world has no label 'buss'; did you mean 'bus'"):
        prompts(labels=["bus", "buss"], hierarchy="world")
