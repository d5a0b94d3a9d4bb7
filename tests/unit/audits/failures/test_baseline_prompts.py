"""Baseline captions: what stands in brackets, and labels that a hierarchy lacks."""

from __future__ import annotations

import pytest

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.labels import baselines
from c2b_ray.errors import ConfigError


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
