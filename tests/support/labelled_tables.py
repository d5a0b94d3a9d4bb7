"""What an audit makes of a labelled table, as Arrow tables; the audit itself keeps numbers of rows until it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from c2b_ray.audits.c2b.hypotheses.labelled import labelled_pair_rows, labelled_rows
from c2b_ray.audits.c2b.thresholds import Limit
from c2b_ray.steps.cells import Pair
from c2b_ray.steps.draw import wanted


def labelled(
    labels: pa.Table,
    revision: str,
    classes: Sequence[str],
    attributes: Mapping[str, Sequence[str]] | None,
    limit: Limit,
) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """Returns proposals, captions, draws and the images to fetch, as tables. The arguments are those of
    `labelled_rows`."""
    proposals, captions, draws = labelled_rows(labels, revision, classes, attributes, limit)
    return proposals, captions, draws.table(), wanted(draws.distinct(), revision)


def labelled_pairs(
    labels: pa.Table, revision: str, pairs: Sequence[Pair], limit: Limit
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Returns captions, draws and the images to fetch, as tables. The arguments are those of `labelled_pair_rows`."""
    captions, draws = labelled_pair_rows(labels, revision, pairs, limit)
    return captions, draws.table(), wanted(draws.distinct(), revision)
