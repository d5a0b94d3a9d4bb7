"""A small dataset of the world's scenes for `c2b clip-bias`, and made-up results of models."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from c2b_ray.world.captions import caption
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample

IMAGES = 160


def write_tables(folder: Path, images: int = IMAGES, seed: int = 0) -> dict[str, Any]:
    """Writes tables and returns the config of a run over them: one encoder under two names, three attributes (`one` has
    a single value), and for both names answers, captions and embeddings."""
    random = np.random.default_rng(seed)
    rows = []
    for number, scene in enumerate(sample(images, seed + 1)):
        buffer = BytesIO()
        Image.fromarray(render(scene)).resize((64, 64)).save(buffer, "PNG")
        rows.append(
            {
                "key": f"image {number}",
                "image": buffer.getvalue(),
                "caption": [caption(scene, number), caption(scene, number + 10_000)],
                "coin": ["heads", "tails"][int(random.integers(2))] if number % 10 else None,
                "die": str(random.integers(1, 4)),
                "one": "x",
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), folder / "people.parquet")
    for model in "ab":
        _write_results(folder, model, rows, random)
    return {
        "models": {"a": "world:clip", "b": "world:clip?precision=bf16"},
        "datasets": {
            "people": {
                "table": str(folder / "people.parquet"),
                "attributes": ["coin", "die", "one"],
                "texts": ["a picture taken at night", "something red", "a large thing"],
            }
        },
        "downstream": {
            "vqa": {"dataset": "people", "vqa": _paths(folder, "vqa")},
            "captioning": {"dataset": "people", "captions": _paths(folder, "captions")},
        },
        "spaces": {"dataset": "people", "after": _paths(folder, "space")},
        "groups": {"k": 2, "least": 30},
        "leakage": {"seeds": 1, "folds": 2, "swaps": 8},
        "chance": {"permutations": 100, "resamples": 50},
    }


def _paths(folder: Path, kind: str) -> dict[str, str]:
    return {model: str(folder / f"{kind}-{model}.parquet") for model in "ab"}


def _write_results(folder: Path, model: str, rows: list[dict[str, Any]], random: np.random.Generator) -> None:
    answers, captions = [], []
    for row in rows:
        colour = ["red", "blue", "green"][int(random.integers(3))]
        size = ["yes", "no"][int(random.integers(2))]
        for question, answer in (("which colour?", colour), ("is it large?", size)):
            said = answer if random.random() < 0.7 else "red"
            answers.append({"image": row["key"], "question": question, "answer": answer, "prediction": said})
        other = rows[int(random.integers(len(rows)))] if random.random() < 0.5 else row
        captions.append({"image": row["key"], "caption": other["caption"][0]})
    vectors = [random.normal(size=6).tolist() for _ in rows]
    pq.write_table(pa.Table.from_pylist(answers), folder / f"vqa-{model}.parquet")
    pq.write_table(pa.Table.from_pylist(captions), folder / f"captions-{model}.parquet")
    space = pa.table({"image": [row["key"] for row in rows], "embedding": vectors})
    pq.write_table(space, folder / f"space-{model}.parquet")
