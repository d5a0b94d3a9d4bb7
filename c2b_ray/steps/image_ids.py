"""Numbers image ids: the text of an id is compared once, and everything after that uses whole numbers.

It knows ids and other columns of names; it does not know what an image belongs to.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class ImageIds:
    """Distinct image ids. The number of an image is the position of its id."""

    def __init__(self, ids: pa.Array) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def numbered(cls, column: pa.ChunkedArray) -> tuple[ImageIds, Ints]:
        """Returns the ids of a column, and the number of each row's image."""
        names, numbers = numbered(column)
        return cls(names), numbers

    def numbers(self, column: pa.ChunkedArray | pa.Array) -> Ints:
        """Returns the number of each row's image; -1 for an id that is not among these."""
        return codes(column, self.ids)

    def names(self, numbers: Ints) -> pa.Array:
        return self.ids.take(pa.array(numbers))

    def alphabetical(self, numbers: Ints) -> Ints:
        """Returns the positions that sort these images by their ids."""
        order: Ints = pc.sort_indices(self.names(numbers)).to_numpy().astype(np.int64)
        return order


def wide(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """Returns the column with 64-bit offsets: the text of all rows may exceed 2 GiB, which 32 bits cannot address."""
    return (column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])).cast(pa.large_string())


def numbered(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, Ints]:
    """Returns the distinct texts of a column without nulls, and the position of each row's text among them."""
    encoded = wide(column).dictionary_encode().unify_dictionaries()
    if not encoded.num_chunks:
        return pa.array([], pa.large_string()), np.zeros(0, np.int64)
    return encoded.chunk(0).dictionary, np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])


def codes(column: pa.ChunkedArray | pa.Array, names: pa.Array) -> Ints:
    """Returns the position of each row's text among `names`; -1 where it is null, or not one of them."""
    positions: Ints = pc.fill_null(pc.index_in(wide(column), value_set=names), -1).to_numpy()
    return positions


def vocabulary(*columns: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns the distinct texts of several columns, in the order of their first rows, without nulls."""
    texts = pa.chunked_array([wide(column).unique() for column in columns], pa.large_string())
    return texts.unique().drop_null()


def repeated(keys: Ints) -> Mask:
    """Returns which of these numbers occur more than once."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    same = ordered[1:] == ordered[:-1]
    is_repeated = np.zeros(len(keys), bool)
    is_repeated[order[1:][same]] = True
    is_repeated[order[:-1][same]] = True
    return is_repeated


def counted(keys: Ints) -> tuple[Ints, Ints]:
    """Returns the distinct numbers in ascending order, and how often each occurs."""
    ordered = np.sort(keys)
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])
    return ordered[starts], np.diff(np.r_[starts, len(ordered)])


def distinct_count(keys: Ints) -> int:
    return len(counted(keys)[0])
