"""The roles that models play on the path, and the values that cross them.

A role is a Protocol of one to three batch methods: as many outputs as inputs, in their order. A bad row is a value (an
error in its place); a dead service is an exception (`errors.ServiceError`). This module knows no model and no service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""One decoded image: uint8, (height, width, 3), RGB, upright."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """One conversation to be continued.

    `schema`: a JSON schema that the reply must satisfy, or None for free text.
    `temperature`: 0 is greedy. `top_p` in (0, 1]. `seed` fixes the noise of this request alone, whatever its batch.
    """

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    seed: int = 0


@dataclass(frozen=True)
class ChatReply:
    """`text` as the model gave it; `error` says why it cannot be used (cut short, refused), None if it can."""

    text: str
    error: str | None = None


@dataclass(frozen=True)
class TokenLogProb:
    token_id: int
    token: str
    log_prob: float


@dataclass(frozen=True)
class GenerationRequest:
    """One picture to be made. `seed` fixes the noise of this request alone, whatever its batch and its neighbours."""

    prompt: str
    seed: int


@dataclass(frozen=True)
class GeneratedImage:
    """`pixels`, or the reason why there are none in `error`: always exactly one of the two."""

    pixels: Pixels | None
    error: str | None = None


@dataclass(frozen=True)
class Question:
    """One question about one image. ValueError: fewer than two choices, a blank one, two that are spelt alike.

    `texts`: a statement per choice that is true of the image if it is the answer ("a bus at night"): what a model goes
    by that compares images with texts and reads no questions.
    """

    text: str
    choices: tuple[str, ...]
    texts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        spelt = {" ".join(choice.split()).casefold() for choice in self.choices}
        if len(self.choices) < 2 or len(spelt) < len(self.choices) or "" in spelt:
            raise ValueError(f"{self.text!r} needs two choices or more, each once and none blank, not {self.choices}")
        if self.texts is not None and len(set(self.texts)) != len(self.choices):
            raise ValueError(f"{self.text!r}: {len(self.choices)} choices need as many texts, each once: {self.texts}")


@dataclass(frozen=True)
class Answer:
    """One of the question's choices, or in `error` why there is none; always exactly one of the two.

    `probabilities`: of the choices in their order, summing to 1; None where the model does not say.
    """

    choice: str | None
    probabilities: tuple[float, ...] | None = None
    error: str | None = None


@dataclass(frozen=True)
class CaptionReply:
    """A caption, or in `error` why there is none; always exactly one of the two."""

    text: str | None
    error: str | None = None


@dataclass(frozen=True)
class Neighbours:
    """`ids` int64 (queries, k), nearest first, −1 where fewer exist; `similarities` float32 (queries, k), cosine."""

    ids: NDArray[np.int64]
    similarities: Floats


@dataclass(frozen=True)
class Description:
    """What a model says of itself, known without its weights in memory; what its role does not have is empty.

    `encoder`, `encoder_revision` and `count` are of an index: whose embeddings it holds, and of how many images.
    `of_device`: the revision depends on the device, so it has to be asked for where the model will run.
    """

    revision: str
    labels: tuple[str, ...] = ()
    dimension: int = 0
    encoder: str = ""
    encoder_revision: str = ""
    count: int | None = None
    of_device: bool = False


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


class TextEncoder(Protocol):
    """The half of a `TextImageEncoder` that embeds texts."""

    def encode_texts(self, texts: Sequence[str]) -> Floats: ...


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
        """One image per request; what cannot be used (NaN, black, censored) is an error in its place."""
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
