"""Roles whose models live behind Serve: to an audit a language model, encoder or classifier like any other.

They know which app to ask and how to cut a batch; they hold no model. All can be pickled, and used in the driver, in
Ray tasks and in the actors of Ray Data; what a property has fetched once travels with the pickle. A single row goes
through the app's gathered calls, where it shares a batch with other callers'; more rows go as whole batches, several in
flight, their order kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.models.text.captioned import among_usable, no_answer, no_caption
from c2b_ray.roles import (
    Answer,
    CaptionReply,
    ChatReply,
    ChatRequest,
    Floats,
    GeneratedImage,
    GenerationRequest,
    Neighbours,
    Pixels,
    Question,
    TokenLogProb,
)
from c2b_ray.serving.channel import APPS, Channel
from c2b_ray.serving.payload import pack, spans


def _even(rows: int, most: int) -> list[slice]:
    return spans([0] * rows, most)


class ServedLanguageModel:
    """The language model `spec` in the app of that name; ServiceError if the app serves another one."""

    def __init__(self, spec: str, channel: Channel | None = None, *, chunk: int = 16) -> None:
        self.spec = spec
        self.channel = channel or Channel(APPS["language_model"])
        self.chunk = chunk

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        if len(requests) == 1:
            return [self.channel.call("chat_one", self.spec, requests[0])]
        return self._ask("chat", list(requests))

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        return self._ask("next_tokens", list(texts), k)

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        return self._ask("log_likelihood", list(texts))

    def _ask(self, method: str, rows: list[Any], *rest: Any) -> list[Any]:
        calls = [(self.spec, rows[span], *rest) for span in _even(len(rows), self.chunk)]
        return [answer for answers in self.channel.call_many(method, calls) for answer in answers]


class ServedEncoder:
    """The encoder `spec` in the app of that name; ServiceError if the app serves another one."""

    def __init__(self, spec: str, channel: Channel | None = None, *, chunk: int = 64) -> None:
        self.spec = spec
        self.channel = channel or Channel(APPS["encoder"])
        self.chunk = chunk
        self._facts: dict[str, Any] = {}

    @property
    def dimension(self) -> int:
        return int(self._described()["dimension"])

    @property
    def revision(self) -> str:
        return str(self._described()["revision"])

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        if len(images) == 1:
            return np.array(self.channel.call("encode_image", self.spec, images[0]))
        parts = spans([image.nbytes for image in images], self.chunk)
        calls = [(self.spec, pack(images[part])) for part in parts]
        return _stacked(self.channel.call_many("encode_images", calls), self)

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        if len(texts) == 1:
            return np.array(self.channel.call("encode_text", self.spec, texts[0]))
        calls = [(self.spec, list(texts[part])) for part in _even(len(texts), self.chunk)]
        return _stacked(self.channel.call_many("encode_texts", calls), self)

    def _described(self) -> dict[str, Any]:
        if not self._facts:
            self._facts = dict(self.channel.call("describe", self.spec))
        return self._facts


class ServedCaptioner:
    """The captioner `spec` in the app of that name; ServiceError if the app serves another one."""

    def __init__(self, spec: str, channel: Channel | None = None, *, chunk: int = 32) -> None:
        self.spec = spec
        self.channel = channel or Channel(APPS["captioner"])
        self.chunk = chunk
        self._facts: dict[str, Any] = {}

    @property
    def revision(self) -> str:
        if not self._facts:
            self._facts = dict(self.channel.call("describe", self.spec))
        return str(self._facts["revision"])

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        return among_usable(images, labels, lambda i, rows: self._ask("caption", i, rows), no_caption)

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        return among_usable(images, questions, lambda i, rows: self._ask("answer", i, rows), no_answer)

    def _ask(self, method: str, images: Sequence[Pixels], rows: list[Any]) -> list[Any]:
        if len(images) == 1:
            return [self.channel.call(f"{method}_one", self.spec, images[0], rows[0])]
        parts = spans([image.nbytes for image in images], self.chunk)
        calls = [(self.spec, pack(images[part]), rows[part]) for part in parts]
        return [reply for replies in self.channel.call_many(method, calls) for reply in replies]


class ServedGenerator:
    """The image generator `spec` in the app of that name; ServiceError if the app serves another one."""

    def __init__(self, spec: str, channel: Channel | None = None, *, chunk: int = 16) -> None:
        self.spec = spec
        self.channel = channel or Channel(APPS["image_generator"])
        self.chunk = chunk
        self._facts: dict[str, Any] = {}

    @property
    def revision(self) -> str:
        if not self._facts:
            self._facts = dict(self.channel.call("describe", self.spec))
        return str(self._facts["revision"])

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        if len(requests) == 1:
            return [self.channel.call("generate_one", self.spec, requests[0])]
        parts = spans([1] * len(requests), self.chunk)
        calls = [(self.spec, list(requests[part])) for part in parts]
        return [image for images in self.channel.call_many("generate", calls) for image in images]


class ServedClassifier:
    """The classifier `spec` in the app that serves them all; it loads on the replica that is asked first."""

    def __init__(self, spec: str, channel: Channel | None = None, *, chunk: int = 64) -> None:
        self.spec = spec
        self.channel = channel or Channel(APPS["classifiers"])
        self.chunk = chunk
        self._facts: dict[str, Any] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self._described()["labels"])

    @property
    def revision(self) -> str:
        return str(self._described()["revision"])

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        if len(images) != len(keys):
            raise ValueError(f"{len(images)} images and {len(keys)} keys")
        if len(images) == 1:
            return np.array(self.channel.call("logits_one", images[0], keys[0], model_id=self.spec))
        parts = spans([image.nbytes for image in images], self.chunk)
        calls = [(pack(images[part]), list(keys[part])) for part in parts]
        found = self.channel.call_many("logits", calls, model_id=self.spec)
        return np.concatenate(found) if found else np.empty((0, len(self.labels)), np.float32)

    def _described(self) -> dict[str, Any]:
        if not self._facts:
            self._facts = dict(self.channel.call("describe", model_id=self.spec))
        return self._facts


class ServedIndex:
    """The index at `path`, which the app's replicas must be able to read; a local path is made absolute for them."""

    def __init__(self, path: str, channel: Channel | None = None, *, chunk: int = 256) -> None:
        local = path.removeprefix("faiss:")
        scheme = path[: len(path) - len(local)]  # with it there may be options
        self.path = path if "://" in local else f"{scheme}{Path(local).absolute()}"
        self.channel = channel or Channel(APPS["index"])
        self.chunk = chunk
        self._facts: dict[str, Any] = {}

    @property
    def encoder(self) -> str:
        return str(self._described()["encoder"])

    @property
    def encoder_revision(self) -> str:
        return str(self._described()["encoder_revision"])

    @property
    def dimension(self) -> int:
        return int(self._described()["dimension"])

    @property
    def revision(self) -> str:
        return str(self._described()["revision"])

    def search(self, embeddings: Floats, k: int) -> Neighbours:
        if len(embeddings) == 1:
            found = [self.channel.call("search_one", embeddings, k, model_id=self.path)]
        else:
            calls = [(embeddings[part], k) for part in _even(len(embeddings), self.chunk)]
            found = self.channel.call_many("search", calls, model_id=self.path)
        ids = [np.empty((0, k), np.int64), *(part.ids for part in found)]
        similarities = [np.empty((0, k), np.float32), *(part.similarities for part in found)]
        return Neighbours(np.concatenate(ids), np.concatenate(similarities))

    def metadata(self, ids: Sequence[int]) -> pa.Table:
        return self._rows("metadata", ids)

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        return self._rows("fetch", ids)

    def _rows(self, method: str, ids: Sequence[int]) -> pa.Table:
        # No ids are one call too: the columns of the answer are the index's own.
        calls = [([int(i) for i in ids[part]],) for part in _even(len(ids), self.chunk)] or [([],)]
        return pa.concat_tables(self.channel.call_many(method, calls, model_id=self.path))

    def _described(self) -> dict[str, Any]:
        if not self._facts:
            self._facts = dict(self.channel.call("describe", model_id=self.path))
        return self._facts


def _stacked(parts: Sequence[Floats], encoder: ServedEncoder) -> Floats:
    return np.concatenate(parts) if parts else np.empty((0, encoder.dimension), np.float32)
