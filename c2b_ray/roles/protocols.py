"""The roles that models play on the path: Protocols of one to three batch methods, as many outputs as inputs, in order.

A dead service is an exception (`errors.ServiceError`). This module knows no model and no service.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from c2b_ray.roles.values import (
    Answer,
    Blocks,
    CaptionReply,
    Floats,
    GeneratedImage,
    GenerationRequest,
    Neighbours,
    Pixels,
    Question,
    Shape,
)


class TextEncoder(Protocol):
    """The half of a `TextImageEncoder` that embeds texts."""

    def encode_texts(self, texts: Sequence[str]) -> Floats: ...


@runtime_checkable
class SentenceEncoder(Protocol):
    @property
    def revision(self) -> str: ...

    def encode_sentences(self, texts: Sequence[str]) -> Floats:
        """Returns unit-norm embeddings whose cosine measures similarity of meaning; float32 (texts, dimension)."""
        ...


@runtime_checkable
class TextImageEncoder(Protocol):
    @property
    def dimension(self) -> int: ...

    @property
    def revision(self) -> str:
        """Changes whenever weights or preprocessing do; part of every id that depends on embeddings."""
        ...

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        """Returns unit-norm embeddings, float32 (images, dimension)."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        """Returns unit-norm embeddings, float32 (texts, dimension)."""
        ...


@runtime_checkable
class ImageGenerator(Protocol):
    @property
    def revision(self) -> str:
        """Changes whenever weights or settings of generation do; part of every id of a generated image."""
        ...

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        """Returns one image per request, or an error for one that is unusable (NaN, black, censored)."""
        ...


@runtime_checkable
class ActivationReader(Protocol):
    """An image generator whose inner activations can be read while it denoises."""

    @property
    def activation_names(self) -> tuple[str, ...]:
        """Returns the modules whose output can be read, such as "unet.mid_block"."""
        ...

    @property
    def denoising_steps(self) -> int:
        """Returns the number of steps of an image."""
        ...

    def activations(self, requests: Sequence[GenerationRequest], name: str, steps: Sequence[int]) -> Floats:
        """Returns a module's output at these denoising steps (from 0), float32 (requests, steps, flattened dimension).

        It is of the half of the batch that the prompt guides, with the noise of `generate` for the same seed. Denoises
        up to the last of the steps and makes no image. SpecError for an unknown name lists the known ones.
        """
        ...


@runtime_checkable
class Captioner(Protocol):
    @property
    def revision(self) -> str:
        """Changes whenever weights, prompts or vocabulary do; part of every id that depends on its answers."""
        ...

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        """Returns a caption of each image that mentions its label (`names.mentions`)."""
        ...

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        """Returns for each image the choice that answers its question."""
        ...


@runtime_checkable
class CaptionScorer(Protocol):
    def caption_scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        """Returns log P(text and end | image) or a score that grows with it; float32 (images, texts), NaN for none."""
        ...


@runtime_checkable
class Classifier(Protocol):
    @property
    def labels(self) -> tuple[str, ...]:
        """Returns the name of each output, in order."""
        ...

    @property
    def revision(self) -> str: ...

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Returns logits, float32 (images, labels), NaN for an image without an answer. `keys` names each image as its
        source does: models of pixels ignore it, a table of predictions uses nothing else.

        A classifier whose labels do not exclude each other says so by an attribute `head`, "sigmoid"
        (`Description`)."""
        ...


@runtime_checkable
class ImageIndex(Protocol):
    @property
    def encoder(self) -> str:
        """Returns the spec of the encoder of the index's embeddings."""
        ...

    @property
    def encoder_revision(self) -> str:
        """Returns the revision of that encoder when it computed them."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def revision(self) -> str: ...

    def search(self, embeddings: Floats, k: int) -> Neighbours:
        """Returns the k nearest images of each unit-norm embedding, nearest first."""
        ...

    def metadata(self, ids: Sequence[int]) -> pa.Table:
        """Returns a row per id, in their order, with a column `key` and the source's metadata; reads no image."""
        ...

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Returns `metadata` with `bytes` (the encoded image); `error` says why bytes are null."""
        ...


@runtime_checkable
class FileClassifier(Protocol):
    """A classifier that also decodes encoded images, in the process of its weights."""

    def logits_of_files(self, files: Sequence[bytes | None], keys: Sequence[str]) -> tuple[Floats, list[str | None]]:
        """Returns `Classifier.logits`, and why a file cannot be decoded; its row is then NaN."""
        ...


@runtime_checkable
class ShapedClassifier(Protocol):
    """A classifier that also answers pictures that another process has prepared for it."""

    @property
    def shape(self) -> Shape | None:
        """Returns how pictures are prepared; None where this classifier prepares them itself."""
        ...

    def logits_of_shaped(self, images: Blocks) -> Floats:
        """Returns `Classifier.logits` of pictures prepared by `shape`, uint8 (images, height, width, 3)."""
        ...


@runtime_checkable
class ShapedEncoder(Protocol):
    """An encoder that also embeds pictures that another process has prepared for it."""

    @property
    def shape(self) -> Shape | None:
        """Returns how pictures are prepared; None where this encoder prepares them itself."""
        ...

    def embeddings_of_shaped(self, images: Blocks) -> Floats:
        """Returns `TextImageEncoder.encode_images` of pictures prepared by `shape`, uint8 (images, height, width,
        3)."""
        ...


@runtime_checkable
class FileEncoder(Protocol):
    """An encoder that also decodes encoded images, in the process of its weights."""

    def embeddings_of_files(self, files: Sequence[bytes | None]) -> tuple[Floats, list[str | None]]:
        """Returns `TextImageEncoder.encode_images`, and why a file cannot be decoded; its row is then NaN."""
        ...


@runtime_checkable
class FileCaptioner(Protocol):
    """A captioner that also decodes encoded images, in the process of its weights."""

    def answers_about_files(
        self, files: Sequence[bytes | None], questions: Sequence[Sequence[Question]]
    ) -> tuple[list[list[Answer]], list[str | None]]:
        """Returns the answers to each file's questions, and why a file cannot be decoded."""
        ...


@runtime_checkable
class Remote(Protocol):
    """A role that computes in another process: calls wait and do no work."""

    @property
    def calls_at_once(self) -> int:
        """Returns the number of a caller's concurrent calls that keep the other process busy."""
        ...


@runtime_checkable
class LatentGenerator(Protocol):
    """A generator whose images are differentiable in its latents, in process only: gradients cross no handle.

    Its tensors are torch's, which this module does not import.
    """

    @property
    def dimension(self) -> int:
        """Returns d, the length of a latent vector."""
        ...

    @property
    def revision(self) -> str:
        """Changes whenever weights or settings of generation do."""
        ...

    def sample(self, count: int, seed: int) -> Floats:
        """Returns latents for `images`, drawn from the generator's prior; float32 (count, dimension)."""
        ...

    def images(self, latents: Any) -> Any:
        """Returns a tensor (rows, 3, height, width) in [0, 1], differentiable in `latents`, (rows, dimension)."""
        ...


@runtime_checkable
class GradientClassifier(Protocol):
    """A classifier whose answers are differentiable in its images, through preprocessing; in process only."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def revision(self) -> str: ...

    def logits_of(self, images: Any) -> Any:
        """Returns a tensor (rows, labels), differentiable in `images`, a tensor (rows, 3, height, width) in [0, 1]."""
        ...

    def probabilities(self, images: Any) -> Any:
        """Returns the softmax of `logits_of` over all labels."""
        ...
