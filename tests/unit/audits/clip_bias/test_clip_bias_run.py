"""Runs of `c2b clip-bias` as earlier releases wrote them."""

import pyarrow as pa

from c2b_ray.audits.clip_bias.run import open_clip_bias_run
from c2b_ray.tables.clip_bias import CLIP_BIAS

SINCE = ("favoured", "favoured_texts", "texts")


def test_biases_without_a_favoured_value_are_read(tmp_path):
    """Releases before the favoured value of MaxSkew was kept wrote no such columns."""
    row = {field.name: 0.1 if pa.types.is_floating(field.type) else "x" for field in CLIP_BIAS}
    row |= {field.name: 1 for field in CLIP_BIAS if pa.types.is_integer(field.type)}
    dataset = {"table": "people.csv", "attributes": ["gender"], "texts": ["a person"]}
    config = {"models": {"clip": "world:clip"}, "datasets": {"people": dataset}}
    older = pa.Table.from_pylist([row], CLIP_BIAS).drop_columns(list(SINCE))
    with open_clip_bias_run(tmp_path / "run", "clip-1", config) as run:
        assert run.complete("clip_bias", older, None).select(SINCE).to_pylist() == [dict.fromkeys(SINCE)]
