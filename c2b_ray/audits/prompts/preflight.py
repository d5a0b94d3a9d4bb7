"""Checks a run before anything starts: that its models and files exist and fit together."""

from __future__ import annotations

from c2b_ray.audits.kit.backend import check_via
from c2b_ray.audits.kit.specs import check_specs
from c2b_ray.audits.prompts.searching import check_search
from c2b_ray.config.prompts import PromptsConfig


def checked(config: PromptsConfig, via: str) -> PromptsConfig:
    """Returns the config. Raises ConfigError before anything is started or written."""
    check_via(via)
    check_specs(config)
    check_search(config)
    return config
