"""The roles that models play on the path, and the values that cross them: requests, replies, images, answers.

A role is a Protocol of one to three batch methods: as many outputs as inputs, in their order. A bad row is a value (an
error in its place); a dead service is an exception (`errors.ServiceError`). This module knows no model and no service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""One decoded image: uint8, (height, width, 3), RGB, upright."""

Floats = NDArray[np.float32]

Head = Literal["softmax", "sigmoid"]
"""What a classifier's labels are to each other: see `Description`."""

Blocks = NDArray[np.uint8]
"""Decoded images of one size: uint8, (images, height, width, 3), RGB, C-contiguous."""


@dataclass(frozen=True)
class Shape:
    """How a model wants its pictures resized and cropped, before it scales and normalises them.

    `size`: of the shorter side, or (height, width), or None where nothing is resized; `filter`: Pillow's; `crop`:
    (height, width) of the centre, or None. A process without the model can prepare pictures by it
    (`models.pixels.resize.shaped`), and hand them to the model's process as a block.
    """

    size: int | tuple[int, int] | None
    filter: Literal["bilinear", "bicubic"]
    crop: tuple[int, int] | None

    @property
    def frame(self) -> tuple[int, int] | None:
        """(height, width) of every prepared picture; None where it depends on the picture's own size."""
        return self.crop or (self.size if isinstance(self.size, tuple) else None)


@dataclass(frozen=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """One conversation to continue.

    `schema`: a JSON schema that the reply must satisfy, or None for free text. `temperature`: 0 is greedy. `top_p` in
    (0, 1]. `seed` fixes the noise of this request alone, in any batch.
    """

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    seed: int = 0


@dataclass(frozen=True)
class ChatReply:
    """`text`: the model's text; `error`: why it cannot be used (cut short, refused), or None."""

    text: str
    error: str | None = None


@dataclass(frozen=True)
class TokenLogProb:
    token_id: int
    token: str
    log_prob: float


@dataclass(frozen=True)
class GenerationRequest:
    """One picture to generate. `seed` fixes the noise of this request alone, in any batch."""

    prompt: str
    seed: int


@dataclass(frozen=True)
class GeneratedImage:
    """`pixels`, or the reason for their absence in `error`: always exactly one of the two."""

    pixels: Pixels | None
    error: str | None = None


@dataclass(frozen=True)
class Question:
    """One question about one image. ValueError for fewer than two choices, a blank one, or two with the same spelling.

    `texts`: for each choice a statement that is true of the image if the choice is the answer ("a bus at night").
    Models that compare images with texts use it, because they cannot read questions.
    """

    text: str
    choices: tuple[str, ...]
    texts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        normalised = {" ".join(choice.split()).casefold() for choice in self.choices}
        if len(self.choices) < 2 or len(normalised) < len(self.choices) or "" in normalised:
            raise ValueError(f"{self.text!r} needs two choices or more, each once and none blank, not {self.choices}")
        if self.texts is not None and len(set(self.texts)) != len(self.choices):
            raise ValueError(f"{self.text!r}: {len(self.choices)} choices need as many texts, each once: {self.texts}")


@dataclass(frozen=True)
class Answer:
    """One of the question's choices, or the reason for none in `error`: always exactly one of the two.

    `probabilities`: of the choices in their order, summing to 1; None where the model gives none.
    """

    choice: str | None
    probabilities: tuple[float, ...] | None = None
    error: str | None = None


@dataclass(frozen=True)
class CaptionReply:
    """A caption, or the reason for none in `error`: always exactly one of the two."""

    text: str | None
    error: str | None = None


@dataclass(frozen=True)
class Neighbours:
    """`ids` int64 (queries, k), nearest first, −1 where fewer exist; `similarities` float32 (queries, k), cosine."""

    ids: NDArray[np.int64]
    similarities: Floats


@dataclass(frozen=True)
class ModelFact:
    """One setting of a model and where it was read, for a person: `c2b check`, the terminal, the run and the report.

    `name`: "label names", "input size", "normalisation", "output", "architecture", "tensor names" and the like.
    `value`: the setting in words. `source`: the file, metadata key or rule it comes from. `assumed`: True where no file
    states the setting, so that a wrong one would change numbers. `option`: the spec option that states it, such as
    "output", or "" where none does.
    """

    name: str
    value: str
    source: str
    assumed: bool = False
    option: str = ""


@dataclass(frozen=True)
class Description:
    """The facts about a model that are known without loading its weights; a fact that its role does not have is empty.

    `encoder`, `encoder_revision` and `count` describe an index: the encoder of its embeddings, and its number of
    images. `of_device`: the revision depends on the device, so the process that runs the model has to determine it.
    `shape`: how pictures are prepared for the model, where another process can do that. `takes_files`: whether the
    model decodes encoded images itself, as one that answers remotely does. `head`: what a classifier's labels are to
    each other. `softmax`: they exclude each other, and softmax of the logits gives their probabilities. `sigmoid`: a
    picture may show several of them, or none, and the sigmoid of a logit is the probability of its label alone.
    `facts`: the model's settings and their sources; two descriptions of one model are equal whatever they say.
    """

    revision: str
    labels: tuple[str, ...] = ()
    dimension: int = 0
    encoder: str = ""
    encoder_revision: str = ""
    count: int | None = None
    of_device: bool = False
    shape: Shape | None = None
    takes_files: bool = False
    head: Head = "softmax"
    facts: tuple[ModelFact, ...] = field(default=(), compare=False)


# The roles of models of images.


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


@runtime_checkable
class GroupGuesser(Protocol):
    """Guesses the group of texts (LIC): one call trains on texts with known groups and applies what it learned."""

    @property
    def name(self) -> str: ...

    def probabilities(
        self, texts: Sequence[str], groups: NDArray[np.int64], others: Sequence[str], number: int, seed: int
    ) -> NDArray[np.float64]:
        """Trains on `texts` of `groups` (0 .. number - 1); returns the probability of each group for each of the
        `others`, float64 (others, number), rows summing to 1."""
        ...


# The roles of models of texts.


@runtime_checkable
class LanguageModel(Protocol):
    @property
    def revision(self) -> str:
        """Changes whenever weights or tokenizer do; that of a service, whose model can change unnoticed, with its
        address."""
        ...

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Returns one reply per request."""
        ...

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens of each text, likeliest first, with natural-log probabilities."""
        ...

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        """Returns log P(text), natural log, summed over the text's tokens after the first."""
        ...


@runtime_checkable
class ReplyContinuer(Protocol):
    """A language model that can write a reply token by token; the caller chooses among its next tokens."""

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Returns the tokens that end a reply, according to the tokenizer and the generation config."""
        ...

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Returns the tokens of a conversation up to the start of its next reply."""
        ...

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        """Returns the k likeliest next tokens of each sequence of tokens, likeliest first; all of them for a large k.

        A common beginning of the sequences is computed once. A sequence that fills the model's context has none.
        """
        ...

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of tokens, without the special ones."""
        ...


@runtime_checkable
class TokenCounter(Protocol):
    """A language model that counts the tokens that `log_likelihood` sums over."""

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Returns the number of each text's tokens after the first."""
        ...
