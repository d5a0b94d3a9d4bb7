"""Exports and evaluations that Ray's actors write are those of one process."""

from __future__ import annotations

import pyarrow as pa
from synthetic_dataset import Recipe, write_dataset

from c2b_ray.audits.dataset import export as exporting
from c2b_ray.audits.dataset.evaluation import evaluate
from c2b_ray.audits.dataset.export import export
from c2b_ray.audits.kit.session import Session
from c2b_ray.storage import files
from c2b_ray.storage.failure_dataset import open_dataset
from c2b_ray.world.scenes import CLASSES


def test_actors_write_what_one_process_writes(tmp_path, monkeypatch):
    write_dataset(tmp_path / "dataset", Recipe(rows_per_caption=6, shard_rows=8))
    monkeypatch.setattr(exporting, "FILE_ROWS", 8)
    dataset = str(tmp_path / "dataset")
    opened = open_dataset(dataset)
    keys = [key for t in opened.tables([s.name for s in opened.shards]) for key in t["image_id"].to_pylist()]
    shares = {name: [0.8 if name == CLASSES[int(key, 16) % 3] else 0.01 for key in keys] for name in CLASSES}
    files.write_table(tmp_path / "answers.parquet", pa.table({"key": keys, **shares}))
    results = {}
    for via in ("here", "actors"):
        export(dataset, "webdataset", str(tmp_path / f"export-{via}"), session=Session(via))
        out = str(tmp_path / f"evaluation-{via}")
        results[via] = evaluate(dataset, [f"a=table:{tmp_path}/answers.parquet"], out, session=Session(via))
    assert results["actors"].rates.equals(results["here"].rates)
    assert results["here"].rates["images"][0].as_py() == 24
    names = sorted(file.name for file in (tmp_path / "export-here").iterdir())
    assert len(names) == 3 + 3
    for name in names:
        assert (tmp_path / "export-actors" / name).read_bytes() == (tmp_path / "export-here" / name).read_bytes()
