"""Scores how well captions fit images: by a captioner that scores captions, else by an encoder's similarity.

It knows roles, and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from c2b_ray.roles import Floats, Pixels, TextImageEncoder


@dataclass(frozen=True)
class Similarity:
    """Implements `roles.CaptionScorer`: the cosine of an encoder's embeddings of image and text, in [−1, 1]."""

    encoder: TextImageEncoder

    def caption_scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        return self.encoder.encode_images(images) @ self.encoder.encode_texts(texts).T
