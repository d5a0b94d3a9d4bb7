"""What a run would cost, before it is run: draws at most, and how long they take, by a short trial of each model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from c2b_ray.audits.failures.preflight import checked
from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.audits.kit.costs import Cost, classifications, generations
from c2b_ray.config.failures import FailuresConfig
from c2b_ray.config.failures_file import read_failures_config
from c2b_ray.store.labelled import LabelledTable


def estimate(config: str | Path | dict[str, Any] | FailuresConfig, via: str = AUTO) -> list[Cost]:
    """The cost of a run, line by line; raises what reading its config and loading its models would."""
    config = checked(read_failures_config(config), via)
    most = config.budget.draws
    least = int(most * config.budget.discovery / 2)  # where nothing fails there is nothing to confirm
    costs = []
    if (labelled := config.images.labelled) is not None:
        table = LabelledTable(labelled.table, "images.labelled.table", labelled.columns)
        least = most = table.labels.num_rows
    if config.images.generate is not None:
        costs.append(Cost("images to draw", least, most, generations(config.images.generate.model)))
    if config.generalise is not None:
        each = config.generalise.runs * config.generalise.images
        sources = len(config.generalise.generators) + (config.generalise.index is not None)
        costs.append(Cost("images of other sources", 0, each * sources * 2, note="for each finding, at most"))
    for name, spec in config.specs.items():
        costs.append(Cost(f"predictions of {name}", least, most, classifications(spec)))
    return costs
