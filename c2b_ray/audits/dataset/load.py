"""Loads a dataset of failures as Arrow's `Dataset`, which reads only the columns and rows of a query."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds

from c2b_ray.storage import resolve
from c2b_ray.storage.failure_dataset import classifiers_of, open_dataset
from c2b_ray.tables.dataset import DATASET_ROWS


def load_dataset(location: str | Path, classifier: str | None = None) -> ds.Dataset:
    """Returns the rows of a finished dataset, of `tables.dataset.DATASET_ROWS`, without reading them.

    `classifier`: only the rows that this one of its classifiers fails on; the columns stay the same, and its answer is
    in `answers`. Raises SourceError where there is no finished dataset; ConfigError for an unknown classifier.
    """
    dataset = open_dataset(str(location), classifier)
    filesystem, path = resolve(location)
    names = [f"{path}/shards/{shard.name}" for shard in dataset.shards]
    rows = ds.dataset(names, schema=DATASET_ROWS, format="parquet", filesystem=filesystem)
    if classifier is None:
        return rows
    index = classifiers_of(dataset).index(dataset.name_of(classifier))
    return rows.filter(pc.struct_field(pc.list_element(ds.field("answers"), index), "failed"))
