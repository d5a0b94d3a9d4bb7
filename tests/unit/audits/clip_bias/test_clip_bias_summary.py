"""What the terminal shows of a run of `c2b clip-bias`."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa

from c2b_ray.audits.clip_bias.summary import summary
from c2b_ray.tables.clip_bias import TRANSFER


def test_a_small_bias_beyond_chance_is_shown_as_it_is():
    """KL of CIDEr is often below 1e-4: it stood in the terminal as 0, from 0.0000 to 0.0000, with q below .001."""
    one = {
        "model": "a", "dataset": "d", "metric": "kl_cider", "attribute": "coin", "view": "global", "group": "all",
        "value": 8.2e-6, "value_low": 3.6e-6, "value_high": 1.4e-5, "expected": 2e-7, "q_value": 0.0002,
    }  # fmt: skip
    tables_of = {"clip_bias": pa.Table.from_pylist([one]), "transfer": TRANSFER.empty_table()}
    config = SimpleNamespace(alpha=0.05)
    shown = summary(SimpleNamespace(read=tables_of.get, config=config, manifest={}, path="run", report="page"))
    assert shown.rows[0][5:] == ("8.2·10⁻⁶", "3.6·10⁻⁶ to 1.4·10⁻⁵", "2.0·10⁻⁷", "<\u202f0.001")
