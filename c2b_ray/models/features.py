"""Networks that return features: a classifier's penultimate layer, an encoder's embeddings, FID's Inception.

    timm:…, torchvision:…, world:resnet-…     penultimate layer     open_clip:…, world:clip     embedding
    inception:PATH.safetensors                FID's own features

Knows the catalogue and modules' last layers; does not know what features are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from c2b_ray.errors import InputError, SpecError
from c2b_ray.models import catalog, devices
from c2b_ray.roles import Floats, Pixels, TextImageEncoder
from c2b_ray.tables import content_id

if TYPE_CHECKING:
    from c2b_ray.models.fid_inception import FidInception

INCEPTION = "inception"


def load(text: str) -> Penultimate | Embedding | FidInception:
    """Loads the feature network of a spec. Raises SpecError where the spec names no model with features."""
    spec = catalog.parse(text)
    if spec.scheme == INCEPTION:
        from c2b_ray.models import fid_inception

        return fid_inception.load(spec)
    try:
        return Embedding(text, catalog.encoder(text))
    except InputError as no_encoder:
        try:
            with devices.exactly():
                classifier = catalog.classifier(text)
        except InputError as error:
            raise SpecError(f"{text}: is neither an encoder ({no_encoder}) nor a classifier ({error})") from error
    features = getattr(classifier, "features", None)
    if features is None:
        raise SpecError(
            f"{text}: its layers cannot be seen from here; name a timm: or torchvision: classifier, an encoder such as "
            "open_clip:ViT-B-32/laion2b_s34b_b79k, or inception:PATH.safetensors"
        )
    return Penultimate(text, classifier.revision, features)


class Penultimate:
    """The input of a classifier's last layer."""

    def __init__(self, spec: str, revision: str, features: Callable[[Sequence[Pixels]], Floats]) -> None:
        self.name = f"the layer before the last of {spec}"
        self.revision = content_id("penultimate", revision)
        self._features = features

    def features(self, images: Sequence[Pixels]) -> Floats:
        return self._features(images)


class Embedding:
    """An encoder's embeddings, of length 1."""

    def __init__(self, spec: str, encoder: TextImageEncoder) -> None:
        self.name, self.revision = f"the embedding of {spec}", encoder.revision
        self._encoder = encoder

    def features(self, images: Sequence[Pixels]) -> Floats:
        if not images:
            return np.zeros((0, self._encoder.dimension), np.float32)
        return self._encoder.encode_images(images)
