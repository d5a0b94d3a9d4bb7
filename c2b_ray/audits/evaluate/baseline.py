"""B2T (Bias-to-Text, Kim et al. 2024) on the ground truth's images: captions of mistakes → keywords → CLIP scores.

Unlike Classifier-to-Bias, it uses which images were answered wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits.evaluate.config import B2T, KeywordBaseline
from c2b_ray.audits.evaluate.looking import Images, describe_images, embed_images, look_id
from c2b_ray.audits.evaluate.steps.detected import Keywords, keyword_biases
from c2b_ray.audits.evaluate.steps.truth import TARGET, once
from c2b_ray.audits.evaluate.truth import GroundTruth
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.images import of_revision
from c2b_ray.models.keywords import keywords, sentence
from c2b_ray.report.words import source_of
from c2b_ray.storage.parts import read_stage

Floats = NDArray[np.float32]
_TEXTS = 256


@dataclass(frozen=True)
class GroundTruthReadings:
    """The ground truth's images, looked at by models. The results are below `out`, and no image is looked at twice."""

    truth: GroundTruth
    models: Backend
    out: str
    steps: Steps

    @property
    def _images(self) -> Images:
        run = self.truth.run
        return Images(run.location("images"), source_of(run.config))

    def vectors(self, encoder: str) -> Floats:
        """Returns a unit vector per row of the ground truth, NaN where there is none."""
        known = self.models.describe("encoder", encoder)
        rows = self.truth.wanted(None, 0)
        wanted = self._wanted(rows, "embed", known.revision)
        folder = f"{self.out}/embeddings"
        with self.steps.step("embed the ground truth") as on:
            factory = partial(of_revision, self.models.encoder(encoder), known.revision, encoder)
            embed_images(self.models.runner, self._images, wanted, factory, folder, on)
        seen = read_stage(folder).to_pylist()
        of_image = {row["look_id"]: row["vector"] for row in seen}
        result = np.full((self.truth.labels.num_rows, known.dimension), np.nan, np.float32)
        for row, look in zip(rows.tolist(), wanted["look_id"].to_pylist(), strict=True):
            if of_image.get(look) is not None:
                result[row] = of_image[look]
        return result

    def captions(self, captioner: str) -> dict[int, str]:
        """Returns row → the captioner's caption, for the images that any classifier answered wrong."""
        wrong = [np.flatnonzero(held & ~ok) for ok, held in self.truth.right.values()]
        rows = np.intersect1d(np.concatenate(wrong), self.truth.wanted(None, 0))
        revision = self.models.describe("captioner", captioner).revision
        wanted, folder = self._wanted(rows, "describe", revision), f"{self.out}/captions"
        with self.steps.step("describe mistakes") as on:
            factory = partial(of_revision, self.models.captioner(captioner), revision, captioner)
            describe_images(self.models.runner, self._images, wanted, factory, folder, on)
        said = {row["look_id"]: row["caption"] for row in read_stage(folder).to_pylist()}
        looks = zip(rows.tolist(), wanted["look_id"].to_pylist(), strict=True)
        return {row: said[look] for row, look in looks if said.get(look)}

    def _wanted(self, rows: NDArray[np.int64], what: str, revision: str) -> pa.Table:
        names = {row: image for image, row in self.truth.row_of.items()}
        labels = self.truth.labels[TARGET].to_pylist()
        images = [names[row] for row in rows.tolist()]
        targets = [labels[row] for row in rows.tolist()]
        looks = [look_id(image, label, what, revision) for image, label in zip(images, targets, strict=True)]
        text = pa.string()
        return pa.table(
            {"image_id": pa.array(images, text), "label": pa.array(targets, text), "look_id": pa.array(looks, text)}
        )


def keyword_baseline(config: KeywordBaseline, looking: GroundTruthReadings, alpha: float) -> pa.Table:
    """Returns the biases of B2T, of `tables.evaluate.BIASES`."""
    captions, vectors = looking.captions(config.captioner), looking.vectors(config.encoder)
    with looking.steps.step("keywords of mistakes"):
        mistakes = list(_keywords(config, looking.truth, captions))
        texts = sorted({keyword for _, _, words, _, _ in mistakes for keyword in words})
        encoder = looking.models.text_encoder(config.encoder)
        said = [config.template.replace("{keyword}", text) for text in texts]
        rows = [encoder.encode_texts(said[start : start + _TEXTS]) for start in range(0, len(said), _TEXTS)]
        number_of = {text: at for at, text in enumerate(texts)}
        embedded = np.concatenate(rows) if rows else np.zeros((0, vectors.shape[1]), np.float32)
        groups: list[Keywords] = []
        seen = np.asarray(np.isfinite(vectors).all(axis=1), bool)
        for classifier, target, words, wrong, right in mistakes:
            wrong, right = (once(rows[seen[rows]], looking.truth.pictures) for rows in (wrong, right))
            of_words = embedded[[number_of[word] for word in words]].T
            groups.append(Keywords(classifier, target, words, vectors[wrong] @ of_words, vectors[right] @ of_words))
        return keyword_biases(B2T, groups, config.tau, alpha)


Mistakes = tuple[str, str, tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]


def _keywords(config: KeywordBaseline, truth: GroundTruth, captions: dict[int, str]) -> Iterator[Mistakes]:
    """Yields classifier, class, keywords of its mistakes, and the rows that were answered wrong, and right; only where
    both exist."""
    targets = np.array(truth.labels[TARGET].to_pylist(), object)
    for classifier, (ok, held) in truth.right.items():
        for target in truth.classes:
            inside = (targets == target) & held
            wrong, right = np.flatnonzero(inside & ~ok), np.flatnonzero(inside & ok)
            text = " ".join(sentence(captions[row]) for row in wrong.tolist() if row in captions)
            words = tuple(dict.fromkeys(keywords(text, config.words, config.keywords)))
            if words and len(right):
                yield classifier, target, words, wrong, right
