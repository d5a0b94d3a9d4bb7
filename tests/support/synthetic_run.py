"""A synthetic run: three classes, three attributes, two classifiers with known faults, pictures drawn by Pillow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from run_recipes import Recipe
from synthetic_pictures import draw_picture

from c2b_ray import tables
from c2b_ray.audits.c2b.run import C2BRun as Run
from c2b_ray.audits.c2b.run import open_c2b_run
from c2b_ray.audits.c2b.scoring.findings import agreement
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.report.words import article
from c2b_ray.steps.draw import GENERATE, RETRIEVE
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.observe import CLASS
from c2b_ray.storage import files


def make_run(path: Path, recipe: Recipe) -> Run:
    """Writes a finished run to `path`, its scores computed from its predictions."""
    captions, draws, images = _cells(recipe)
    predictions = _predictions(recipe, captions, draws, images)
    with open_c2b_run(path, "0123456789abcdef0123", _config(recipe)) as run:
        run.write("captions", captions)
        run.write("draws", draws)
        run.write("rejected", _rejected(recipe.rejected))
        for name, table in (("images", images), ("predictions", predictions)):
            files.make_directory(run.location(name))
            files.write_table(run.location(f"{name}/part-0.parquet"), table)
        verified, distinct = None, Distinct(images)
        if recipe.shown is not None:
            seen, known = _verifications(recipe, captions, draws), _calibration(recipe)
            verified = VerifiedImages(seen, known, distinct)
            files.make_directory(run.location("verifications"))
            files.write_table(run.location("verifications/part-0.parquet"), seen)
            run.write("calibration", known)

        def scores(drawn: pa.Table) -> tuple[pa.Table, pa.Table]:
            levels = Thresholds(recipe.tau, 0.05)
            return scored(captions, drawn, predictions, recipe.classifiers, levels, verified, distinct)

        of_cells, pooled = scores(draws)
        run.write("scores", of_cells)
        run.write("pooled", pooled)
        if recipe.generated is not None:
            retrieved, made = (
                scores(draws.filter(pc.equal(draws["source"], name)))[0] for name in (RETRIEVE, GENERATE)
            )
            run.write("agreement", agreement(retrieved, made, recipe.tau, 0.05))
        run.update(_manifest(recipe, images) | recipe.manifest)
    return run


def _config(recipe: Recipe) -> dict[str, Any]:
    return {
        "task": "Name the object in a photograph of a street or a shore",
        "classes": list(recipe.classes),
        "classifier": list(recipe.classifiers) or ["world:resnet-control"],
        "images": {"source": "retrieve", "index": "/srv/private/indexes/photographs"},
        "language_model": "world:tiny-llama",
        "attributes": None,
        "images_per_caption": recipe.images_per_cell or 20,
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
        }
        | ({} if recipe.shown is None else {"verifier": {"spec": "world:clip", "revision": "a1208ad0"}}),
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
    return pa.Table.from_pylist(rows, tables.REJECTED)


def _cells(recipe: Recipe) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Returns captions, draws and images; the first `bad_images` have no bytes."""
    captions, draws, images = [], [], []
    for caption in _captions(recipe):
        captions.append(caption)
        target, value = caption["target_class"], caption["bias_class"]
        number = recipe.sizes.get((target, value), recipe.images_per_cell)
        first = RETRIEVE if recipe.retrieved else "labelled"
        places = [(rank, name) for name in (first, *_second(recipe)) for rank in range(number)]
        for rank, source in places:
            image_id = tables.content_id(caption["caption_id"], rank, *([] if source == first else [source]))
            bad = len(images) < recipe.bad_images
            data = draw_picture(target, value, rank % 16) if recipe.pictures and not bad else None
            error = f"photos/{rank}.jpg: damaged or truncated: {rank} bytes missing" if bad else None
            # With a verifier, the last two images of a cell with more than three are one picture.
            picture = random.Random(len(images) - (3 <= rank == number - 1))
            mark = None if recipe.shown is None or bad else picture.randbytes(8 + 8 * 8 * 3)
            row = {"image_id": image_id, "key": f"photos/{rank}.jpg", "bytes": data, "fingerprint": mark}
            images.append(row | {"error": error})
            similarity = 0.4 - rank / 1000 if source == RETRIEVE else None
            place = {"rank": rank, "similarity": similarity, "source": source}
            draw = {"caption_id": caption["caption_id"], "image_id": image_id, **place}
            draws.append(draw)
    return (
        pa.Table.from_pylist(captions, tables.CAPTIONS),
        pa.Table.from_pylist(draws, tables.DRAWS),
        pa.Table.from_pylist(images, tables.IMAGES),
    )


def _captions(recipe: Recipe) -> Iterator[dict[str, Any]]:
    for target in recipe.classes:
        for attribute, values in recipe.attributes.items():
            for value in values:
                yield {
                    "caption_id": tables.content_id("caption", target, attribute, value),
                    "proposal_id": tables.content_id(target, attribute),
                    "kind": "attribute",
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
            row["prediction_id"] = tables.content_id(draw["image_id"], classifier)
            rows.append(row if error else row | _answer(recipe, classifier, cell[draw["caption_id"]], draw))
    return pa.Table.from_pylist(rows, tables.PREDICTIONS)


def _answer(recipe: Recipe, classifier: str, caption: dict[str, Any], draw: dict[str, Any]) -> dict[str, Any]:
    target, value, rank = caption["target_class"], caption["bias_class"], draw["rank"]
    share = recipe.accuracy.get((classifier, target, value), 0.95)
    if draw["source"] == GENERATE:
        share = (recipe.generated or {}).get((classifier, target, value), share)
    is_right = _among(rank, share, recipe.sizes.get((target, value), recipe.images_per_cell))
    others = [name for name in recipe.classes if name != target] or ["something else"]
    predicted = target if is_right else others[rank % len(others)]
    probability = 0.5 + rank * 7 % 50 / 100
    return {
        "label": predicted,
        "label_probability": probability,
        "predicted_class": predicted,
        "class_probability": probability,
    }


def _among(rank: int, share: float, number: int) -> bool:
    """Tells whether the image of this rank belongs to a share of the cell's images that is spread evenly over ranks."""
    chosen = round(share * number)
    return (rank + 1) * chosen // number > rank * chosen // number


def _second(recipe: Recipe) -> tuple[str, ...]:
    return () if recipe.generated is None else (GENERATE,)


def _verifications(recipe: Recipe, captions: pa.Table, draws: pa.Table) -> pa.Table:
    """Returns the verifier's answers about every image."""
    cell = {row["caption_id"]: row for row in captions.to_pylist()}
    rows = []
    for draw in draws.to_pylist():
        target, attribute, value = (
            cell[draw["caption_id"]][key] for key in ("target_class", "attribute", "bias_class")
        )
        images, rank = recipe.sizes.get((target, value), recipe.images_per_cell), draw["rank"]
        values = recipe.attributes[attribute]
        following = values[(values.index(value) + 1) % len(values)]
        is_shown = _among(rank, (recipe.shown or {}).get((target, value), 1.0), images)
        rows.append(
            {
                "verification_id": tables.content_id("verify", draw["image_id"], target),
                "image_id": draw["image_id"],
                "target_class": target,
                "revision": "a1208ad0",
                "class_shown": target,
                "attributes": [attribute],
                "values": [value if is_shown else following],
                "certainties": [0.9],
            }
        )
    return pa.Table.from_pylist(rows, tables.VERIFICATIONS)


def _calibration(recipe: Recipe) -> pa.Table:
    asked = {CLASS: recipe.classes} | {name: recipe.attributes[name] for name in recipe.calibrated}
    rows = [
        {"attribute": name, "value": value, "answer": answer, "source": "table"}
        | {"images": 90.0 if value == answer else 10.0 / (len(values) - 1)}
        for name, values in asked.items()
        if recipe.calibrated
        for value in values
        for answer in values
    ]
    return pa.Table.from_pylist(rows, tables.CALIBRATION)
