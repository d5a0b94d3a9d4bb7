"""Checks a run before anything starts: that its models, tables and columns exist and fit together.

It loads no weights.
"""

from __future__ import annotations

from c2b_ray.audits.clip_bias.config import BAG_OF_WORDS, ClipBiasConfig
from c2b_ray.audits.clip_bias.images import open_table
from c2b_ray.audits.kit.backend import check_via
from c2b_ray.audits.kit.specs import check_specs
from c2b_ray.errors import ConfigError, SpecError
from c2b_ray.models import catalog
from c2b_ray.steps.labels import one_form


def checked(config: ClipBiasConfig, via: str) -> ClipBiasConfig:
    """Checks what can be checked before the run starts, and returns the config."""
    check_via(via)
    check_specs(config)
    for name, dataset in config.datasets.items():
        table = open_table(name, dataset)
        for attribute in dataset.attributes:
            values = dict.fromkeys(value for value in table.values(attribute) if value is not None)
            one_form(values, f"datasets.{name}.attributes", f"column {attribute!r} of {table.location}")
        if config.groups.column is not None:
            table.check_column(config.groups.column, "groups.column")
        if table.captions is None and not dataset.texts:
            raise ConfigError(
                f"datasets.{name}", f"{dataset.table} has no captions and `texts` is empty: there is nothing to measure"
            )
    _check_guesser(config.leakage.guesser)
    return config


def images_in(config: ClipBiasConfig) -> int:
    """Returns how many images are embedded: those of all datasets, by every model."""
    return sum(len(open_table(name, one)) for name, one in config.datasets.items()) * len(config.models)


def _check_guesser(spec: str) -> None:
    if spec == BAG_OF_WORDS:
        return
    try:
        scheme = catalog.parse(spec).scheme
    except SpecError as error:
        raise ConfigError("leakage.guesser", f"{error}; or {BAG_OF_WORDS}") from error
    if scheme != "bert":
        raise ConfigError("leakage.guesser", f"{spec}: expected {BAG_OF_WORDS}, bert:org/name or bert:local-dir:PATH")
