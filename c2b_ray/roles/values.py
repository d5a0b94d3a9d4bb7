"""The values that cross roles: requests, replies, images, answers. A bad row is a value, with an error in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
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
