"""Pictures that are decoded and shaped where no model is: pixels in the place of files."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO

import numpy as np
import pyarrow as pa
from PIL import Image

from c2b_ray.engine.here import preparing
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.roles import Shape
from c2b_ray.steps.decode import decode
from c2b_ray.steps.prepared import asked_for, blocks_of, column_of, prepared_as_asked

SQUARE, WIDE = Shape(12, "bilinear", (8, 8)), Shape((6, 10), "bicubic", None)
AS_IT_COMES = Shape(12, "bilinear", None)


def rows() -> pa.Table:
    random = np.random.default_rng(3)
    files = []
    for i in range(5):
        file = BytesIO()
        Image.fromarray(random.integers(0, 256, (20 + i, 31, 3), np.uint8)).save(file, "PNG")
        files.append(file.getvalue())
    files[1], files[2] = b"cut off", None
    errors = pa.array([None, None, None, "gone", None], pa.string())
    return pa.table({"image_id": list("abcde"), "bytes": pa.array(files, pa.binary()), "error": errors})


def test_each_shape_has_its_pixels_and_a_row_without_a_picture_its_error() -> None:
    source = rows()
    prepare = preparing([SQUARE, WIDE, SQUARE])
    assert prepare is not None
    for table in (prepare(source), pa.concat_tables([prepare(source.slice(0, 2)), prepare(source.slice(2))])):
        assert "bytes" not in table.column_names
        errors = table["error"].to_pylist()
        assert [error is None for error in errors] == [True, False, False, False, True]
        assert errors[2:4] == ["no bytes", "gone"]
        blocks = blocks_of(table)
        assert set(blocks) == {column_of(SQUARE), column_of(WIDE)}
        for shape in (SQUARE, WIDE):
            assert shape.frame is not None
            for row in (0, 4):
                expected = shaped(decode(source["bytes"][row].as_py()), shape)
                assert np.array_equal(blocks[column_of(shape)][row].reshape(*shape.frame, 3), expected)
                assert not blocks[column_of(shape)][1:4].any()  # nothing of what the memory held before
        assert table[column_of(WIDE)].null_count == 3


def test_bytes_stay_for_a_model_that_prepares_its_pictures_itself() -> None:
    for other in (None, AS_IT_COMES):  # the second gives pictures of several sizes
        prepare = preparing([SQUARE, other])
        assert prepare is not None
        assert prepare(rows())["bytes"].equals(rows()["bytes"])
        assert preparing([other]) is None


def test_a_process_prepares_by_the_shape_that_comes_with_the_rows() -> None:
    for shape in (SQUARE, WIDE):
        prepare = preparing([shape])
        assert prepare is not None
        found = prepared_as_asked(asked_for(rows(), shape), shaped)
        assert found[column_of(shape)].equals(prepare(rows())[column_of(shape)])


def test_a_process_that_prepares_imports_no_library_of_models_nor_ray() -> None:
    program = (
        "import sys, c2b_ray.processes, c2b_ray.steps.prepared, c2b_ray.models.pixels.resize\n"
        "print([name for name in ('torch', 'ray', 'timm', 'pydantic', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
