"""Measures an image generator: the share of its pictures that show what their prompts say, by factor.

Knows the ImageGenerator and Classifier roles, prompts of known meaning and a judge; does not know how these were
trained.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL
from numpy.typing import NDArray

from c2b_ray.roles import Classifier, GenerationRequest, ImageGenerator
from c2b_ray.world.queries import FACTORS, Codes, Query, long_query, query_codes, scene_codes, short_query, wording
from c2b_ray.world.scenes import CLASSES, sample
from c2b_ray.world.training import autoencoder
from c2b_ray.world.training.judge import Judge
from c2b_ray.world.truth import render_all


@dataclass(frozen=True)
class Jury:
    """`classifier` names the class of a picture, `judge` its attribute values; both learned from renders alone."""

    classifier: Classifier
    judge: Judge

    def codes(self, images: NDArray[np.uint8]) -> Codes:
        """Returns the values that the jury sees in each picture, in the format of `scene_codes`."""
        codes = self.judge.codes(images)
        logits = self.classifier.logits(list(images), [str(row) for row in range(len(images))])
        order = np.array([CLASSES.index(label) for label in self.classifier.labels])
        codes[:, 0] = order[logits.argmax(axis=1)]
        return codes


def prompts(n: int, seed: int) -> list[Query]:
    """Writes n prompts that name a class: a third are captions, a third search texts, a third name the class and one
    value."""
    random = Random(seed)  # noqa: S311 (no secret)
    result = []
    for row, scene in enumerate(sample(n, seed)):
        if row % 3 == 0:
            result.append(long_query(scene, random))
            continue
        query = short_query(scene, random)
        if row % 3 == 1 and "target_class" in query.mentions:
            result.append(query)
        else:
            name = random.choice(list(FACTORS)[1:])
            values = {name: scene.attribute(name)}
            result.append(
                Query(wording(scene.target_class, values, random), {"target_class": scene.target_class, **values})
            )
    return result


def evaluate(generator: ImageGenerator, jury: Jury, n: int, seed: int) -> dict[str, Any]:
    """Returns `factors` (the share of pictures that show the prompt's value, and how many prompts name one), errors and
    speed.

    `ceiling`: the jury's accuracy on as many renders of the same scenes; no generator can measure higher.
    """
    queries = prompts(n, seed)
    started = time.perf_counter()
    images = generator.generate([GenerationRequest(query.text, seed + row) for row, query in enumerate(queries)])
    seconds = time.perf_counter() - started
    rows = [row for row, image in enumerate(images) if image.pixels is not None]
    pictures = [image.pixels for image in images if image.pixels is not None]
    wanted = query_codes([queries[row] for row in rows])
    seen = jury.codes(np.stack(pictures)) if pictures else np.zeros_like(wanted)
    scenes = sample(n, seed)
    shown = jury.codes(render_all(scenes)) == scene_codes(scenes)
    factors = {}
    for column, name in enumerate(FACTORS):
        named = wanted[:, column] >= 0
        share = float((seen[named, column] == wanted[named, column]).mean()) if named.any() else float("nan")
        factors[name] = {"share": share, "prompts": int(named.sum()), "ceiling": float(shown[:, column].mean())}
    return {
        "prompts": n,
        "seed": seed,
        "errors": n - len(rows),
        "images_per_second": n / seconds,
        "factors": factors,
    }


def reconstruction(vae: Path, jury: Jury, n: int, seed: int) -> dict[str, Any]:
    """Measures the jury's accuracy on n scenes after the autoencoder and before it, and the mean error of pixels."""
    model: Any = AutoencoderKL.from_pretrained(vae, torch_dtype=torch.float32).eval()
    scenes = sample(n, seed)
    images, truth = render_all(scenes), scene_codes(scenes)
    parts = []
    for start in range(0, n, 100):
        mean, _ = autoencoder.encode(model, images[start : start + 100])
        parts.append(autoencoder.decode(model, mean))
    result = np.concatenate(parts)
    after, before = jury.codes(result) == truth, jury.codes(images) == truth
    factors = {
        name: {"share": float(after[:, column].mean()), "ceiling": float(before[:, column].mean())}
        for column, name in enumerate(FACTORS)
    }
    error = float(np.abs(result.astype(np.int16) - images).mean())
    return {"scenes": n, "seed": seed, "mean_error_levels": error, "factors": factors}
