"""What a run would cost, before it is run: draws at most, and how long they take, by a short trial of each model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from c2b_ray.audits.failures.discovery import BASELINE_SHARE
from c2b_ray.audits.failures.preflight import checked
from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.audits.kit.costs import Cost, classifications, generations
from c2b_ray.config.failures import FailuresConfig
from c2b_ray.config.failures_file import read_failures_config
from c2b_ray.store.failures_run import Expected
from c2b_ray.store.labelled import LabelledTable


def estimate(config: str | Path | dict[str, Any] | FailuresConfig, via: str = AUTO) -> list[Cost]:
    """The cost of a run, line by line; raises what reading its config and loading its models would."""
    config = checked(read_failures_config(config), via)
    least, most = images(config)
    costs = []
    if config.images.generate is not None:
        costs.append(Cost("images to draw", least, most, generations(config.images.generate.model)))
    if config.generalise is not None:
        each = config.generalise.runs * config.generalise.images
        sources = len(config.generalise.generators) + (config.generalise.index is not None)
        costs.append(Cost("images of other sources", 0, each * sources * 2, note="for each finding, at most"))
    for name, spec in config.specs.items():
        costs.append(Cost(f"predictions of {name}", least, most, classifications(spec)))
    return costs


def images(config: FailuresConfig) -> tuple[int, int]:
    """At least and at most: of a generator the baselines, where nothing fails, and the whole budget."""
    if (labelled := config.images.labelled) is not None:
        rows = LabelledTable(labelled.table, "images.labelled.table", labelled.columns).labels.num_rows
        return rows, rows
    draws, labels = config.budget.draws, len(config.labels)
    return int(draws * config.budget.discovery * BASELINE_SHARE) // labels * labels, draws


def expected(config: FailuresConfig, costs: Sequence[Cost] = ()) -> Expected:
    """What a manifest says of it: seconds only where the models were tried."""
    timed = [cost.seconds for cost in costs]
    known = [one for one in timed if one is not None]
    seconds = [sum(one[0] for one in known), sum(one[1] for one in known)] if timed and len(known) == len(timed) else []
    return Expected(draws=list(images(config)), seconds=[round(one, 1) for one in seconds] or None)
