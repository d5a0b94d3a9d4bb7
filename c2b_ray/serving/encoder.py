"""The text-image encoder's deployment: texts and images of all requests, gathered into batches.

It knows the role `TextImageEncoder` and Serve; which model it serves is an argument, and `deployments/` says where it
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from ray import serve

from c2b_ray.config.placement import UNSAID, Computing
from c2b_ray.errors import ServiceError
from c2b_ray.roles import Blocks, FileEncoder, Floats, Pixels, ShapedEncoder, TextImageEncoder
from c2b_ray.serving.answers import AnswerCache
from c2b_ray.serving.batching import (
    CachedSettings,
    ModelReplica,
    ModelThreads,
    RequestBatcher,
    can_be_probed,
    decoders_here,
    load,
    refuse_other_model,
    take_gpus,
)
from c2b_ray.serving.channel import carried_in_text
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

DEPLOYMENT = "Encoder"


@serve.deployment(name=DEPLOYMENT)
class EncoderServer(ModelReplica):
    """Serves one encoder; every call names the model that the caller expects."""

    def __init__(
        self, model: str, threads: int = 1, decoders: int | None = None, computing: Computing = UNSAID
    ) -> None:
        take_gpus()
        self._spec, self._computing = model, computing
        with carried_in_text():
            self._encoder: TextImageEncoder = load("encoder", computing, model)
        self._model_threads = ModelThreads(DEPLOYMENT, threads)
        self._decoders = Decoders(self._model_threads, decoders_here(decoders))
        n_ahead = 2 if self._decoders.count else 1
        self._settings: CachedSettings = CachedSettings()
        self._answers = AnswerCache()
        self._texts: RequestBatcher[Sequence[str], Floats] = RequestBatcher(
            self._encode_texts, lambda: self._settings, threads
        )
        # One batch more than the model takes calls: it is decoded while the others are computed.
        self._images: RequestBatcher[Packed, Rows] = RequestBatcher(
            self._encode_images, lambda: self._settings, threads + n_ahead
        )

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Applies new `CachedSettings`, also while it serves."""
        super().reconfigure(user_config)
        self._answers.limit(self._settings.answers_mb * 10**6)

    async def describe(self, model: str | None = None) -> dict[str, Any]:
        """Returns facts about the served model. With a spec, raises an error if another model is served."""
        if model is not None:
            refuse_other_model(DEPLOYMENT, self._spec, model)
        about = {"dimension": self._encoder.dimension, "revision": self._encoder.revision}
        about |= {"facts": tuple(getattr(self._encoder, "facts", ()))}
        return {"model": self._spec, "computing": self._computing, **about}

    async def encode_texts(self, model: str, texts: Sequence[str]) -> Floats:
        """Returns unit-norm embeddings of the texts."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._texts.ask(texts, len(texts))

    async def encode_images(self, model: str, images: Packed, owner: str = "") -> Rows:
        """Returns unit-norm embeddings of the images, computed now, or kept since the `owner` last sent them."""
        refuse_other_model(DEPLOYMENT, self._spec, model)

        async def ask(part: Packed, indices: Sequence[int]) -> Rows:
            # Processes, and a GPU, decode one picture at a time.
            if self._decoders.take(self._encoder, [part]) or self._takes_files([part]):
                return await self._images.ask(part, len(part))
            return await self._images.ask(part, await weight(self._model_threads, part, self._settings.max_batch_size))

        return await self._answers.of((owner, self._spec, self._encoder.revision), self._model_threads, images, ask)

    async def statistics(self) -> dict[str, Any]:
        return {**await super().statistics(), "answers": len(self._answers)}

    async def check_health(self) -> None:
        """Raises where the embedding of a text is not a unit vector; Serve then replaces the replica."""
        await self._model_threads.check(self._test)

    def _test(self) -> None:
        if can_be_probed(self._spec):
            self._sound(self._encoder.encode_texts(["a photo"]), 1)

    async def _encode_texts(self, requests: list[Sequence[str]]) -> list[Floats]:
        texts = [text for request in requests for text in request]

        def call() -> Floats:
            return self._sound(self._encoder.encode_texts(texts), len(texts))

        embeddings = await self._model_threads.run_batch(call, len(texts))
        return [embeddings[a:b] for a, b in pairwise(accumulate(map(len, requests), initial=0))]

    async def _encode_images(self, requests: list[Packed]) -> list[Rows]:
        encoder = self._encoder
        if isinstance(encoder, ShapedEncoder) and self._decoders.take(encoder, requests):
            assert encoder.shape is not None

            def of_block(block: Blocks) -> Floats:
                return self._sound(encoder.embeddings_of_shaped(block), len(block))

            return await answer_prepared_packs(
                self._model_threads, self._decoders, requests, self._encoder.dimension, encoder.shape, of_block
            )

        if isinstance(encoder, FileEncoder) and all_files(requests):

            def of_files(files: list[bytes | None]) -> tuple[Floats, list[str | None]]:
                embeddings, errors = encoder.embeddings_of_files(files)
                is_decoded = [error is None for error in errors]
                self._sound(embeddings[is_decoded], sum(is_decoded))
                return embeddings, errors

            return await answered_files(self._model_threads, requests, of_files)

        def call(images: list[Pixels], _: list[int]) -> Floats:
            return self._sound(self._encoder.encode_images(images), len(images))

        return await answer_packs(self._model_threads, requests, self._encoder.dimension, call)

    def _takes_files(self, packs: Sequence[Packed]) -> bool:
        return isinstance(self._encoder, FileEncoder) and all_files(packs)

    def _sound(self, embeddings: Floats, rows: int) -> Floats:
        """Returns the embeddings. Raises ServiceError where they are not unit vectors of the right number and
        dimension."""
        expected = (rows, self._encoder.dimension)
        if embeddings.shape != expected:
            raise ServiceError(
                f"{DEPLOYMENT}: {self._spec} gave embeddings of shape {embeddings.shape}, not {expected}"
            )
        # NaN fails the comparison too.
        if rows and not bool(np.all(np.abs(np.linalg.norm(embeddings, axis=1) - 1) < 1e-2)):
            raise ServiceError(
                f"{DEPLOYMENT}: {self._spec} gave embeddings that are no unit vectors; check its weights"
            )
        return embeddings

    def __del__(self) -> None:
        super().__del__()
        if hasattr(self, "_decoders"):  # not there if the model failed to load
            self._decoders.close()
