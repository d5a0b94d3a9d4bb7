"""Checks a run before anything starts: its models, files, labels and captions exist and fit.

It loads no weights. A classifier whose labels only the loaded model knows is checked when the run begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.failures.config import FailuresConfig, read_failures_config
from c2b_ray.audits.failures.confirmation import TEST_SHARE
from c2b_ray.audits.failures.discovery.candidates import written
from c2b_ray.audits.failures.discovery.race import COMMON_RATE, FailureReach, least_rate
from c2b_ray.audits.failures.labelled import CLUSTER_FIELD, FIELD, check_images
from c2b_ray.audits.failures.report.method import ratio_sentence, reach_sentence
from c2b_ray.audits.failures.run import ExpectedCosts, LeastRate
from c2b_ray.audits.failures.search import BASELINE_SHARE, CONFIRMED
from c2b_ray.audits.failures.state import ancestry_of, baselines, decider, with_labels
from c2b_ray.audits.kit.backend import AUTO, check_via
from c2b_ray.audits.kit.models import check_specs
from c2b_ray.audits.kit.session import Cost, classifications, generations
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.names import normalise
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.manifest import FileOrFields

LEAST_OF_A_LABEL = 2
"""Images of each label's bare prompt: one to describe, one among which to look for failures."""


def checked(config: FailuresConfig, via: str) -> FailuresConfig:
    """Checks all that can be checked of the config, and returns it with its labels named."""
    check_via(via)
    check_specs(config)
    config = with_labels(config)
    check(config)
    return config


def check(config: FailuresConfig) -> None:
    """Raises what the run itself would raise, before anything is started or written."""
    baselines(config)
    _check_budget(config)
    for text in config.captions:
        written(text, config.labels, "file", "captions")
    ancestry = ancestry_of(config)
    for name, spec in config.specs.items():
        description = catalog.describe("classifier", spec)
        if description is not None:
            decider(config, name, description, ancestry)
    if config.generalise is not None and config.generalise.index is not None:
        catalog.describe("index", config.generalise.index)
    if config.labelled is not None:
        LabelledTable(config.labelled, "labelled")
    if config.images.labelled is not None:
        labelled = config.images.labelled
        images = LabelledTable(labelled.table, FIELD, labelled.columns)
        if labelled.cluster is not None:
            images.clusters(labelled.cluster, CLUSTER_FIELD)
        check_images(images, config)


def _check_budget(config: FailuresConfig) -> None:
    """Raises ConfigError where the draws do not suffice for a few images of each label: the run would draw more."""
    draws, discovery, labels = config.budget.draws, config.budget.discovery, len(config.labels)
    if config.images.generate is None or int(int(draws * discovery) * BASELINE_SHARE) >= LEAST_OF_A_LABEL * labels:
        return
    draws_needed = math.ceil(math.ceil(LEAST_OF_A_LABEL * labels / BASELINE_SHARE) / discovery)
    raise ConfigError(
        "budget.draws",
        f"{draws:,} images are too few for {labels:,} labels: give at least {draws_needed:,}, or fewer labels",
    )


# Estimates the cost of a run before it starts: the most draws, and how long they take, from a short trial of each
# model.


SHARES = (0.1, 0.02)
"""Of a label's images, those that show what a failure needs: two values of an attribute each, or three."""


def estimate(config: FileOrFields | FailuresConfig, via: str = AUTO) -> list[Cost]:
    """Returns the cost of a run, line by line. Raises what reading its config and loading its models would raise."""
    config = checked(read_failures_config(config), via)
    least, most = images(config)
    costs = []
    if config.images.generate is not None:
        reached = reach_sentence([rate.model_dump() for rate in least_rates(config) or []])
        note = _joined(reached, ratio_sentence(config.smallest_ratio, _draws_of_ratio(config)))
        costs.append(Cost("images to draw", least, most, generations(config.images.generate.model), note))
    if config.generalise is not None:
        images_per_caption = config.generalise.runs * config.generalise.images
        sources = len(config.generalise.generators) + (config.generalise.index is not None)
        costs.append(
            Cost("images of other sources", 0, images_per_caption * sources * 2, note="for each finding, at most")
        )
    labelled = 0 if config.labelled is None else _rows_of_labels(config, LabelledTable(config.labelled, "labelled"))
    note = "fewer where images are copies of others" if config.labelled or config.images.labelled else ""
    if config.images.labelled is not None:
        note = _joined(note, ratio_sentence(config.smallest_ratio, None))
    for name, spec in config.specs.items():
        costs.append(Cost(f"predictions of {name}", least + labelled, most + labelled, classifications(spec), note))
    return costs


def images(config: FailuresConfig) -> tuple[int, int]:
    """Returns the least and the most images: the baselines alone, where nothing fails, and the whole budget."""
    if (labelled := config.images.labelled) is not None:
        rows = _rows_of_labels(config, LabelledTable(labelled.table, "images.labelled.table", labelled.columns))
        return rows, rows
    draws, labels = config.budget.draws, len(config.labels)
    return int(draws * config.budget.discovery * BASELINE_SHARE) // labels * labels, draws


def _rows_of_labels(config: FailuresConfig, images: LabelledTable) -> int:
    """Returns how many images have one of the run's labels; others are not classified."""
    label_forms = {normalise(name) for name in config.labels}
    counts = pc.value_counts(images.labels["target_class"].cast(pa.string()).drop_null()).to_pylist()
    return sum(row["counts"] for row in counts if normalise(row["values"]) in label_forms)


def expected(config: FailuresConfig, costs: Sequence[Cost] = ()) -> ExpectedCosts:
    """Returns what the manifest keeps of the estimate. It holds seconds only where the models were tried."""
    timed = [cost.seconds for cost in costs]
    measured = [range_of_cost for range_of_cost in timed if range_of_cost is not None]
    seconds = (
        [sum(range_of_cost[0] for range_of_cost in measured), sum(range_of_cost[1] for range_of_cost in measured)]
        if timed and len(measured) == len(timed)
        else []
    )
    return ExpectedCosts(
        draws=list(images(config)),
        seconds=[round(limit, 1) for limit in seconds] or None,
        least_rates=least_rates(config),
        smallest_ratio=config.smallest_ratio,
        draws_of_ratio=_draws_of_ratio(config),
    )


def least_rates(config: FailuresConfig) -> list[LeastRate] | None:
    """Returns the failure rates that the budget is likely to find if each label has one failure; None for labelled
    images, which are counted."""
    if config.images.labelled is not None:
        return None
    reach = _reach(config)
    return [LeastRate(share=share, rate=least_rate(reach, share)) for share in SHARES]


def _draws_of_ratio(config: FailuresConfig) -> int | None:
    return None if config.images.labelled else round(_reach(config).draws_to_confirm(COMMON_RATE))


def _joined(*sentences: str) -> str:
    return "; ".join(filter(None, sentences))


def _reach(config: FailuresConfig) -> FailureReach:
    labels, discovery = max(len(config.labels), 1), config.budget.draws * config.budget.discovery
    baseline = discovery * BASELINE_SHARE
    return FailureReach(
        seen=None if config.captioner is None else baseline / labels,
        screened=min(discovery - baseline, baseline / 2) / labels,
        tested=(config.budget.draws - discovery) * TEST_SHARE / labels,
        hypotheses=CONFIRMED * labels * len(config.specs),
        alpha=config.alpha,
        worth=config.smallest_ratio,
    )
