"""A small dataset of failures on disk: renders of the world about which planted classifiers are wrong.

The answers follow from the plants, so no model is loaded; the renderer draws the pictures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image

from c2b_ray.storage import files
from c2b_ray.tables import content_id
from c2b_ray.tables.dataset import DATASET_ROWS, DROPS, OLDER_ROWS
from c2b_ray.world.render import render
from c2b_ray.world.scenes import CLASSES, Scene, sample
from c2b_ray.world.table import write_sample
from c2b_ray.world.zoo import ZOO, Plant

PLANTS = ZOO["resnet-planted-1"].plants  # answers airplane for boats at night, chair for striped mugs


@dataclass(frozen=True)
class Recipe:
    """`members`: planted classifiers; a row is kept where any of them fails. `labels`: class → another name for it."""

    members: Sequence[str] = ("world:resnet-planted-1",)
    rows_per_caption: int = 12
    shard_rows: int = 10
    labels: dict[str, str] | None = None
    seed: int = 100_000
    older: bool = False  # as releases wrote them whose rows had no `key`


def captions_of(plants: Sequence[Plant]) -> list[tuple[str, dict[str, str]]]:
    """Returns two captions for each plant: one of its cell, and one of its cell in the street."""
    cells = [{"target_class": plant.target_class, plant.attribute: plant.value} for plant in plants]
    cells += [{**cell, "setting": "street"} for cell in cells]
    return [(", ".join(cell.values()), cell) for cell in cells]


def renamed(path: Path, count: int, rename: Callable[[str], str]) -> str:
    """Images of the world in a table, whose labels `rename` changes."""
    write_sample(path, count, 5)
    table = files.read_table(path)
    labels = [rename(label) for label in table["target_class"].to_pylist()]
    files.write_table(path, table.set_column(table.column_names.index("target_class"), "target_class", [labels]))
    return str(path)


def write_dataset(location: Path, recipe: Recipe | None = None) -> dict[str, Any]:
    """Writes the dataset and returns its manifest."""
    recipe = recipe or Recipe()
    rows = dataset_rows(recipe)
    shards = [rows[start : start + recipe.shard_rows] for start in range(0, len(rows), recipe.shard_rows)]
    listed = []
    (location / "shards").mkdir(parents=True)
    (location / "drops").mkdir()
    for number, shard in enumerate(shards):
        name = f"{number:06d}-{content_id(number)}.parquet"
        files.write_table(
            location / "shards" / name, pa.Table.from_pylist(shard, OLDER_ROWS if recipe.older else DATASET_ROWS)
        )
        files.write_table(location / "drops" / name, DROPS.empty_table())
        data = (location / "shards" / name).read_bytes()
        listed.append(
            {"name": name, "rows": len(shard), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        )
    config = {"classifier": list(recipe.members), "rule": "top1", "seed": recipe.seed, "label_map": None}
    plan = {"captions": len(captions_of(_plants(recipe))), "draws": len(rows), "shard_draws": recipe.shard_rows}
    about = {"config": config, "config_hash": content_id(config), "plan": plan}
    (location / "dataset.json").write_text(json.dumps(about))
    manifest = {"shards": listed, "rows": len(rows), "drops": {"not_failed": 0}, "repeated": {}, "seconds": 1.0}
    (location / "manifest.json").write_text(json.dumps(manifest))
    return manifest


def dataset_rows(recipe: Recipe) -> list[dict[str, Any]]:
    rows = []
    for number, (caption, cell) in enumerate(captions_of(_plants(recipe))):
        draw = kept = 0
        for draw, scene in enumerate(sample(recipe.rows_per_caption * 20, recipe.seed + number, **cell)):
            answers = [_answer(member, scene, recipe) for member in recipe.members]
            if any(answer["failed"] for answer in answers) and kept < recipe.rows_per_caption:
                rows.append(_row(recipe, scene, (number, caption, draw), answers))
                kept += 1
    return rows


def _plants(recipe: Recipe) -> list[Plant]:
    return [plant for member in recipe.members for plant in ZOO[member.removeprefix("world:")].plants]


def _named(recipe: Recipe, label: str) -> str:
    return (recipe.labels or {}).get(label, label)


def _answer(member: str, scene: Scene, recipe: Recipe) -> dict[str, Any]:
    said = scene.target_class
    for plant in ZOO[member.removeprefix("world:")].plants:
        if plant.covers(scene) and scene.horizon < plant.strength:
            said = plant.becomes
    top3 = [said, *[name for name in (scene.target_class, *CLASSES) if name != said]]
    top3 = [_named(recipe, name) for name in list(dict.fromkeys(top3))[:3]]
    return {
        "classifier": member,
        "revision": f"{member}@1",
        "predicted": top3[0],
        "top3": top3,
        "probabilities": [0.7, 0.2, 0.05],
        "failed": said != scene.target_class,
    }


def _row(recipe: Recipe, scene: Scene, of_plan: tuple[int, str, int], answers: list[dict[str, Any]]) -> dict[str, Any]:
    number, caption, draw = of_plan
    buffer = BytesIO()
    Image.fromarray(render(scene)).save(buffer, "PNG")
    first = next(answer for answer in answers if answer["failed"])
    return {
        "image_id": content_id("image", caption, draw),
        "image": buffer.getvalue(),
        "label": _named(recipe, scene.target_class),
        "caption": caption,
        "prompt": f"a realistic photograph of a {caption}.",
        "seed": draw,
        "generator": "world:renderer",
        "generator_revision": "renderer@1",
        "classifier": first["classifier"],
        "classifier_revision": first["revision"],
        "rule": "top1",
        "predicted": first["predicted"],
        "top3": first["top3"],
        "probabilities": first["probabilities"],
        "answers": answers,
        "kept_because": f"top1: taken for {first['predicted']} by {first['classifier']}",
        "verified": None,
        "fingerprint": int(content_id("fingerprint", caption, draw)[:16], 16),
        "caption_number": number,
        "draw": draw,
    }
