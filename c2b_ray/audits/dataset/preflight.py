"""Checks before a dataset is built whether its models and files exist, and estimates the cost of the build."""

from __future__ import annotations

from c2b_ray.audits.dataset.config import DatasetConfig, read_dataset_config
from c2b_ray.audits.dataset.models import open_table, truths_of
from c2b_ray.audits.dataset.plan import of_file, of_run, of_table
from c2b_ray.audits.dataset.steps.plan import NumberedCaptions
from c2b_ray.audits.kit.models import check_specs
from c2b_ray.audits.kit.session import Cost, answers, classifications, generations
from c2b_ray.models import catalog
from c2b_ray.steps.labels import TARGET
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.manifest import FileOrFields


def estimate(config: FileOrFields | DatasetConfig, via: str = "auto") -> list[Cost]:
    """Returns the cost of a build, line by line, from a short trial of its models in this process, wherever
    the build will run (`via`); writes nothing.

    Raises ConfigError where a classifier lacks a label of the captions, as the build itself would.
    """
    config = read_dataset_config(config)
    check_specs(config)
    captions, draws, labels = size_of(config)
    for name, spec in config.specs.items():
        truths_of(config, name, catalog.described("classifier", spec), labels)
    shards = -(-draws // config.shard_draws)
    costs = [Cost("captions", captions, captions), Cost("shards", shards, shards)]
    draws_per_source = draws // config.images.sources
    costs += [
        Cost(f"images to draw from {spec}", draws_per_source, draws_per_source, generations(spec))
        for spec in config.images.generators
    ]
    if config.images.index is not None:
        costs.append(Cost(f"images to fetch from {config.images.index}", draws_per_source, draws_per_source))
    if config.images.labelled is not None:
        costs.append(Cost("images to read", draws, draws))
    costs += [
        Cost(f"predictions of {name}", draws, draws, classifications(spec)) for name, spec in config.specs.items()
    ]
    if config.verify is not None:
        spec = config.verify.captioner
        costs.append(Cost("failures to verify", 0, draws, answers(spec), "of the failures alone"))
    most = min(draws, captions * config.cap_per_caption)
    return [*costs, Cost("rows to keep", 0, most, note="at most, where every image fails")]


def size_of(config: DatasetConfig) -> tuple[int, int, list[str]]:
    """Returns the numbers of captions and draws, at most, and the labels of the captions."""
    if config.images.labelled is not None:
        numbered = NumberedCaptions(0)
        labelled = config.images.labelled
        table = open_table(labelled.table, dict(labelled.columns or {}))
        for _ in numbered.tables(of_table(labelled, table, list(config.label_map or ()))):
            continue
        return numbered.captions, numbered.total, list(numbered.labels)
    captions = config.captions
    assert captions is not None
    if captions.language_model is not None:
        labels = list(captions.labels or ())
        count = captions.per_label * len(labels)
    elif captions.images is not None:
        labelled_images = LabelledTable(captions.images, "captions.images").labels
        count, labels = labelled_images.num_rows, sorted(set(labelled_images[TARGET].to_pylist()) - {None})
    else:
        pairs = of_file(captions.file) if captions.file is not None else of_run(str(captions.run))
        numbered = NumberedCaptions(1)
        for _ in numbered.tables((label, text, None) for label, text in pairs):
            continue
        count, labels = numbered.captions, list(numbered.labels)
    return count, count * config.draws_per_caption * config.images.sources, labels
