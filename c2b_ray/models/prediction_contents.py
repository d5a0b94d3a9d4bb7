"""What is in a column of a table of predictions: numbers, probabilities, texts. It knows no names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.roles import Floats


def numbers_of(column: pa.ChunkedArray) -> Floats | None:
    """Returns a column's numbers as float64, NaN where there is none; None where it holds anything else."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_boolean(kind) or pa.types.is_temporal(kind) or pa.types.is_nested(kind):
        return None
    if not pa.types.is_null(kind) and column.null_count == len(column) and is_text(column):
        return None
    try:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    except pa.ArrowException:
        return None


def texts_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns labels as texts. Whole numbers that pandas has made fractions (7.0) are whole numbers (7) again."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    column = column.cast(kind)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column).cast(pa.int64())
    return column.cast(pa.string())


def is_text(column: pa.ChunkedArray) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return bool(text or pa.types.is_integer(kind))


def is_number(value: object) -> bool:
    try:
        return bool(np.isfinite(float(str(value))))
    except ValueError:
        return False


def in_unit(values: Floats) -> bool:
    known = values[~np.isnan(values)]
    return bool(((known >= 0) & (known <= 1 + 1e-4)).all())


def whole(values: Floats) -> bool:
    known = values[~np.isnan(values)]
    return bool((np.isinf(known) | (known == np.floor(known))).all())


def a_fraction(values: Floats) -> float:
    return float(values[~np.isnan(values) & (values != np.floor(values))][0])


def off(sums: Floats) -> float:
    return float(np.abs(sums - 1).max(initial=0.0))
