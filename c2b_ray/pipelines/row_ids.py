"""The ids of a stage's rows: one in each row, or a list, one for each row that the step returns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.store.digests import Digests, absent, digests


def not_yet(table: pa.Table, id_column: str, done: Digests) -> pa.Table:
    """Returns the rows whose ids are not among the sorted digests `done`; of a list of ids, only the missing
    ones stay."""
    if not len(done):
        return table
    ids = table[id_column].combine_chunks()
    if not pa.types.is_list(ids.type):
        return table.filter(pa.array(absent(ids, done)))
    left = absent(ids.flatten(), done)
    owners = pc.list_parent_indices(ids).to_numpy()[left]
    ends = np.cumsum(np.bincount(owners, minlength=len(ids)))
    lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), ids.flatten().filter(left))
    position = table.schema.get_field_index(id_column)
    table = table.set_column(position, id_column, lists)
    return table.filter(pc.greater(pc.list_value_length(lists), 0))


def ids_of(rows: pa.Table, id_column: str) -> pa.ChunkedArray:
    """Returns the ids of the rows that the step has to return; lists of ids are flattened."""
    ids = rows[id_column]
    return pc.list_flatten(ids) if pa.types.is_list(ids.type) else ids


def each_once(table: pa.Table, id_column: str) -> pa.Table:
    """Returns the table with every id once. Raises ValueError where an id is null."""
    ids = table[id_column]
    if ids.null_count:
        raise ValueError(f"{id_column} is null in {ids.null_count} rows of the source")
    if pa.types.is_list(ids.type):
        ids = pc.list_element(ids, 0)
    _, first = np.unique(digests(ids), return_index=True)
    return table if len(first) == table.num_rows else table.take(np.sort(first))
