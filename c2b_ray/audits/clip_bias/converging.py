"""Measures whether embedding spaces grow alike: the similarity of every two models' spaces, before and after
training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from c2b_ray.audits.clip_bias.embedding import Encoder
from c2b_ray.audits.clip_bias.images import Images, Opened
from c2b_ray.config.clip_bias import ClipBiasConfig
from c2b_ray.errors import ConfigError
from c2b_ray.metrics import Floats
from c2b_ray.metrics.space_similarity import space_similarity
from c2b_ray.schemas.clip_bias import CONVERGENCE
from c2b_ray.steps.clip_bias.rows import Measured
from c2b_ray.store.captioned import read_results

BEFORE, AFTER = "before", "after"
Space = dict[str, Floats]


def convergence_table(
    measured: Measured, config: ClipBiasConfig, data: Mapping[str, Opened], encoders: Mapping[str, Encoder]
) -> pa.Table:
    """Returns the similarities of the models that have both spaces, on the images that are in all of them."""
    if config.spaces is None:
        return CONVERGENCE.empty_table()
    opened, images = data[config.spaces.dataset], data[config.spaces.dataset].images
    after = {model: _read(path, f"spaces.after.{model}", images) for model, path in config.spaces.after.items()}
    models = list(after)
    if config.spaces.before is None:
        before = {
            model: dict(zip(images.keys, opened.vectors(encoders[model]).astype(np.float64), strict=True))
            for model in models
        }
    else:
        if lacking := [model for model in models if model not in config.spaces.before]:
            raise ConfigError(
                "spaces.before", f"{lacking[0]!r} is missing; name the models of `after`, or leave it out"
            )
        before = {model: _read(config.spaces.before[model], f"spaces.before.{model}", images) for model in models}
    common = set.intersection(*(set(space) for stage in (before, after) for space in stage.values()))
    shared = [key for key in images.keys if key in common]
    if len(shared) < 2:
        raise ConfigError("spaces", f"the spaces have {len(shared)} image(s) in common: nothing compares them")
    if lost := len(images.keys) - len(shared):
        measured.notes.append(f"spaces: {lost:,} of {len(images.keys):,} images are left out, as a space lacks them")
    return pa.Table.from_pylist(
        [
            row
            for stage, spaces in ((BEFORE, before), (AFTER, after))
            for row in _rows(stage, spaces, shared, 1 - config.alpha)
        ],
        CONVERGENCE,
    )


def _rows(stage: str, spaces: Mapping[str, Space], keys: list[str], confidence: float) -> list[dict[str, object]]:
    vectors = [np.stack([space[key] for key in keys]) for space in spaces.values()]
    plain, centred = space_similarity(vectors, confidence), space_similarity(vectors, confidence, centred=True)
    names = list(spaces)
    return [
        {
            "stage": stage, "model_a": names[a], "model_b": names[b], "similarity": float(plain.value[a, b]),
            "low": float(plain.low[a, b]), "high": float(plain.high[a, b]), "centred": float(centred.value[a, b]),
            "n": len(keys),
        }
        for a in range(len(names))
        for b in range(a + 1, len(names))
    ]  # fmt: skip


def _read(path: str, field: str, images: Images) -> Space:
    """Returns embeddings by image. Raises ConfigError for images that the dataset does not have, or invalid vectors."""
    table = read_results(path, field, ("image", "embedding"))
    there, result = set(images.table.keys), {}
    width = 0
    for key, values in zip(table["image"].to_pylist(), table["embedding"].to_pylist(), strict=True):
        if key not in there:
            raise ConfigError(field, f"{images.table.location} has no image {key!r}")
        vector = np.asarray(values, np.float64)
        width = width or vector.size
        if vector.ndim != 1 or vector.size != width or not np.isfinite(vector).all() or not vector.any():
            raise ConfigError(field, f"{path}: the embedding of {key!r} is no list of {width} numbers with a direction")
        result[key] = vector
    return result
