"""Batches of a stage are bounded in rows and in what rows weigh, such as pixels."""

from io import BytesIO

import pyarrow as pa
import pytest
from PIL import Image

from c2b_ray.engine.images import CLASSIFY, VERIFY
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.stage import StageConfig, cut
from c2b_ray.steps.decode import BATCH_PIXELS, pixels_of


def weights_of(block):
    return block["weight"].to_pylist()


@pytest.mark.parametrize(
    ("weights", "sizes"),
    [
        ([], [0]),
        ([1] * 7, [4, 3]),
        ([6, 5, 5, 1], [1, 2, 1]),  # 6 | 5 + 5 | 1
        ([50, 1, 50], [1, 1, 1]),  # a row that is too heavy comes alone
        ([0, 0, 10, 0, 0], [4, 1]),
    ],
)
def test_a_batch_has_neither_too_many_rows_nor_too_heavy_ones(weights, sizes):
    block = pa.table({"weight": pa.array(weights, pa.int64())})
    config = StageConfig(block.schema, Placement(batch=4), weigh=weights_of, most_weight=10)
    batches = cut(block, config)
    assert [batch.num_rows for batch in batches] == sizes
    assert pa.concat_tables(batches).equals(block)


def test_large_images_are_decoded_few_at_a_time():
    def encoded(side):
        file = BytesIO()
        Image.new("L", (side, side)).save(file, "PNG", compress_level=1)
        return file.getvalue()

    large, small = encoded(6000), encoded(100)
    images = pa.table({"bytes": pa.array([large] * 3 + [small] * 3 + [None, b"no image", b""], pa.binary())})
    assert pixels_of(images) == [36_000_000] * 3 + [10_000] * 3 + [0] * 3
    for config in (CLASSIFY, VERIFY):
        assert [batch.num_rows for batch in cut(images, config)] == [1, 1, 7]
        assert all(sum(pixels_of(batch)) <= BATCH_PIXELS for batch in cut(images, config))
