"""Biases of the CLIP models themselves: KL of recall@k, and MaxSkew@k over neutral descriptions, in every view.

Also whether the embedding spaces of two models grow alike, and what is checked before a run starts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from c2b_ray.audits.clip_bias.config import BAG_OF_WORDS, ClipBiasConfig
from c2b_ray.audits.clip_bias.datasets import EmbeddedDataset, Encoder, Images, open_table, read_results
from c2b_ray.audits.clip_bias.steps.measure import (
    PRETRAINING,
    Key,
    MeasuredModels,
    Skew,
    Vectors,
    measure_disparity,
    measure_skew,
    recalled,
    similarities,
)
from c2b_ray.audits.kit.backend import check_via
from c2b_ray.audits.kit.models import check_specs
from c2b_ray.errors import ConfigError, SpecError
from c2b_ray.models import catalog
from c2b_ray.stats import Floats
from c2b_ray.stats.disparity import Chance
from c2b_ray.stats.distances import space_similarity
from c2b_ray.steps.labels import one_form
from c2b_ray.tables.clip_bias import CONVERGENCE


def chance_of(config: ClipBiasConfig) -> Chance:
    return Chance(config.chance.permutations, config.chance.resamples, config.seed, 1 - config.alpha)


def measure_pretraining(
    measurements: MeasuredModels, data: EmbeddedDataset, config: ClipBiasConfig, encoders: Mapping[str, Encoder]
) -> dict[str, float]:
    """Adds the dataset's rows; returns each model's mean recall over all images, empty where there are no captions."""
    hits, ranks = _scores(data, config, encoders)
    chance = chance_of(config)
    skew = Skew(config.skew_k, config.skew_share, config.skew_rule)
    for view in data.images.views:
        for attribute in data.images.attributes:
            where = (data.images.name, attribute.name, view.view, view.group)
            if hits:
                key = _key(f"kl_recall@{config.recall_k}", *where)
                measure_disparity(measurements, key, hits, (attribute, view), chance, data.images.copies)
            if ranks:
                key = _key(f"max_skew@{config.skew_k}", *where)
                measure_skew(measurements, key, ranks, (attribute, view), (skew, chance), data.images.copies)
    return {model: float(totals.sum() / max(counts.sum(), 1)) for model, (totals, counts) in hits.items()}


def _key(metric: str, dataset: str, attribute: str, view: str, group: str) -> Key:
    return Key(dataset, metric, attribute, view, group, PRETRAINING)


def _scores(
    data: EmbeddedDataset, config: ClipBiasConfig, encoders: Mapping[str, Encoder]
) -> tuple[dict[str, tuple[Floats, Floats]], dict[str, Vectors]]:
    """Returns by model: totals and counts of recalled captions, and similarities of the descriptions.

    A model's embeddings are in memory only while these are computed.
    """
    gallery, descriptions = data.images.gallery, data.images.config.texts
    hits: dict[str, tuple[Floats, Floats]] = {}
    ranks: dict[str, Vectors] = {}
    for model, encoder in encoders.items():
        vectors = data.vectors(encoder)
        if gallery is not None and gallery.texts:
            texts = data.texts(encoder, list(gallery.texts))
            hits[model] = recalled(vectors, texts, gallery, config.recall_k, config.hit)
        if descriptions:
            ranks[model] = np.ascontiguousarray(similarities(vectors, data.texts(encoder, descriptions)))
    return hits, ranks


# Measures whether embedding spaces grow alike: the similarity of every two models' spaces, before and after
# training.


BEFORE, AFTER = "before", "after"
Space = dict[str, Floats]


def convergence_table(
    measurements: MeasuredModels,
    config: ClipBiasConfig,
    data: Mapping[str, EmbeddedDataset],
    encoders: Mapping[str, Encoder],
) -> pa.Table:
    """Returns the similarities of the models that have both spaces, on the images that are in all of them."""
    if config.spaces is None:
        return CONVERGENCE.empty_table()
    dataset, images = data[config.spaces.dataset], data[config.spaces.dataset].images
    spaces_after = {model: _read(path, f"spaces.after.{model}", images) for model, path in config.spaces.after.items()}
    models = list(spaces_after)
    if config.spaces.before is None:
        spaces_before = {
            model: dict(zip(images.keys, dataset.vectors(encoders[model]).astype(np.float64), strict=True))
            for model in models
        }
    else:
        if missing := [model for model in models if model not in config.spaces.before]:
            raise ConfigError(
                "spaces.before", f"{missing[0]!r} is missing; name the models of `after`, or leave it out"
            )
        spaces_before = {
            model: _read(config.spaces.before[model], f"spaces.before.{model}", images) for model in models
        }
    common = set.intersection(*(set(space) for stage in (spaces_before, spaces_after) for space in stage.values()))
    shared_keys = [key for key in images.keys if key in common]
    if len(shared_keys) < 2:
        raise ConfigError("spaces", f"the spaces have {len(shared_keys)} image(s) in common: nothing compares them")
    if left_out := len(images.keys) - len(shared_keys):
        measurements.notes.append(
            f"spaces: {left_out:,} of {len(images.keys):,} images are left out, as a space lacks them"
        )
    return pa.Table.from_pylist(
        [
            row
            for stage, spaces in ((BEFORE, spaces_before), (AFTER, spaces_after))
            for row in _rows(stage, spaces, shared_keys, 1 - config.alpha)
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
    known_keys, result = set(images.table.keys), {}
    width = 0
    for key, values in zip(table["image"].to_pylist(), table["embedding"].to_pylist(), strict=True):
        if key not in known_keys:
            raise ConfigError(field, f"{images.table.location} has no image {key!r}")
        vector = np.asarray(values, np.float64)
        width = width or vector.size
        if vector.ndim != 1 or vector.size != width or not np.isfinite(vector).all() or not vector.any():
            raise ConfigError(field, f"{path}: the embedding of {key!r} is no list of {width} numbers with a direction")
        result[key] = vector
    return result


# Checks a run before anything starts: that its models, tables and columns exist and fit together.


def checked(config: ClipBiasConfig, via: str) -> ClipBiasConfig:
    """Checks what can be checked before the run starts, and returns the config."""
    check_via(via)
    check_specs(config)
    for name, dataset in config.datasets.items():
        table = open_table(name, dataset)
        for attribute in dataset.attributes:
            values = dict.fromkeys(value for value in table.values(attribute) if value is not None)
            one_form(values, f"datasets.{name}.attributes", f"column {attribute!r} of {table.location}")
        if config.groups.column is not None:
            table.check_column(config.groups.column, "groups.column")
        if table.captions is None and not dataset.texts:
            raise ConfigError(
                f"datasets.{name}", f"{dataset.table} has no captions and `texts` is empty: there is nothing to measure"
            )
    _check_guesser(config.leakage.guesser)
    return config


def images_in(config: ClipBiasConfig) -> int:
    """Returns how many images are embedded: those of all datasets, by every model."""
    return sum(len(open_table(name, dataset)) for name, dataset in config.datasets.items()) * len(config.models)


def _check_guesser(spec: str) -> None:
    if spec == BAG_OF_WORDS:
        return
    try:
        scheme = catalog.parse(spec).scheme
    except SpecError as error:
        raise ConfigError("leakage.guesser", f"{error}; or {BAG_OF_WORDS}") from error
    if scheme != "bert":
        raise ConfigError("leakage.guesser", f"{spec}: expected {BAG_OF_WORDS}, bert:org/name or bert:local-dir:PATH")
