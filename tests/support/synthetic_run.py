"""A synthetic run: three classes, three attributes, two classifiers with known faults, pictures drawn by Pillow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image, ImageDraw

from c2b_ray import schemas
from c2b_ray.report.words import article
from c2b_ray.steps.score import score
from c2b_ray.store import files
from c2b_ray.store.run import Run, open_run

ATTRIBUTES = {
    "weather": ("clear", "rain", "snow", "fog"),
    "lighting": ("day", "sunset", "night"),
    "size": ("small", "large"),
}
PLANTED, CONTROL = "world:resnet-planted-3", "world:resnet-control"


@dataclass
class Recipe:
    """What a synthetic run is made of. `accuracy` maps (classifier, class, value) to a share, 0.95 where absent."""

    classes: tuple[str, ...] = ("bus", "boat", "umbrella")
    attributes: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(ATTRIBUTES))
    classifiers: tuple[str, ...] = (PLANTED, CONTROL)
    images_per_cell: int = 12
    accuracy: dict[tuple[str, str, str], float] = field(default_factory=dict)
    sizes: dict[tuple[str, str], int] = field(default_factory=dict)  # (class, value) → images
    bad_images: int = 0
    all_errors: bool = False
    rejected: int = 0
    retrieved: bool = True
    pictures: bool = True
    manifest: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    tau: float = 0.1


def make_run(path: Path, recipe: Recipe) -> Run:
    """A finished run at `path`, its scores computed from its predictions."""
    captions, draws, images = _cells(recipe)
    predictions = _predictions(recipe, captions, draws, images)
    with open_run(path, "0123456789abcdef0123", _config(recipe)) as run:
        run.write("captions", captions)
        run.write("draws", draws)
        run.write("rejected", _rejected(recipe.rejected))
        for name, table in (("images", images), ("predictions", predictions)):
            files.make_directory(run.location(name))
            files.write_table(run.location(f"{name}/part-0.parquet"), table)
        run.write("scores", score(captions, draws, predictions, recipe.classifiers, recipe.tau, 0.05))
        run.update(_manifest(recipe, images) | recipe.manifest)
    return run


def _config(recipe: Recipe) -> dict[str, Any]:
    return {
        "task": "Name the object in a photograph of a street or a shore",
        "classes": list(recipe.classes),
        "classifier": list(recipe.classifiers),
        "images": {"source": "retrieve", "index": "/srv/private/indexes/photographs"},
        "language_model": "world:tiny-llama",
        "attributes": None,
        "images_per_caption": recipe.images_per_cell,
        "captions_per_cell": 1,
        "seed": 7,
        "tau": recipe.tau,
        "alpha": 0.05,
        "label_map": None,
    } | recipe.config


def _manifest(recipe: Recipe, images: pa.Table) -> dict[str, Any]:
    return {
        "status": "finished",
        "finished": "2026-11-20T17:11:00+00:00",
        "models": {
            "language_model": {"spec": "world:tiny-llama", "revision": "5d2c9a71"},
            "encoder": {"spec": "world:tiny-clip", "revision": "b01f7730"},
            "index": {"spec": "faiss:/srv/private/indexes/photographs", "revision": "77a0c4de"},
            "classifiers": [{"spec": spec, "revision": f"{i:08x}"} for i, spec in enumerate(recipe.classifiers)],
        },
        "versions": {"c2b_ray": "0.1.0", "ray": "2.60.0", "torch": "2.14.0"},
        "counts": {"captions": 27, "images": images.num_rows, "rejected": recipe.rejected},
        "seconds": {"propose attributes": 41.2, "write captions": 96.0, "retrieve": 3.4, "score": 0.2},
    }


def _rejected(number: int) -> pa.Table:
    reasons = ("not JSON: Expecting value: line 1 column {i}", "the caption does not name the class")
    rows = [
        {
            "step": ("propose", "caption")[i % 2],
            "about": "bus",
            "reply": f"Sure! Here are some attributes ({i}): weather, lighting and the angle of the camera",
            "reason": reasons[i % 2].format(i=i),
        }
        for i in range(number)
    ]
    return pa.Table.from_pylist(rows, schemas.REJECTED)


def _cells(recipe: Recipe) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Captions, draws and images; the first `bad_images` have no bytes."""
    captions, draws, images = [], [], []
    for caption in _captions(recipe):
        captions.append(caption)
        target, value = caption["target_class"], caption["bias_class"]
        for rank in range(recipe.sizes.get((target, value), recipe.images_per_cell)):
            image_id = schemas.content_id(caption["caption_id"], rank)
            bad = len(images) < recipe.bad_images
            data = draw_picture(target, value, rank % 16) if recipe.pictures and not bad else None
            error = f"photos/{rank}.jpg: damaged or truncated: {rank} bytes missing" if bad else None
            images.append({"image_id": image_id, "key": f"photos/{rank}.jpg", "bytes": data, "error": error})
            similarity = 0.4 - rank / 1000 if recipe.retrieved else None
            source = "retrieve" if recipe.retrieved else "labelled"
            place = {"rank": rank, "similarity": similarity, "source": source}
            draw = {"caption_id": caption["caption_id"], "image_id": image_id, **place}
            draws.append(draw)
    return (
        pa.Table.from_pylist(captions, schemas.CAPTIONS),
        pa.Table.from_pylist(draws, schemas.DRAWS),
        pa.Table.from_pylist(images, schemas.IMAGES),
    )


def _captions(recipe: Recipe) -> Iterator[dict[str, Any]]:
    for target in recipe.classes:
        for attribute, values in recipe.attributes.items():
            for value in values:
                yield {
                    "caption_id": schemas.content_id("caption", target, attribute, value),
                    "proposal_id": schemas.content_id(target, attribute),
                    "target_class": target,
                    "attribute": attribute,
                    "bias_class": value,
                    "number": 0,
                    "text": f"a photo of {article(target)}{target}, {attribute}: {value}",
                }


def _predictions(recipe: Recipe, captions: pa.Table, draws: pa.Table, images: pa.Table) -> pa.Table:
    cell = {row["caption_id"]: row for row in captions.to_pylist()}
    error_of = dict(zip(images["image_id"].to_pylist(), images["error"].to_pylist(), strict=True))
    rows = []
    for classifier in recipe.classifiers:
        for draw in draws.to_pylist():
            error = "the model gave no answer" if recipe.all_errors else error_of[draw["image_id"]]
            row = {"image_id": draw["image_id"], "classifier": classifier, "revision": "r1", "error": error}
            row["prediction_id"] = schemas.content_id(draw["image_id"], classifier)
            rows.append(row if error else row | _answer(recipe, classifier, cell[draw["caption_id"]], draw["rank"]))
    return pa.Table.from_pylist(rows, schemas.PREDICTIONS)


def _answer(recipe: Recipe, classifier: str, caption: dict[str, Any], rank: int) -> dict[str, Any]:
    target, value = caption["target_class"], caption["bias_class"]
    share = recipe.accuracy.get((classifier, target, value), 0.95)
    number = recipe.sizes.get((target, value), recipe.images_per_cell)
    right = round(share * number)
    # Spreads the right answers evenly over the ranks.
    is_right = (rank + 1) * right // number > rank * right // number
    others = [name for name in recipe.classes if name != target] or ["something else"]
    predicted = target if is_right else others[rank % len(others)]
    probability = 0.5 + rank * 7 % 50 / 100
    return {
        "label": predicted,
        "label_probability": probability,
        "predicted_class": predicted,
        "class_probability": probability,
    }


_SKIES = {"sunset": "#f2a65a", "night": "#1b2440", "fog": "#c9cdd0", "snow": "#c3d0da", "rain": "#9aa8b4"}
_GROUNDS = {"snow": "#eef1f4", "night": "#141a28", "fog": "#9aa09f"}
_COLOURS = ("#c0392b", "#2c6fb0", "#d8a11d", "#3d8b57", "#7d4a9c")
_pictures: dict[tuple[str, str, int], bytes] = {}


def draw_picture(target: str, value: str, number: int) -> bytes:
    """A JPEG of a simple scene, the same for the same arguments."""
    key = (target, value, number)
    if key not in _pictures:
        buffer = BytesIO()
        _scene(target, value, random.Random(repr(key))).save(buffer, "JPEG", quality=80)
        _pictures[key] = buffer.getvalue()
    return _pictures[key]


def _scene(target: str, value: str, chance: random.Random) -> Image.Image:
    image = Image.new("RGB", (160, 120), _SKIES.get(value, "#9cc4e4"))
    draw = ImageDraw.Draw(image)
    horizon = chance.randint(70, 84)
    draw.rectangle((0, horizon, 160, 120), fill=_GROUNDS.get(value, "#4f7f9f" if target == "boat" else "#7f9a6a"))
    width = {"small": 34, "large": 96}.get(value, chance.randint(56, 78))
    left, colour = chance.randint(4, 156 - width), chance.choice(_COLOURS)
    shape = {"bus": _bus, "boat": _boat}.get(target, _umbrella)
    shape(draw, left, horizon + 12 - width // 2, width, colour)
    _weather(draw, value, chance)
    return image


def _bus(draw: ImageDraw.ImageDraw, left: int, top: int, width: int, colour: str) -> None:
    height, pane = width // 2, width // 6
    draw.rounded_rectangle((left, top, left + width, top + height), height // 6, fill=colour)
    for i in range(4):
        x = left + pane // 2 + i * (pane + pane // 3)
        draw.rectangle((x, top + height // 6, x + pane, top + height // 2), fill="#dfe9f0")
    for x in (left + width // 5, left + 4 * width // 5):
        draw.ellipse((x - pane // 2, top + height - pane // 2, x + pane // 2, top + height + pane // 2), fill="#222")


def _boat(draw: ImageDraw.ImageDraw, left: int, top: int, width: int, colour: str) -> None:
    base, deck, mast = top + width // 2, top + width // 3, left + width // 2
    draw.polygon([(left, deck), (left + width, deck), (left + 4 * width // 5, base), (left + width // 5, base)], colour)
    draw.polygon([(mast, top - width // 6), (mast, deck - 3), (left + 9 * width // 10, deck - 3)], "#f5f2ea")


def _umbrella(draw: ImageDraw.ImageDraw, left: int, top: int, width: int, colour: str) -> None:
    draw.pieslice((left, top, left + width, top + width), 180, 360, fill=colour)
    draw.line((left + width // 2, top, left + width // 2, top + width - 4), fill="#333", width=3)


def _weather(draw: ImageDraw.ImageDraw, value: str, chance: random.Random) -> None:
    for _ in range({"snow": 70, "rain": 60, "night": 14}.get(value, 0)):
        x, y = chance.randint(0, 160), chance.randint(0, 120)
        if value == "rain":
            draw.line((x, y, x - 3, y + 9), fill="#d5dde4")
        elif value == "snow":
            draw.ellipse((x, y, x + 3, y + 3), fill="white")
        else:
            draw.point((x, y // 2), fill="white")


def showcase() -> Recipe:
    """A run with everything in it: strong and weak findings, clear, open and empty cells, errors, rejections."""
    accuracy = {
        (PLANTED, "bus", "snow"): 0.41,
        (PLANTED, "boat", "night"): 0.62,
        (PLANTED, "boat", "sunset"): 0.85,
        (PLANTED, "umbrella", "small"): 0.70,
        (PLANTED, "bus", "night"): 0.90,
        (PLANTED, "umbrella", "fog"): 0.82,
        (CONTROL, "umbrella", "rain"): 0.86,
        (CONTROL, "boat", "small"): 0.74,
        (CONTROL, "boat", "large"): 0.90,
    }
    sizes = {("umbrella", "fog"): 40, ("umbrella", "rain"): 40, ("umbrella", "clear"): 45, ("umbrella", "snow"): 0}
    return Recipe(images_per_cell=240, accuracy=accuracy, sizes=sizes, bad_images=5, rejected=7)
