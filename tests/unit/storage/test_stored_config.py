"""The config of a run is read from its manifest, also where another release wrote it."""

from __future__ import annotations

from typing import Any

import pytest
from audit_configs import audit_config

from c2b_ray.config import AuditConfig
from c2b_ray.errors import RunError
from c2b_ray.storage.manifest import stored_config

GENERATED = {"source": "generate", "generator": "world:renderer"}


def stored(fields: dict[str, Any]) -> AuditConfig:
    config = stored_config(fields, AuditConfig, "run/run.json", "c2b audit")
    assert isinstance(config, AuditConfig)
    return config


def test_a_config_is_the_one_that_was_written() -> None:
    for config in (audit_config(tau=0.1, budget={"images": 500}), audit_config(GENERATED)):
        assert stored(config.model_dump(mode="json")) == config


def test_a_run_of_an_earlier_release_has_defaults_and_none_of_todays_rules_between_fields() -> None:
    fields = audit_config(GENERATED).model_dump(mode="json") | {"attributes": None}
    del fields["alpha"]
    with pytest.raises(ValueError, match="language_model"):
        AuditConfig.model_validate(fields)
    assert stored(fields).attributes is None
    assert stored(fields).alpha == 0.05


def test_fields_that_this_release_does_not_know_are_left_out() -> None:
    config = audit_config()
    fields = config.model_dump(mode="json") | {"gone": 1}
    fields["images"]["also_gone"] = 2
    assert stored(fields) == config
    assert fields["images"]["also_gone"] == 2  # the manifest itself stays as it is


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tau": "much"}, r"run/run.json: config.tau: .*run its c2b audit again"),
        ({"images": {"source": "a shelf"}}, r"run/run.json: config.images"),
    ],
)
def test_a_value_that_a_field_cannot_have_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError, match=said):
        stored(audit_config().model_dump(mode="json") | change)
