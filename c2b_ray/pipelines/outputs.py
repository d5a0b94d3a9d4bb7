"""What a stage writes: a table of answers, and with `Also` a second table of the rows that were answered.

The rows of the second table travel with the answers, in one column, until a part of both is written, the second table
first. So a row that the stage counts as done, because its answer is in a part, is in the second table too, whatever
died meanwhile. It knows neither steps nor runners.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.store.parts import Parts, failed, writing

TRAVELS = "also"
"""The column of answers that holds the second table's rows; null where an answer is not the first of its row."""


@dataclass(frozen=True)
class Also:
    """A second table of a stage: for each row that the step gets, one row of columns that the (prepared) row has.

    `out`: the directory of its parts; `schema`: of the parts; `id_column`: identifies a row in it. A row that is
    written twice, because it was answered in two calls or a process died, is kept once.
    """

    out: str
    schema: pa.Schema
    id_column: str


@dataclass(frozen=True)
class Written:
    """One part: its rows, and how many of them have an error."""

    rows: int
    errors: int


@dataclass(frozen=True)
class Outputs:
    """The parts that a stage writes. It can be sent to workers. `second`: the parts of `also`."""

    parts: Parts
    id_column: str
    also: Also | None = None
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
def outputs(out: str, schema: pa.Schema, id_column: str, also: Also | None) -> Iterator[Outputs]:
    """Opens the parts of a stage for the only writer. Raises the errors of `store.parts.writing`."""
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


def write_part(answers: pa.Table, to: Outputs) -> Written:
    """Writes answers as one part, after the second table's rows that travel with them."""
    if to.also is not None and to.second is not None:
        rows = answers[TRAVELS].combine_chunks()
        rows = rows.filter(rows.is_valid())
        if len(rows):
            to.second.write(pa.Table.from_struct_array(rows).cast(to.also.schema), to.also.id_column)
        answers = answers.drop_columns([TRAVELS])
    to.parts.write(answers, to.id_column)
    return Written(answers.num_rows, int(failed(answers).sum()))


def with_second(answers: pa.Table, rows: pa.Table, id_column: str, also: Also | None) -> pa.Table:
    """Returns the answers to `rows` with the second table's rows beside them, each beside the first answer to its row.

    `id_column`: the answers' ids; in `rows` an id or a list of ids, none empty.
    """
    if also is None:
        return answers
    ids = rows[id_column].combine_chunks()
    first = pc.list_element(ids, 0) if pa.types.is_list(ids.type) else ids
    at = pc.index_in(first, answers[id_column].combine_chunks()).to_numpy(zero_copy_only=False)
    places = np.full(answers.num_rows, -1, np.int64)
    places[at] = np.arange(rows.num_rows)
    second = rows.select(also.schema.names).cast(also.schema).to_struct_array().combine_chunks()
    beside = second.take(pa.array(places, mask=places < 0))
    return answers.append_column(TRAVELS, beside)
