"""Measures the world's open_clip model on unseen scenes: zero-shot classification and retrieval by short texts.

Knows open_clip's loader and what every text means; does not know how the model was trained.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray

from c2b_ray.world.queries import FACTORS, Codes, Query, alternatives, matches, query_codes, scene_codes, wording
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, sample
from c2b_ray.world.training.classifiers import pixels
from c2b_ray.world.truth import render_all

Floats = NDArray[np.float32]
_WORDINGS = 12  # zero-shot classifiers of each factor, each worded differently
_CHUNK = 1000


class _Encoder:
    """The two towers, as open_clip loads them."""

    def __init__(self, path: Path) -> None:
        self._model: Any = open_clip.create_model(f"local-dir:{path}").eval()
        self._tokenize: Any = open_clip.get_tokenizer(f"local-dir:{path}")

    def images(self, images: NDArray[np.uint8]) -> Floats:
        with torch.no_grad():
            result: Floats = self._model.encode_image(pixels(images), normalize=True).numpy()
        return result

    def texts(self, texts: list[str]) -> Floats:
        with torch.no_grad():
            result: Floats = self._model.encode_text(self._tokenize(texts), normalize=True).numpy()
        return result


def evaluate(path: Path, seed: int, n: int, top: int = 100) -> dict[str, Any]:
    """Measures the open_clip directory `path` on n scenes drawn from `seed` (1000 or above: unseen in training).

    `factors`: zero-shot accuracy of the class and of every attribute, mean and lowest over wordings. `precision`: over
    all texts that name a class and one value, the share of the `top` nearest pictures of which the text is true.
    """
    encoder = _Encoder(path)
    scenes = sample(n, seed)
    parts = [encoder.images(render_all(scenes[start : start + _CHUNK])) for start in range(0, n, _CHUNK)]
    images, codes = np.concatenate(parts), scene_codes(scenes)
    random = Random(seed)  # noqa: S311 (no secret)
    factors = {name: _zero_shot(encoder, name, images, codes, random) for name in FACTORS}
    queries = [
        Query(wording(target, {name: value}, random), {"target_class": target, name: value})
        for target in CLASSES
        for name, values in ATTRIBUTES.items()
        for value in values
    ]
    precision = precision_at(encoder.texts([query.text for query in queries]), queries, images, codes, top)
    for name in ATTRIBUTES:
        rows = [k for k, query in enumerate(queries) if name in query.mentions]
        factors[name]["precision"] = float(precision[rows].mean())
    lowest = int(precision.argmin())
    return {
        "scenes": n,
        "seed": seed,
        "top": top,
        "factors": factors,
        "precision": float(precision.mean()),
        "precision_lowest": float(precision[lowest]),
        "lowest_query": queries[lowest].text,
    }


def precision_at(texts: Floats, queries: list[Query], images: Floats, codes: Codes, top: int) -> NDArray[np.float64]:
    """Computes for each query the share of its `top` nearest pictures of which it is true."""
    truth = matches(query_codes(queries), codes)
    nearest = np.argsort(-(texts @ images.T), axis=1)[:, :top]
    return np.asarray(np.take_along_axis(truth, nearest, axis=1).mean(axis=1))


def _zero_shot(encoder: _Encoder, factor: str, images: Floats, codes: Codes, random: Random) -> dict[str, float]:
    truth = codes[:, list(FACTORS).index(factor)]
    result = [
        float(((images @ encoder.texts(alternatives(factor, random)).T).argmax(axis=1) == truth).mean())
        for _ in range(_WORDINGS)
    ]
    return {"accuracy": float(np.mean(result)), "accuracy_lowest": min(result)}
