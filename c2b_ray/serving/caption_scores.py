"""Scores captions through Serve: a handle that is a `CaptionScorer` where the model behind it is one.

It knows handles; the model is the deployment's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from c2b_ray.models.text.captioned import scores_among_usable
from c2b_ray.roles import Floats, Pixels
from c2b_ray.serving.handles import ServedCaptioner
from c2b_ray.serving.payload import pack, spans


class ServedCaptionScorer(ServedCaptioner):
    """The captioner `spec`, in the app of that name, whose model scores captions."""

    def caption_scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        """Returns the model's scores.

        A request holds as many images as fill the app's rows, each with all texts, and at least one image.
        """
        return scores_among_usable(images, texts, lambda usable: self._scores(usable, texts))

    def _scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        rows = self.rows(len(images) * len(texts))
        parts = spans([image.nbytes for image in images], max(1, rows // len(texts)))
        calls = [(self.spec, pack(images[part]), list(texts)) for part in parts]
        return np.concatenate([scores for scores, _ in self.channel.call_many("caption_scores", calls)])


def scoring(captioner: ServedCaptioner) -> ServedCaptioner:
    """Returns a handle of the same model that also scores captions, if the model does; otherwise the handle itself."""
    described = captioner.channel.call("describe", captioner.spec)
    if not described.get("scores"):
        return captioner
    return ServedCaptionScorer(captioner.spec, captioner.channel, chunk=captioner.chunk)
