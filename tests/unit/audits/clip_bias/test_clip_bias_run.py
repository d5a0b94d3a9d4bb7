"""Runs of `c2b clip-bias` as earlier releases wrote them."""

import pyarrow as pa

from c2b_ray.audits.clip_bias.comparison import images_of_groups
from c2b_ray.audits.clip_bias.run import open_clip_bias_run
from c2b_ray.tables.clip_bias import CLIP_BIAS, CLUSTERS

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


class Clusters:
    """A run that has clusters and nothing else: for each image its name, its group and a hash of its bytes."""

    def __init__(self, *images):
        rows = [dict(zip(("key", "group", "content"), image, strict=True)) | {"dataset": "people"} for image in images]
        self._table = pa.Table.from_pylist(rows, CLUSTERS)

    def read(self, name):
        return {"clusters": self._table}[name]


def test_images_that_were_replaced_under_their_names_are_others():
    first = Clusters(("a.jpg", "1", "x"), ("b.jpg", None, "y"))
    same, replaced = (
        Clusters(("a.jpg", "1", "x"), ("b.jpg", None, "z")),
        Clusters(("a.jpg", "1", "z"), ("b.jpg", None, "y")),
    )
    one, other = images_of_groups(first, same)
    assert one["people", "1"] == other["people", "1"]
    assert one["people", "all"] != other["people", "all"]
    one, other = images_of_groups(first, replaced)
    assert one["people", "1"] != other["people", "1"]
    # A run of an older release has no hashes: names tell.
    one, other = images_of_groups(first, Clusters(("a.jpg", "1", None), ("b.jpg", None, None)))
    assert one == other
