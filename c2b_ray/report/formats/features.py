"""The features of Hugging Face's `datasets` as its Parquet metadata and its cards have them, from Arrow's types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

IMAGE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
"""The type of a column of images."""


def feature(kind: pa.DataType) -> Any:
    """Returns a feature as `datasets` keeps it in Parquet's metadata, in the form that every release since 2.0
    reads."""
    if pa.types.is_list(kind):
        if pa.types.is_struct(kind.value_type):
            return [feature(kind.value_type)]
        return {"feature": feature(kind.value_type), "_type": "Sequence"}
    if pa.types.is_struct(kind):
        return {field.name: feature(field.type) for field in kind}
    return {"dtype": _dtype(kind), "_type": "Value"}


def yaml_feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        if pa.types.is_struct(kind.value_type):
            return {"list": [{"name": field.name, **yaml_feature(field.type)} for field in kind.value_type]}
        return {"sequence": _dtype(kind.value_type)}
    return {"dtype": _dtype(kind)}


def _dtype(kind: pa.DataType) -> str:
    return {"float": "float32", "double": "float64"}.get(str(kind), str(kind))
