"""Biases of the CLIP models themselves: KL of recall@k, and MaxSkew@k over neutral descriptions, in every view."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from c2b_ray.audits.clip_bias.embedding import Encoder
from c2b_ray.audits.clip_bias.images import Opened
from c2b_ray.config.clip_bias import ClipBiasConfig
from c2b_ray.metrics import Floats
from c2b_ray.metrics.disparity import Chance
from c2b_ray.steps.clip_bias.measure import Skew, measure_disparity, measure_skew
from c2b_ray.steps.clip_bias.retrieval import Vectors, recalled, similarities
from c2b_ray.steps.clip_bias.rows import PRETRAINING, Key, Measured


def chance_of(config: ClipBiasConfig) -> Chance:
    return Chance(config.chance.permutations, config.chance.resamples, config.seed, 1 - config.alpha)


def measure_pretraining(
    measured: Measured, data: Opened, config: ClipBiasConfig, encoders: Mapping[str, Encoder]
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
                measure_disparity(measured, key, hits, (attribute, view), chance, data.images.copies)
            if ranks:
                key = _key(f"max_skew@{config.skew_k}", *where)
                measure_skew(measured, key, ranks, (attribute, view), (skew, chance), data.images.copies)
    return {model: float(totals.sum() / max(counts.sum(), 1)) for model, (totals, counts) in hits.items()}


def _key(metric: str, dataset: str, attribute: str, view: str, group: str) -> Key:
    return Key(dataset, metric, attribute, view, group, PRETRAINING)


def _scores(
    data: Opened, config: ClipBiasConfig, encoders: Mapping[str, Encoder]
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
