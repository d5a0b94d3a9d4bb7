"""The classifiers' deployment: each replica holds several, and a request names its classifier by spec.

It knows the role `Classifier` and Serve's multiplexing; `deployments/` says where it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from ray import serve

from c2b_ray.config.placement import UNSAID, Computing
from c2b_ray.errors import ServiceError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.weight_bytes import weight_bytes
from c2b_ray.roles import Blocks, Classifier, FileClassifier, Floats, Pixels, ShapedClassifier
from c2b_ray.serving.answers import AnswerCache, LoadedModels, ModelLimits
from c2b_ray.serving.batching import (
    CachedSettings,
    ModelReplica,
    ModelThreads,
    RequestBatcher,
    can_be_probed,
    decoders_here,
    load,
    take_gpus,
)
from c2b_ray.serving.pictures import (
    Decoders,
    Packed,
    Rows,
    all_files,
    answer_packs,
    answer_prepared_packs,
    answered_files,
    weight,
)

DEPLOYMENT = "Classifiers"

Item = tuple[Packed, Sequence[str]]


@dataclass(frozen=True)
class _Loaded:
    spec: str
    classifier: Classifier
    gather: RequestBatcher[Item, Rows]
    revision: str
    cached: bool


@serve.deployment(name=DEPLOYMENT)
class ClassifierServer(ModelReplica):
    """Serves any classifier of the catalogue; the request's multiplexed model id is the spec."""

    def __init__(
        self,
        models_per_replica: int = 4,
        threads: int = 1,
        models_gb: float | None = None,
        decoders: int | None = None,
        computing: Computing = UNSAID,
    ) -> None:
        take_gpus()
        self._computing = computing
        self._model_threads = ModelThreads(DEPLOYMENT, threads)
        self._decoders = Decoders(self._model_threads, decoders_here(decoders))
        self._settings: CachedSettings = CachedSettings()
        self._answers = AnswerCache()
        self._loaded_models = LoadedModels(
            self._model_threads, self._load, _check, _size, ModelLimits.of(models_per_replica, models_gb)
        )

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Applies new `CachedSettings`, also while it serves."""
        super().reconfigure(user_config)
        self._answers.limit(self._settings.answers_mb * 10**6)

    async def describe(self) -> dict[str, Any]:
        """Describes the classifier that the request names, which is loaded if necessary, and how it computes."""
        classifier = (await self._loaded_models.named()).classifier
        head = getattr(classifier, "head", "softmax")
        about = {"labels": classifier.labels, "revision": classifier.revision, "head": head}
        about |= {"facts": tuple(getattr(classifier, "facts", ()))}
        return {**about, "computing": self._computing}

    async def logits(self, images: Packed, keys: Sequence[str], owner: str = "") -> Rows:
        """Returns the logits of each image, from a batch shared with other requests for the same classifier, or from
        the answers kept since the `owner` last sent the image."""
        loaded = await self._loaded_models.named()

        async def ask(part: Packed, indices: Sequence[int]) -> Rows:
            rows = len(part)
            # Processes, and a GPU, decode one picture at a time.
            if not self._decoders.take(loaded.classifier, [part]) and not _takes_files(loaded.classifier, [part]):
                rows = await weight(self._model_threads, part, self._settings.max_batch_size)
            return await loaded.gather.ask((part, [keys[i] for i in indices]), rows)

        if not loaded.cached:
            return await ask(images, range(len(images)))
        return await self._answers.of((owner, loaded.spec, loaded.revision), self._model_threads, images, ask)

    async def statistics(self) -> dict[str, Any]:
        cache_statistics = {
            "models": self._loaded_models.names(),
            "bytes": self._loaded_models.bytes(),
            "answers": len(self._answers),
        }
        return {**await super().statistics(), **cache_statistics}

    async def check_health(self) -> None:
        """Raises where a classifier in memory does not answer a plain grey image with numbers."""
        await self._model_threads.check(self._test)

    def _test(self) -> None:
        for loaded in self._loaded_models.models():
            _refuse_damaged(loaded.spec, loaded.classifier)

    def _load(self, spec: str) -> _Loaded:
        classifier = load("classifier", self._computing, spec)
        _refuse_damaged(spec, classifier)
        # One batch more than the model takes calls: it is decoded while the others are computed.
        n_ahead = 2 if self._decoders.count else 1
        gather = RequestBatcher(
            partial(self._answer, classifier), lambda: self._settings, self._model_threads.threads + n_ahead
        )
        # A table answers by key, and what is elsewhere may change there.
        return _Loaded(spec, classifier, gather, classifier.revision, can_be_probed(spec))

    async def _answer(self, classifier: Classifier, items: list[Item]) -> list[Rows]:
        keys = [key for _, keys in items for key in keys]
        packs = [packed for packed, _ in items]
        if isinstance(classifier, ShapedClassifier) and self._decoders.take(classifier, packs):
            assert classifier.shape is not None
            prepared = partial(_checked_logits, classifier)
            width = len(classifier.labels)
            return await answer_prepared_packs(
                self._model_threads, self._decoders, packs, width, classifier.shape, prepared
            )

        if isinstance(classifier, FileClassifier) and all_files(packs):
            return await answered_files(self._model_threads, packs, partial(_logits_of_files, classifier, keys))

        def call(images: list[Pixels], indices: list[int]) -> Floats:
            return _logits(classifier, images, [keys[i] for i in indices])

        return await answer_packs(self._model_threads, packs, len(classifier.labels), call)

    def __del__(self) -> None:
        super().__del__()
        if hasattr(self, "_decoders"):  # not there if the model failed to load
            self._decoders.close()


def _check(spec: str) -> object:
    return catalog.loader("classifier", catalog.parse(spec))


def _size(loaded: _Loaded) -> int:
    return weight_bytes(loaded.classifier)


def _refuse_damaged(spec: str, classifier: Classifier) -> None:
    if not can_be_probed(spec):
        return
    grey = np.full((64, 64, 3), 128, np.uint8)
    if not np.isfinite(_logits(classifier, [grey], ["self-test"])).all():
        raise WeightsError(f"{spec} answers a plain grey image with NaN or infinity; its weights are damaged")


def _logits(classifier: Classifier, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
    return _of_shape(classifier.logits(images, keys), (len(keys), len(classifier.labels)))


def _checked_logits(classifier: ShapedClassifier, images: Blocks) -> Floats:
    logits = classifier.logits_of_shaped(images)
    return _of_shape(logits, (len(images), logits.shape[-1]))


def _logits_of_files(
    classifier: FileClassifier, keys: Sequence[str], files: list[bytes | None]
) -> tuple[Floats, list[str | None]]:
    logits, errors = classifier.logits_of_files(files, keys)
    return _of_shape(logits, (len(keys), logits.shape[-1])), errors


def _takes_files(classifier: Classifier, packs: Sequence[Packed]) -> bool:
    return isinstance(classifier, FileClassifier) and all_files(packs)


def _of_shape(logits: Floats, expected: tuple[int, int]) -> Floats:
    if logits.shape != expected:
        raise ServiceError(f"{DEPLOYMENT}: a classifier gave logits of shape {logits.shape}, not {expected}")
    return logits
