"""The values that cross roles: requests, replies, images, answers. A bad row is a value, with an error in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
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
    (`models.pixels.shape.shaped`), and hand them to the model's process as a block.
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
