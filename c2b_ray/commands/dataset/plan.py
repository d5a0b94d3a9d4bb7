"""Plans a dataset: writes its captions, numbered, and says what the plan leaves out. It draws no image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.replies import KeptReplies
from c2b_ray.audits.kit.tables_of_predictions import compared_with, is_table
from c2b_ray.commands.dataset import captions as origins
from c2b_ray.commands.dataset.model_captions import by_captioner, by_language_model
from c2b_ray.commands.dataset.models import open_table
from c2b_ray.config.dataset import DatasetConfig
from c2b_ray.errors import SourceError
from c2b_ray.names import normalise
from c2b_ray.pipelines.shards.planned import CAPTIONS, write_captions
from c2b_ray.report.kit import words
from c2b_ray.steps.dataset.captions import Numbered
from c2b_ray.steps.labels import TARGET
from c2b_ray.store.dataset_build import DatasetBuild
from c2b_ray.store.shards import REPLIES


def plan_captions(config: DatasetConfig, directory: DatasetBuild, models: Backend, steps: Steps) -> dict[str, Any]:
    """Writes the captions, and returns the entries of dataset.json about them."""
    numbered = Numbered(config.draws_per_caption * config.images.sources)
    missing: Counter[str] = Counter()
    replies = directory.files.at(REPLIES)
    write_captions(directory.files, numbered.tables(_captions(config, models, steps, missing, replies)))
    if not numbered.total:
        raise SourceError(f"{directory.location}: there is no caption to draw images of")
    plan: dict[str, Any] = {"captions": numbered.captions, "draws": numbered.total, "shard_draws": config.shard_draws}
    from_run = config.captions is not None and config.captions.run is not None
    if numbered.repeated:
        plan["repeated_captions"] = numbered.repeated
    if numbered.repeated and not from_run:  # a run has a caption for each of its targets and classifiers
        steps.warn(f"a caption that comes again with the same label is drawn once; left out: {numbered.repeated}")
    if missing:
        plan["without_value"] = dict(missing)
        told = words.listed([f"{words.plural(count, 'row')} without {name}" for name, count in missing.items()])
        steps.warn(f"images.labelled: left out {told}")
    if config.images.labelled is not None:
        plan |= _of_table(config, list(numbered.labels), steps)
    return {
        "labels": list(numbered.labels),
        "captions_sha256": directory.files.digest(CAPTIONS).sha256,
        "plan": plan,
    }


def _of_table(config: DatasetConfig, labels: list[str], steps: Steps) -> dict[str, Any]:
    """Says what the labelled table's folder holds besides, and what is odd about tables of predictions; returns the
    plan's entry about it. Raises SourceError where a table of predictions is one of other images."""
    assert config.images.labelled is not None
    table = open_table(config.images.labelled.table, dict(config.images.labelled.columns or {}))
    warnings = list(table.left_out.sentences())
    if any(map(is_table, config.specs.values())):
        wanted = {normalise(name) for name in labels}
        truth = table.labels[TARGET].to_pylist()
        rows = [row for row, name in enumerate(truth) if name is not None and normalise(name) in wanted]
        keys = table.keys.take(pa.array(rows, pa.int64())).to_pylist()
        label_map = config.label_map if isinstance(config.label_map, dict) else None
        warnings += compared_with(config.specs, keys, [truth[row] for row in rows], labels, label_map)
    for warning in warnings:
        steps.warn(warning)
    return {"left_out": table.left_out.as_dict(), "warnings": warnings} if warnings else {}


def _captions(
    config: DatasetConfig, models: Backend, steps: Steps, missing: Counter[str], replies: str
) -> Iterator[tuple[str, str, list[int] | None]]:
    if config.images.labelled is not None:
        labelled = config.images.labelled
        table = open_table(labelled.table, dict(labelled.columns or {}))
        wanted = list(config.label_map) if isinstance(config.label_map, dict) else []
        if config.captions is not None and config.captions.run is not None:
            return origins.of_conditions(origins.of_run(config.captions.run), table)
        return origins.of_table(labelled, table, wanted, missing)
    captions = config.captions
    assert captions is not None
    if captions.file is not None:
        return origins.with_rows(origins.of_file(captions.file))
    if captions.run is not None:
        return origins.with_rows(origins.of_run(captions.run))
    if captions.language_model is not None:
        model = models.language_model(captions.language_model)
        with steps.step("caption", images_per_row=0) as tell:
            kept = KeptReplies(model, replies, tell)
            return origins.with_rows(list(by_language_model(captions, kept, config.seed, steps)))
    return origins.with_rows(by_captioner(captions, models, steps))
