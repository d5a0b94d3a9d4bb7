"""The ids of a stage's rows: one in each row, or a list, one for each row that the step returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.storage.parts import Digests, Parts, absent, digests, failed, writing


def not_yet(table: pa.Table, id_column: str, done: Digests) -> pa.Table:
    """Returns the rows whose ids are not among the sorted digests `done`; of a list of ids, only the missing
    ones stay."""
    if not len(done):
        return table
    ids = table[id_column].combine_chunks()
    if not pa.types.is_list(ids.type):
        return table.filter(pa.array(absent(ids, done)))
    is_missing = absent(ids.flatten(), done)
    owners = pc.list_parent_indices(ids).to_numpy()[is_missing]
    ends = np.cumsum(np.bincount(owners, minlength=len(ids)))
    lists = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], ends]), pa.int32()), ids.flatten().filter(is_missing)
    )
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


# What a stage writes: a table of answers, and with `SecondTable` a second table of the rows that were answered.


TRAVELS = "also"
"""The column of answers that holds the second table's rows; null where an answer is not the first of its row."""


@dataclass(frozen=True)
class SecondTable:
    """A second table of a stage: for each row that the step gets, one row of columns that the (prepared) row has.

    `out`: the directory of its parts; `schema`: of the parts; `id_column`: identifies a row in it. A row that is
    written twice, because it was answered in two calls or a process died, is kept once.
    """

    out: str
    schema: pa.Schema
    id_column: str


@dataclass(frozen=True)
class WrittenPart:
    """One part: its rows, and how many of them have an error."""

    rows: int
    errors: int


@dataclass(frozen=True)
class Outputs:
    """The parts that a stage writes. It can be sent to workers. `second`: the parts of `also`."""

    parts: Parts
    id_column: str
    also: SecondTable | None = None
    second: Parts | None = None

    @property
    def all(self) -> list[Parts]:
        return [self.parts] if self.second is None else [self.parts, self.second]

    def settle(self) -> None:
        """Drops repeats from the second table; an empty part stands for none."""
        if self.second is not None and self.also is not None:
            self.second.drop_repeats(self.also.id_column)
            _never_none(self.second, self.also.schema)


@contextmanager
def outputs(out: str, schema: pa.Schema, id_column: str, also: SecondTable | None) -> Iterator[Outputs]:
    """Opens the parts of a stage for the only writer. Raises the errors of `storage.parts.writing`."""
    with writing(out) as parts:
        if also is None:
            yield Outputs(parts, id_column)
        else:
            with writing(also.out) as second:
                yield Outputs(parts, id_column, also, second)
        _never_none(parts, schema)


def _never_none(parts: Parts, schema: pa.Schema) -> None:
    if not parts.names():
        parts.put("part-empty.parquet", schema.empty_table())


def write_part(answers: pa.Table, stage_outputs: Outputs) -> WrittenPart:
    """Writes answers as one part, after the second table's rows that travel with them."""
    if stage_outputs.also is not None and stage_outputs.second is not None:
        rows = answers[TRAVELS].combine_chunks()
        rows = rows.filter(rows.is_valid())
        if len(rows):
            stage_outputs.second.write(
                pa.Table.from_struct_array(rows).cast(stage_outputs.also.schema), stage_outputs.also.id_column
            )
        answers = answers.drop_columns([TRAVELS])
    stage_outputs.parts.write(answers, stage_outputs.id_column)
    return WrittenPart(answers.num_rows, int(failed(answers).sum()))


def with_second(answers: pa.Table, rows: pa.Table, id_column: str, also: SecondTable | None) -> pa.Table:
    """Returns the answers to `rows` with the second table's rows beside them, each beside the first answer to its row.

    `id_column`: the answers' ids; in `rows` an id or a list of ids, none empty.
    """
    if also is None:
        return answers
    ids = rows[id_column].combine_chunks()
    first = pc.list_element(ids, 0) if pa.types.is_list(ids.type) else ids
    second = rows.select(also.schema.names).cast(also.schema).to_struct_array().combine_chunks()
    answered = answers[id_column].combine_chunks()
    if answered.equals(first):  # one classifier, none of whose answers is there already
        return answers.append_column(TRAVELS, second)
    rows_of_answers = pc.index_in(first, answered).to_numpy(zero_copy_only=False)
    places = np.full(answers.num_rows, -1, np.int64)
    places[rows_of_answers] = np.arange(rows.num_rows)
    second_column = second.take(pa.array(places, mask=places < 0))
    return answers.append_column(TRAVELS, second_column)
