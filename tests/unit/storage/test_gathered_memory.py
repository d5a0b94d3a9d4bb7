"""What is gathered of many rows lies outside the heap."""

from __future__ import annotations

import numpy as np

from c2b_ray.storage.ids import FIRST_BYTES, Gathered


def test_records_beyond_the_first_bytes_are_all_kept_and_can_be_sorted_in_place():
    rows = np.random.default_rng(0).bytes(12 * 200_000)
    records = np.frombuffer(rows.replace(b"\0", b"\1"), "S12")
    assert records.nbytes > 2 * FIRST_BYTES
    gathered = Gathered("S12")
    for start in range(0, len(records), 7_000):
        gathered.add(records[start : start + 7_000])
    whole = gathered.whole()
    assert whole.tolist() == records.tolist()
    whole.sort()
    assert whole.tolist() == sorted(records.tolist())
    assert len(Gathered("S12").whole()) == 0
