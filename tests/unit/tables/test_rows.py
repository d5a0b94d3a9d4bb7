"""Rows declared once, and the ids of rows."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, NotRequired, TypedDict

import pyarrow as pa
import pytest

from c2b_ray.tables import content_id, content_ids, texts
from c2b_ray.tables.rows import NULLABLE, Float32, Int8, Measured, schema_of, struct_of


class Example(TypedDict):
    seed: int
    pixels: bytes


class Id(TypedDict):
    row_id: str


class Row(Id):
    label: str | None
    number: Int8
    rate: Measured
    score: NotRequired[float | None]
    later: Annotated[str, NULLABLE]
    vector: list[Float32] | None
    thumbnail: Annotated[bytes, pa.binary(192)]
    examples: list[Example]


def test_a_schema_has_the_columns_types_and_nulls_of_its_row():
    example = pa.struct([("seed", pa.int64()), ("pixels", pa.binary())])
    assert schema_of(Row) == pa.schema(
        [
            pa.field("row_id", pa.string(), nullable=False),
            pa.field("label", pa.string()),
            pa.field("number", pa.int8(), nullable=False),
            pa.field("rate", pa.float64()),
            pa.field("score", pa.float64()),
            pa.field("later", pa.string()),
            pa.field("vector", pa.list_(pa.float32())),
            pa.field("thumbnail", pa.binary(192), nullable=False),
            pa.field("examples", pa.list_(example), nullable=False),
        ]
    )


def test_a_struct_can_leave_fields_out():
    assert struct_of(Example, without=["pixels"]) == pa.struct([("seed", pa.int64())])


def test_a_row_is_written_and_read_as_it_is():
    row: dict[str, Any] = {
        "row_id": "a", "label": None, "number": 1, "rate": 0.5, "score": None, "later": "b", "vector": [0.5],
        "thumbnail": b"\0" * 192, "examples": [{"seed": 7, "pixels": b"x"}],
    }  # fmt: skip
    assert pa.Table.from_pylist([row], schema_of(Row)).to_pylist() == [row]


class Unknown(TypedDict):
    size: tuple[int, int]


def test_a_type_without_a_column_type_is_refused_by_name():
    with pytest.raises(TypeError, match=r"tuple\[int, int\] is no column's type: use str, bool"):
        schema_of(Unknown)


def test_ids_stay_what_they_were():
    # From the first release: a run's ids must outlive every version that resumes it.
    assert content_id("predict", 'é"\n', ["bus", "boat"], {"b": 1.5, "a": None}) == "1b8e1787f18594ade125"
    assert content_id("ab", "c") != content_id("a", "bc")


def test_many_ids_are_those_of_one_after_the_other():
    settings = (["bus", "boat"], [[0], [1, 2]], "top1")
    assert content_ids("predict", ["a", "ü"], *settings) == [content_id("predict", v, *settings) for v in ("a", "ü")]


@pytest.mark.parametrize("part", [0, 12_345, -7, 2**70, True, False, 1.0, "1", None, [1, True]])
def test_a_part_is_hashed_as_its_json(part):
    data = json.dumps(part).encode()
    assert content_id(part) == hashlib.blake2b(len(data).to_bytes(8, "big") + data, digest_size=10).hexdigest()


@pytest.mark.parametrize("rows", [[], ["a"], ["a", 'with "quotes"', "é", "", "last"]])
def test_texts_some_at_a_time_have_the_id_of_their_list(rows):
    for size in (1, 2, 5):
        some = texts(lambda size=size: iter([[], *(rows[start : start + size] for start in range(0, len(rows), size))]))
        assert content_id(b"before", some, 3) == content_id(b"before", rows, 3)
