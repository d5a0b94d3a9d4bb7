"""Roles whose models are behind Serve: to an audit a language model, encoder or classifier like any other.

They know which app to call and how to split a batch; they hold no model. All can be pickled, and used in the driver, in
Ray tasks and in the actors of Ray Data; what a property has fetched once travels with the pickle. Requests hold as many
rows as the app's limits allow, several are in flight, and the rows' order is kept; the replica joins them with other
callers' requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from c2b_ray.config.placement import UNSAID, Computing
from c2b_ray.errors import ServiceError
from c2b_ray.models.captioned import among_usable, no_answer, no_caption, scores_among_usable
from c2b_ray.roles import (
    Answer,
    CaptionReply,
    ChatReply,
    ChatRequest,
    Floats,
    GeneratedImage,
    GenerationRequest,
    Head,
    Message,
    ModelFact,
    Neighbours,
    Pixels,
    Question,
    TokenLogProb,
)
from c2b_ray.serving.answers import owner
from c2b_ray.serving.channel import APPS, Channel
from c2b_ray.serving.pictures import Packed, pack, pack_files, spans

# A model in a Serve app: the base of all roles behind Serve.


class InApp:
    """The model `spec` in a Serve app, called on behalf of `owner` (see `answers`).

    The app's description of the model is fetched once and travels with the pickle.
    """

    app: ClassVar[str]
    """A key of `APPS`."""
    multiplexed: ClassVar[bool] = False
    """Whether the app's replicas hold several models, and Serve routes calls to one that holds this model."""

    def __init__(
        self,
        spec: str,
        channel: Channel | None = None,
        *,
        chunk: int | None = None,
        computing: Computing = UNSAID,
    ) -> None:
        """`chunk`: rows per request; None: the app's limit. `computing`: how the app has to compute; what it leaves
        open is the app's choice."""
        self.spec, self.computing = spec, computing
        self.channel = channel or Channel(APPS[self.app])
        self.chunk = chunk
        self.owner = owner()
        self._facts: dict[str, Any] = {}

    @property
    def revision(self) -> str:
        return str(self.fact("revision"))

    @property
    def facts(self) -> tuple[ModelFact, ...]:
        """The model's settings and where the app has read each; none of an app that an earlier release deployed."""
        if not self._facts:
            self.fact("revision")
        return tuple(self._facts.get("facts", ()))

    @property
    def calls_at_once(self) -> int:
        return self.channel.limits().requests

    def fact(self, name: str) -> Any:
        """Returns a field of the app's `describe`. Raises ServiceError if the app serves another model, or has it
        compute in another way."""
        if not self._facts:
            arguments, model_id = ((), self.spec) if self.multiplexed else ((self.spec,), "")
            facts = dict(self.channel.call("describe", *arguments, model_id=model_id))
            self._check_computing(facts.get("computing", UNSAID))
            self._facts = facts
        return self._facts[name]

    def _check_computing(self, app_computing: Computing) -> None:
        if (name := self.computing.contradicts(app_computing)) is not None:
            placed, served = getattr(self.computing, name), getattr(app_computing, name)
            statement = "does not say" if served is None else f"says {served}"
            raise ServiceError(
                f"the placement says {name}: {placed}, and the app {self.channel.app!r} {statement}: set {name} in the "
                "app's `args` and deploy it again, or leave it out of the placement",
                app=self.channel.app,
            )

    def rows(self, count: int) -> int:
        """Returns the rows of one request, where `count` rows are sent in all."""
        return self.channel.rows(self.chunk, count)


# Models that write: the language model and the image generator.


_TEXTS = 16
"""Texts per request for tokens or likelihoods. Replicas do not join these with other callers' requests."""


class ServedLanguageModel:
    """The language model `spec` in the app of that name. Raises ServiceError if the app serves another one."""

    def __init__(self, spec: str, channel: Channel | None = None, *, chunk: int | None = None) -> None:
        self.spec = spec
        self.channel = channel or Channel(APPS["language_model"])
        self.chunk = chunk
        self._ends: tuple[int, ...] = ()

    @property
    def revision(self) -> str:
        return str(self.channel.call("describe", self.spec)["revision"])

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        return self._ask("chat", self.channel.rows(self.chunk, len(requests)), list(requests))

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        return self._ask("next_tokens", self.chunk or _TEXTS, list(texts), k)

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        return self._ask("log_likelihood", self.chunk or _TEXTS, list(texts))

    @property
    def end_tokens(self) -> tuple[int, ...]:
        if not self._ends:
            self._ends = tuple(self.channel.call("end_tokens", self.spec))
        return self._ends

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(self.channel.call("reply_start", self.spec, list(messages)))

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        return self._ask("continuations", self.chunk or _TEXTS, [tuple(row) for row in prefixes], k)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        return self._ask("token_counts", self.chunk or 4 * _TEXTS, list(texts))

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        return self._ask("texts_of", self.chunk or 4 * _TEXTS, [tuple(row) for row in tokens])

    def _ask(self, method: str, max_rows: int, rows: list[Any], *arguments: Any) -> list[Any]:
        calls = [(self.spec, rows[span], *arguments) for span in spans([0] * len(rows), max_rows)]
        return [answer for answers in self.channel.call_many(method, calls) for answer in answers]


class ServedGenerator(InApp):
    """The image generator `spec` in the app of that name. Raises ServiceError if the app serves another one."""

    app = "image_generator"

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        parts = self._parts(requests)
        calls = [(self.spec, list(requests[part])) for part in parts]
        return [image for images in self.channel.call_many("generate", calls) for image in images]

    @property
    def activation_names(self) -> tuple[str, ...]:
        return tuple(self.fact("activation_names"))

    @property
    def denoising_steps(self) -> int:
        return int(self.fact("denoising_steps"))

    def activations(self, requests: Sequence[GenerationRequest], name: str, steps: Sequence[int]) -> Floats:
        calls = [(self.spec, list(requests[part]), name, list(steps)) for part in self._parts(requests)]
        replies: list[Floats] = self.channel.call_many("activations", calls)
        return np.concatenate(replies) if replies else np.empty((0, len(steps), 0), np.float32)

    def _parts(self, requests: Sequence[GenerationRequest]) -> list[slice]:
        return spans([0] * len(requests), self.rows(len(requests)))


_IDS = 256
"""Rows of an index, each with an image's bytes, that one request fetches."""

Errors = list[str | None]


def _even(rows: int, max_rows: int) -> list[slice]:
    return spans([0] * rows, max_rows)


def _packed(images: Sequence[Pixels], max_rows: int) -> list[tuple[slice, Packed]]:
    return [(part, pack(images[part])) for part in spans([image.nbytes for image in images], max_rows)]


def _packed_files(files: Sequence[bytes | None], max_rows: int) -> list[tuple[slice, Packed]]:
    return [(part, pack_files(files[part])) for part in spans([len(data or b"") for data in files], max_rows)]


def _joined(parts: Sequence[tuple[Floats, Errors]], width: Callable[[], int]) -> tuple[Floats, Errors]:
    rows = [rows_of_part for rows_of_part, _ in parts] or [np.empty((0, width()), np.float32)]
    return np.concatenate(rows), [error for _, errors in parts for error in errors]


class ServedEncoder(InApp):
    """The encoder `spec` in the app of that name. Raises ServiceError if the app serves another one."""

    app = "encoder"

    @property
    def dimension(self) -> int:
        return int(self.fact("dimension"))

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        return self._embedded(_packed(images, self.rows(len(images))))[0]

    def embeddings_of_files(self, files: Sequence[bytes | None]) -> tuple[Floats, Errors]:
        return self._embedded(_packed_files(files, self.rows(len(files))))

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        parts = _even(len(texts), self.rows(len(texts)))
        replies = self.channel.call_many("encode_texts", [(self.spec, list(texts[part])) for part in parts])
        return np.concatenate(replies) if replies else np.empty((0, self.dimension), np.float32)

    def _embedded(self, parts: list[tuple[slice, Packed]]) -> tuple[Floats, Errors]:
        calls = [(self.spec, packed, self.owner) for _, packed in parts]
        replies = self.channel.call_many("encode_images", calls)
        return _joined(replies, lambda: self.dimension)


class ServedCaptioner(InApp):
    """The captioner `spec` in the app of that name. Raises ServiceError if the app serves another one."""

    app = "captioner"

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        return among_usable(images, labels, self._captions, no_caption)

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        return among_usable(images, questions, self._answers, no_answer)

    def answers_about_files(
        self, files: Sequence[bytes | None], questions: Sequence[Sequence[Question]]
    ) -> tuple[list[list[Answer]], Errors]:
        return self._answered(_packed_files(files, self.rows(len(files))), questions)

    def _captions(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        parts = _packed(images, self.rows(len(images)))
        calls = [(self.spec, packed, list(labels[part])) for part, packed in parts]
        return [reply for replies in self.channel.call_many("caption", calls) for reply in replies]

    def _answers(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        parts = _packed(images, self.rows(len(images)))
        answers, _ = self._answered(parts, [[question] for question in questions])
        return [answer for [answer] in answers]

    def _answered(
        self, parts: list[tuple[slice, Packed]], questions: Sequence[Sequence[Question]]
    ) -> tuple[list[list[Answer]], Errors]:
        calls = [(self.spec, packed, [list(items) for items in questions[part]]) for part, packed in parts]
        replies = self.channel.call_many("answer", calls)
        return [answers for answers_of_part, _ in replies for answers in answers_of_part], [
            error for _, errors in replies for error in errors
        ]


class ServedClassifier(InApp):
    """The classifier `spec`, in the app that serves all classifiers; the replica that gets the first request
    loads it."""

    app = "classifiers"
    multiplexed = True

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.fact("labels"))

    @property
    def head(self) -> Head:
        return cast(Head, self.fact("head"))

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        if len(images) != len(keys):
            raise ValueError(f"{len(images)} images and {len(keys)} keys")
        return self._logits(_packed(images, self.rows(len(images))), keys)[0]

    def logits_of_files(self, files: Sequence[bytes | None], keys: Sequence[str]) -> tuple[Floats, Errors]:
        if len(files) != len(keys):
            raise ValueError(f"{len(files)} files and {len(keys)} keys")
        return self._logits(_packed_files(files, self.rows(len(files))), keys)

    def _logits(self, parts: list[tuple[slice, Packed]], keys: Sequence[str]) -> tuple[Floats, Errors]:
        calls = [(packed, list(keys[part]), self.owner) for part, packed in parts]
        replies = self.channel.call_many("logits", calls, model_id=self.spec)
        return _joined(replies, lambda: len(self.labels))


class ServedIndex(InApp):
    """The index at `path`, which the app's replicas must be able to read. A local path is made absolute for them."""

    app = "index"
    multiplexed = True

    def __init__(self, path: str, channel: Channel | None = None, *, chunk: int | None = None) -> None:
        local = path.removeprefix("faiss:")
        scheme = path[: len(path) - len(local)]  # with it there may be options
        super().__init__(path if "://" in local else f"{scheme}{Path(local).absolute()}", channel, chunk=chunk)

    @property
    def encoder(self) -> str:
        return str(self.fact("encoder"))

    @property
    def encoder_revision(self) -> str:
        return str(self.fact("encoder_revision"))

    @property
    def dimension(self) -> int:
        return int(self.fact("dimension"))

    def search(self, embeddings: Floats, k: int) -> Neighbours:
        parts = _even(len(embeddings), self.rows(len(embeddings)))
        replies = self.channel.call_many("search", [(embeddings[part], k) for part in parts], model_id=self.spec)
        ids = [np.empty((0, k), np.int64), *(part.ids for part in replies)]
        similarities = [np.empty((0, k), np.float32), *(part.similarities for part in replies)]
        return Neighbours(np.concatenate(ids), np.concatenate(similarities))

    def metadata(self, ids: Sequence[int]) -> pa.Table:
        return self._rows("metadata", ids)

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        return self._rows("fetch", ids)

    def _rows(self, method: str, ids: Sequence[int]) -> pa.Table:
        # No ids are one call too: the columns of the answer are the index's own.
        parts = _even(len(ids), self.chunk or _IDS)
        calls = [([int(i) for i in ids[part]],) for part in parts] or [([],)]
        return pa.concat_tables(self.channel.call_many(method, calls, model_id=self.spec))


class ServedCaptionScorer(ServedCaptioner):
    """The captioner `spec`, in the app of that name, whose model scores captions."""

    def caption_scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        """Returns the model's scores.

        A request holds as many images as fill the app's rows, each with all texts, and at least one image.
        """
        return scores_among_usable(images, texts, lambda usable_images: self._scores(usable_images, texts))

    def _scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        rows = self.rows(len(images) * len(texts))
        parts = spans([image.nbytes for image in images], max(1, rows // len(texts)))
        calls = [(self.spec, pack(images[part]), list(texts)) for part in parts]
        return np.concatenate([scores for scores, _ in self.channel.call_many("caption_scores", calls)])


def scoring(captioner: ServedCaptioner) -> ServedCaptioner:
    """Returns a handle of the same model that also scores captions, if the model does; otherwise the handle itself."""
    described = captioner.channel.call("describe", captioner.spec)
    if not described.get("scores"):
        return captioner
    return ServedCaptionScorer(captioner.spec, captioner.channel, chunk=captioner.chunk)
