"""Which images of a reference are the same picture: copies of one are no more evidence than the picture itself.

It knows rows of a reference, not what classifiers say of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pyarrow as pa

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.commands.dataset.evaluate_rows import Reference
from c2b_ray.pipelines.images import OnProgress
from c2b_ray.pipelines.rounds import read_pictures
from c2b_ray.steps.duplicates import COLUMNS, Distinct
from c2b_ray.steps.image_ids import ImageIds, Ints, distinct_count, wide
from c2b_ray.store.labelled import LabelledTable
from c2b_ray.store.parts import opened


class Pictures:
    """The pictures of a reference. `images`: a table with COLUMNS."""

    def __init__(self, images: pa.Table) -> None:
        self._distinct = Distinct(images)
        self.copies = images.num_rows - distinct_count(self.of([images["image_id"]]))

    def of(self, ids: Iterable[pa.ChunkedArray]) -> Ints:
        """Returns a number for the picture of each of these images, the same for copies."""
        together = pa.chunked_array([chunk for column in ids for chunk in wide(column).chunks], pa.large_string())
        return self._distinct.pictures(ImageIds(together.combine_chunks()))


def pictures_of(models: Backend, reference: Reference, out: str, on_progress: OnProgress) -> Pictures:
    """Looks at all images of the reference; what is known of them is kept in parts under `out`."""
    rows = range(len(reference.table))
    location = f"{out}/pictures/{reference.revision}"
    source = partial(_itself, reference.table)
    table = pa.table({"image_id": reference.ids(rows), "row": pa.array(rows, pa.int64())})
    read_pictures(models.runner, table, source, location, on_progress)
    parts = opened(location)
    return Pictures(pa.concat_tables([parts.read(name).select(COLUMNS) for name in parts.names()]))


def _itself(table: LabelledTable) -> LabelledTable:
    return table
