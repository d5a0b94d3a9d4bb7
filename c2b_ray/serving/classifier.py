"""The classifiers' deployment: each replica holds several, and a request names its own by spec.

It knows the role `Classifier` and Serve's multiplexing; where it runs is in `deployments/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ray import serve

from c2b_ray.errors import ServiceError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.roles import Classifier, Floats, Pixels
from c2b_ray.serving.payload import PackedImages, unpack
from c2b_ray.serving.replica import Hands, Shelf, apply_settings, can_be_probed, take_gpus

DEPLOYMENT = "Classifiers"


@serve.deployment(name=DEPLOYMENT)
class ClassifierServer:
    """Serves any classifier of the catalogue; the request's multiplexed model id is the spec."""

    def __init__(self, models_per_replica: int = 4, threads: int = 1) -> None:
        take_gpus()
        self._hands = Hands(DEPLOYMENT, threads)
        self._shelf = Shelf(self._hands, _load, _check, models_per_replica)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Takes `BatchSettings`, also while it serves."""
        apply_settings(user_config, self._logits_together)

    async def describe(self) -> dict[str, Any]:
        """Of the classifier that the request names, loaded if need be."""
        classifier = await self._shelf.asked_for()
        return {"labels": classifier.labels, "revision": classifier.revision}

    async def logits(self, images: PackedImages, keys: Sequence[str]) -> Floats:
        """Logits of a whole batch."""
        classifier = await self._shelf.asked_for()
        return await self._hands.run_batch(_answer, len(keys), classifier, unpack(images), keys)

    async def logits_one(self, image: Pixels, key: str) -> Floats:
        """Logits of one image, (1, labels), computed together with whatever else waits for the same classifier."""
        return await self._logits_together((image, key))

    @serve.batch
    async def _logits_together(self, items: list[tuple[Pixels, str]]) -> list[Floats]:
        # Serve splits a batch by model id, so that one classifier answers all of it.
        classifier = await self._shelf.asked_for()
        images, keys = [image for image, _ in items], [key for _, key in items]
        found = await self._hands.run_batch(_answer, len(items), classifier, images, keys)
        return [row[None] for row in found]

    async def statistics(self) -> dict[str, Any]:
        return {**self._hands.statistics(), "models": self._shelf.names()}

    async def check_health(self) -> None:
        """Raises where the model thread is stuck. A damaged classifier is refused when it loads, and hurts no other."""
        await self._hands.check(_nothing)

    def __del__(self) -> None:
        self._hands.close()


def _check(spec: str) -> object:
    return catalog.loader("classifier", catalog.parse(spec))


def _load(spec: str) -> Classifier:
    classifier = catalog.classifier(spec)
    if can_be_probed(spec):
        grey = np.full((64, 64, 3), 128, np.uint8)
        if not np.isfinite(_answer(classifier, [grey], ["self-test"])).all():
            raise WeightsError(f"{spec} answers a plain grey image with NaN or infinity; its weights are damaged")
    return classifier


def _answer(classifier: Classifier, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
    found = classifier.logits(images, keys)
    expected = (len(keys), len(classifier.labels))
    if found.shape != expected:
        raise ServiceError(f"{DEPLOYMENT}: a classifier gave logits of shape {found.shape}, not {expected}")
    return found


def _nothing() -> None:
    """The thread answers: that is the test."""
