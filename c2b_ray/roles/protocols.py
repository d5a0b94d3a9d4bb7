"""The roles that models play on the path: Protocols of one to three batch methods, as many outputs as inputs, in order.

A dead service is an exception (`errors.ServiceError`). This module knows no model and no service.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from c2b_ray.roles.values import (
    Answer,
    CaptionReply,
    ChatReply,
    ChatRequest,
    Floats,
    GeneratedImage,
    GenerationRequest,
    Message,
    Neighbours,
    Pixels,
    Question,
    TokenLogProb,
)


@runtime_checkable
class LanguageModel(Protocol):
    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """One reply per request."""
        ...

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """The k likeliest next tokens of each text, likeliest first, with natural-log probabilities."""
        ...

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        """log P(text), natural log, summed over the text's tokens after the first."""
        ...


@runtime_checkable
class ReplyContinuer(Protocol):
    """A language model whose reply can be written token by token, by a caller that chooses among its next tokens."""

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end a reply, as the tokenizer and the generation config name them."""
        ...

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The tokens of a conversation up to where its next reply begins."""
        ...

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        """The k likeliest next tokens of each sequence of tokens, likeliest first, all of them for a large k.

        What the sequences begin with together is computed once. None for one that fills the model's context.
        """
        ...

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence of tokens, without the special ones."""
        ...


@runtime_checkable
class TokenCounter(Protocol):
    """A language model that says how many tokens `log_likelihood` sums over."""

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Of each text, its tokens after the first."""
        ...


class TextEncoder(Protocol):
    """The half of a `TextImageEncoder` that embeds texts."""

    def encode_texts(self, texts: Sequence[str]) -> Floats: ...


@runtime_checkable
class SentenceEncoder(Protocol):
    @property
    def revision(self) -> str: ...

    def encode_sentences(self, texts: Sequence[str]) -> Floats:
        """Unit-norm embeddings of texts whose cosine says how alike they mean; float32 (texts, dimension)."""
        ...


@runtime_checkable
class TextImageEncoder(Protocol):
    @property
    def dimension(self) -> int: ...

    @property
    def revision(self) -> str:
        """Changes whenever the weights or the preprocessing do; part of every id that depends on embeddings."""
        ...

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        """Unit-norm embeddings, float32 (images, dimension)."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        """Unit-norm embeddings, float32 (texts, dimension)."""
        ...


@runtime_checkable
class ImageGenerator(Protocol):
    @property
    def revision(self) -> str:
        """Changes whenever the weights or the settings of generation do; part of every id of a generated image."""
        ...

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        """One image per request; what cannot be used (NaN, black, censored) is an error instead."""
        ...


@runtime_checkable
class ActivationReader(Protocol):
    """An image generator whose inner activations can be read while it denoises."""

    @property
    def activation_names(self) -> tuple[str, ...]:
        """The modules whose output can be read, such as "unet.mid_block"."""
        ...

    @property
    def denoising_steps(self) -> int:
        """How many steps an image takes."""
        ...

    def activations(self, requests: Sequence[GenerationRequest], name: str, steps: Sequence[int]) -> Floats:
        """The output of a module at these denoising steps (from 0), flattened: float32 (requests, steps, dimension).

        Of the half of the batch that is guided by the prompt; under the noise that `generate` has for the same seed.
        It denoises as far as the last of the steps and makes no image. SpecError lists the names that there are.
        """
        ...


@runtime_checkable
class Captioner(Protocol):
    @property
    def revision(self) -> str:
        """Changes whenever the weights, prompts or vocabulary do; part of every id that depends on what it said."""
        ...

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        """A caption of each image that contains its label: as whole words, in any case, or their simple plural."""
        ...

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        """For each image the choice that answers its question."""
        ...


@runtime_checkable
class CaptionScorer(Protocol):
    def caption_scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        """log P(text | image) with the text's end, or what grows with it; float32 (images, texts), NaN for none."""
        ...


@runtime_checkable
class Classifier(Protocol):
    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each output, in order."""
        ...

    @property
    def revision(self) -> str: ...

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Logits, float32 (images, labels); a row of NaN where an image has no answer. `keys` names each image as its
        source does: models that look at pixels ignore it, a table of predictions looks nothing else up."""
        ...


@runtime_checkable
class ImageIndex(Protocol):
    @property
    def encoder(self) -> str:
        """The spec of the encoder whose embeddings the index holds."""
        ...

    @property
    def encoder_revision(self) -> str:
        """The revision of that encoder when it made them."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def revision(self) -> str: ...

    def search(self, embeddings: Floats, k: int) -> Neighbours:
        """The k nearest images of each unit-norm embedding, nearest first."""
        ...

    def metadata(self, ids: Sequence[int]) -> pa.Table:
        """Column `key` and any metadata of the source, a row per id, in their order; no image is read."""
        ...

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        """As `metadata`, with `bytes` (encoded image); `error` says why bytes are null, where they can be."""
        ...


@runtime_checkable
class FileClassifier(Protocol):
    """A classifier that decodes encoded images itself, beside its weights."""

    def logits_of_files(self, files: Sequence[bytes | None], keys: Sequence[str]) -> tuple[Floats, list[str | None]]:
        """Logits as `Classifier.logits`, and why a file cannot be decoded; its row is NaN then."""
        ...


@runtime_checkable
class FileEncoder(Protocol):
    """An encoder that decodes encoded images itself, beside its weights."""

    def embeddings_of_files(self, files: Sequence[bytes | None]) -> tuple[Floats, list[str | None]]:
        """Embeddings as `TextImageEncoder.encode_images`, and why a file cannot be decoded; its row is NaN then."""
        ...


@runtime_checkable
class FileCaptioner(Protocol):
    """A captioner that decodes encoded images itself, beside its weights."""

    def answers_about_files(
        self, files: Sequence[bytes | None], questions: Sequence[Sequence[Question]]
    ) -> tuple[list[list[Answer]], list[str | None]]:
        """The answers to each file's questions, and why a file cannot be decoded; it has no answers then."""
        ...


@runtime_checkable
class Remote(Protocol):
    """A role that computes in another process, where calls wait rather than work."""

    @property
    def calls_at_once(self) -> int:
        """How many of a caller's calls may be under way: so many keep the other process busy."""
        ...


@runtime_checkable
class LatentGenerator(Protocol):
    """A generator whose images are differentiable in its latents. In process only: gradients cross no handle.

    Its tensors are torch's, which this module does not import.
    """

    @property
    def dimension(self) -> int:
        """d, the length of a latent vector."""
        ...

    @property
    def revision(self) -> str:
        """Changes whenever the weights or the settings of generation do."""
        ...

    def sample(self, count: int, seed: int) -> Floats:
        """Latents of the space that `images` takes, drawn from the generator's prior; float32 (count, dimension)."""
        ...

    def images(self, latents: Any) -> Any:
        """A tensor (rows, 3, height, width) in [0, 1], differentiable in `latents`, a tensor (rows, dimension)."""
        ...


@runtime_checkable
class GradientClassifier(Protocol):
    """A classifier whose answers are differentiable in its images, preprocessing included. In process only."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def revision(self) -> str: ...

    def logits_of(self, images: Any) -> Any:
        """A tensor (rows, labels), differentiable in `images`, a tensor (rows, 3, height, width) in [0, 1]."""
        ...

    def probabilities(self, images: Any) -> Any:
        """The softmax of `logits_of` over all labels."""
        ...
