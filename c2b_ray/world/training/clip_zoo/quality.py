"""Measures a zoo model on scenes that training never saw: zero-shot accuracy, and both biases of its skew.

Knows the encoder that users load, and the metrics that audits use; does not know how a model learned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from c2b_ray.models import open_clip_encoder
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import Floats, TextImageEncoder
from c2b_ray.stats.scores import kl_from_uniform
from c2b_ray.stats.skew import max_skew
from c2b_ray.world.captions import caption
from c2b_ray.world.clip_zoo_members import Skew, neutral_texts
from c2b_ray.world.scenes import CLASSES, Scene
from c2b_ray.world.table import TableOptions, scenes_of
from c2b_ray.world.truth import render_all

SCENES = 1500
_K = 5  # retrieved texts of an image
_SHARE = 0.1  # of the images, retrieved for a neutral text


def evaluate(directory: Path, skew: Skew, seed: int, n: int = SCENES) -> dict[str, Any]:
    """Measures the model in an open_clip directory on n scenes in groups of equal size.

    `zero_shot`: accuracy of the class. `recall`: R@5 of captions by group, and `recall_kl` of these from uniform.
    `max_skew`: the mean over neutral texts, at a tenth of the pictures.
    """
    encoder = open_clip_encoder.load(Spec(f"open_clip:local-dir:{directory}", "open_clip", f"local-dir:{directory}"))
    scenes = scenes_of(TableOptions(n, seed, skew.attribute, skew.values))
    images = encoder.encode_images(list(render_all(scenes)))
    groups = np.array([getattr(scene, skew.attribute) for scene in scenes])
    texts = encoder.encode_texts([caption(scene, seed + k) for k, scene in enumerate(scenes)])
    scores = images @ texts.T
    hits = (scores > np.diagonal(scores)[:, None]).sum(axis=1) < _K
    rates = {value: float(hits[groups == value].mean()) for value in skew.values}
    return {
        "scenes": n,
        "seed": seed,
        "zero_shot": zero_shot(encoder, images, scenes),
        "recall": rates,
        "recall_kl": kl_from_uniform(list(rates.values())),
        "max_skew": _max_skew(encoder.encode_texts(neutral_texts()), images, groups.tolist()),
    }


def zero_shot(encoder: TextImageEncoder, images: Floats, scenes: list[Scene]) -> float:
    texts = encoder.encode_texts([f"a photo of a {name}" for name in CLASSES])
    answers = (images @ texts.T).argmax(axis=1)
    return float(np.mean([CLASSES[k] == scene.target_class for k, scene in zip(answers, scenes, strict=True)]))


def _max_skew(texts: Floats, images: Floats, groups: list[str]) -> float:
    k = round(_SHARE * len(groups))
    orders = np.argsort(-(texts @ images.T), axis=1, kind="stable")
    return float(np.mean([max_skew([groups[row] for row in order], k) for order in orders]))
