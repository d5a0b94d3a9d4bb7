"""Blocks of prepared rows are as large as a batch of the model, and smaller where the object store is small."""

from c2b_ray.engine.ray_stage import LEAST_PREPARED_BYTES, PREPARED_BYTES, prepared_bytes

MB = 2**20


def test_blocks_of_all_decoders_fill_half_of_a_small_store():
    assert prepared_bytes(14, None) == PREPARED_BYTES  # no node says
    assert prepared_bytes(14, 4096 * MB) == PREPARED_BYTES
    small = prepared_bytes(14, 512 * MB)  # a GPU's machine in a container with 64 MB of shared memory
    assert 8 * MB < small < PREPARED_BYTES
    assert 2 * 14 * small <= 512 * MB / 2
    assert prepared_bytes(100, 80 * MB) == LEAST_PREPARED_BYTES
