"""Checks a run before anything starts: that its models and files exist and fit together."""

from __future__ import annotations

from c2b_ray.audits.kit.backend import check_via
from c2b_ray.audits.kit.specs import check_spec
from c2b_ray.audits.prompts.searching import check_search
from c2b_ray.config.prompts import PromptsConfig
from c2b_ray.filesystems.spec_paths import paths


def checked(config: PromptsConfig, via: str) -> PromptsConfig:
    """Returns the config. Raises ConfigError before anything is started or written."""
    check_via(via)
    for field, role, spec in specs_of(config):
        check_spec(field, role, spec)
    check_search(config)
    return config


def specs_of(config: PromptsConfig) -> list[tuple[str, str, str]]:
    """Returns (field, role, spec) of each model."""
    specs = [(f"generators.{name}", "image_generator", spec) for name, spec in config.generators.items()]
    specs += [("language_model", "language_model", config.language_model), ("judge", "captioner", config.judge)]
    optional = [
        ("reader", "language_model", config.reader),
        ("encoder", "encoder", config.encoder),
        ("heads.teacher", "captioner", config.heads.teacher),
    ]
    return specs + [(field, role, spec) for field, role, spec in optional if spec is not None]


def paths_read(config: PromptsConfig) -> dict[str, str]:
    """Returns the files and folders that stages read → the fields that name them. On a cluster every node needs
    them."""
    return {path: field for field, _, spec in specs_of(config) for _, path in paths(spec)}
