"""`c2b clip-bias` where image files were replaced under their names."""

from __future__ import annotations

import clip_bias_tables
import pyarrow as pa
import pyarrow.parquet as pq

import c2b_ray


def skews(run):
    return [row["value"] for row in run.biases.to_pylist() if row["metric"] == "max_skew@1000"]


def test_a_picture_that_was_replaced_under_its_name_is_embedded_anew(tmp_path):
    config = clip_bias_tables.write_tables(tmp_path, 60)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    people = pq.read_table(tmp_path / "people.parquet").to_pylist()
    for number, row in enumerate(people):
        (pictures / f"{number}.png").write_bytes(row["image"])
    named = [{**row, "image": f"{number}.png"} for number, row in enumerate(people)]
    pq.write_table(pa.Table.from_pylist(named), pictures / "people.parquet")
    dataset = {**config["datasets"]["people"], "table": str(pictures / "people.parquet"), "attributes": ["coin"]}
    alone = {"models": {"a": "world:clip"}, "downstream": {}, "spaces": None, "groups": {"k": 1}}
    config = {**config, **alone, "datasets": {"people": dataset}}
    run = c2b_ray.clip_bias(config, tmp_path / "run", via="here")
    before, held = run.biases.to_pylist(), run.read("embeddings").num_rows
    for number, of_other in enumerate(range(20, 40)):
        (pictures / f"{number}.png").write_bytes(people[of_other]["image"])
    again = c2b_ray.clip_bias(config, tmp_path / "run", via="here")
    assert again.read("embeddings").num_rows == held + 20  # of the others, none
    fresh = c2b_ray.clip_bias(config, tmp_path / "fresh", via="here")
    reused = c2b_ray.clip_bias({**config, "recall_k": 3}, tmp_path / "reused", via="here", reuse=run)
    assert again.biases.to_pylist() == fresh.biases.to_pylist() != before
    assert skews(reused) == skews(fresh)
