"""The captioner's deployment: captions and answers for all requests, gathered into batches.

It knows the role `Captioner` and Serve; which model it serves is an argument, and `deployments/` says where it runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from ray import serve

from c2b_ray.config.placement import UNSAID, Computing
from c2b_ray.errors import ServiceError
from c2b_ray.roles import Answer, Captioner, CaptionReply, CaptionScorer, Floats, Pixels, Question
from c2b_ray.serving.batching import (
    BatchSettings,
    ModelReplica,
    ModelThreads,
    RequestBatcher,
    can_be_probed,
    load,
    refuse_other_model,
    take_gpus,
)
from c2b_ray.serving.channel import carried_in_text
from c2b_ray.serving.pictures import Packed, Rows, answer_packs, decoded, weight

DEPLOYMENT = "Captioner"
Reply = TypeVar("Reply", Answer, CaptionReply)
Answers = tuple[list[list[Answer]], list[str | None]]
_PROBE = Question("Is this a photo by day or by night?", ("day", "night"))


@serve.deployment(name=DEPLOYMENT)
class CaptionerServer(ModelReplica):
    """Serves one captioner; every call names the model that the caller expects."""

    def __init__(self, model: str, threads: int = 1, computing: Computing = UNSAID) -> None:
        take_gpus()
        self._spec, self._computing = model, computing
        with carried_in_text():
            self._captioner: Captioner = load("captioner", computing, model)
        self._model_threads = ModelThreads(DEPLOYMENT, threads)
        self._settings = BatchSettings()
        self._captions: RequestBatcher[tuple[Packed, Sequence[str]], list[CaptionReply]] = RequestBatcher(
            self._caption, lambda: self._settings, threads
        )
        # One batch more than the model takes calls: it is decoded while the others are computed.
        self._answers: RequestBatcher[tuple[Packed, Sequence[Sequence[Question]]], Answers] = RequestBatcher(
            self._answer, lambda: self._settings, threads + 1
        )

    async def describe(self, model: str | None = None) -> dict[str, Any]:
        """Returns facts about the served model. With a spec, raises an error if another model is served."""
        if model is not None:
            refuse_other_model(DEPLOYMENT, self._spec, model)
        scores = isinstance(self._captioner, CaptionScorer)
        return {
            "model": self._spec,
            "computing": self._computing,
            "revision": self._captioner.revision,
            "scores": scores,
            "facts": tuple(getattr(self._captioner, "facts", ())),
        }

    async def caption(self, model: str, images: Packed, labels: Sequence[str]) -> list[CaptionReply]:
        """Returns a caption per image, as the role defines it."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        rows = await weight(self._model_threads, images, self._settings.max_batch_size)
        return await self._captions.ask((images, labels), rows)

    async def answer(self, model: str, images: Packed, questions: Sequence[Sequence[Question]]) -> Answers:
        """Returns the answers to each image's questions (none where it cannot be decoded), and each image's error."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        rows = await weight(self._model_threads, images, self._settings.max_batch_size)
        return await self._answers.ask((images, questions), max(rows, sum(map(len, questions))))

    async def caption_scores(self, model: str, images: Packed, texts: Sequence[str]) -> Rows:
        """Returns the scores of the texts for each image, as the role defines them. One request is one batch."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        [rows] = await answer_packs(
            self._model_threads, [images], len(texts), lambda pixels, _: self._scores_of(pixels, texts)
        )
        return rows

    async def check_health(self) -> None:
        """Raises where a plain grey image gets no answer; Serve then replaces the replica."""
        await self._model_threads.check(self._test)

    def _test(self) -> None:
        if not can_be_probed(self._spec):
            return
        [answer] = self._answers_to([np.full((64, 64, 3), 128, np.uint8)], [_PROBE])
        if answer.error:
            raise ServiceError(f"{DEPLOYMENT}: {self._spec} cannot say if a grey image is day or night: {answer.error}")

    async def _caption(self, requests: list[tuple[Packed, Sequence[str]]]) -> list[list[CaptionReply]]:
        images, errors = await decoded(self._model_threads, [packed for packed, _ in requests])
        labels = [label for _, items in requests for label in items]
        to_caption = [(image, label) for image, label in zip(images, labels, strict=True) if image is not None]
        new_replies = iter(await self._model_threads.run_batch(self._captions_of, len(to_caption), to_caption))
        replies = [CaptionReply(None, error) if error is not None else next(new_replies) for error in errors]
        return [replies[a:b] for a, b in pairwise(accumulate((len(items) for _, items in requests), initial=0))]

    async def _answer(self, requests: list[tuple[Packed, Sequence[Sequence[Question]]]]) -> list[Answers]:
        images, errors = await decoded(self._model_threads, [packed for packed, _ in requests])
        questions = [items for _, of_images in requests for items in of_images]
        pairs = [(i, q) for i, image in enumerate(images) if image is not None for q in questions[i]]
        shown_images = [image for i, _ in pairs if (image := images[i]) is not None]
        replies = await self._model_threads.run_batch(self._answers_to, len(pairs), shown_images, [q for _, q in pairs])
        answers: list[list[Answer]] = [[] for _ in images]
        for (i, _), reply in zip(pairs, replies, strict=True):
            answers[i].append(reply)
        ends = accumulate((len(packed) for packed, _ in requests), initial=0)
        return [(answers[a:b], errors[a:b]) for a, b in pairwise(ends)]

    def _captions_of(self, pairs: Sequence[tuple[Pixels, str]]) -> list[CaptionReply]:
        images, labels = [image for image, _ in pairs], [label for _, label in pairs]
        return _as_many(self._spec, self._captioner.caption(images, labels) if pairs else [], len(pairs))

    def _answers_to(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        replies = self._captioner.answer(images, questions) if questions else []
        answers = _as_many(self._spec, replies, len(questions))
        for answer, question in zip(answers, questions, strict=True):
            _check(self._spec, answer, question)
        return answers

    def _scores_of(self, images: list[Pixels], texts: Sequence[str]) -> Floats:
        if not isinstance(self._captioner, CaptionScorer):
            raise ServiceError(f"{DEPLOYMENT}: {self._spec} gives captions no scores")
        scores = self._captioner.caption_scores(images, texts)
        if scores.shape != (len(images), len(texts)):
            raise ServiceError(
                f"{DEPLOYMENT}: {self._spec} gave scores of shape {scores.shape} to {len(images)} images and "
                f"{len(texts)} texts"
            )
        return scores


def _as_many(spec: str, replies: list[Reply], rows: int) -> list[Reply]:
    if len(replies) != rows:
        raise ServiceError(f"{DEPLOYMENT}: {spec} gave {len(replies)} replies to {rows} rows")
    return replies


def _check(spec: str, answer: Answer, question: Question) -> None:
    """Raises ServiceError where a model breaks the role: a choice that was not offered, or invalid probabilities."""
    if (answer.choice is None) == (answer.error is None) or answer.choice not in (None, *question.choices):
        raise ServiceError(f"{DEPLOYMENT}: {spec} answered {answer} to a choice among {question.choices}")
    values = answer.probabilities
    if values is not None and (len(values) != len(question.choices) or not math.isclose(sum(values), 1, abs_tol=1e-3)):
        raise ServiceError(f"{DEPLOYMENT}: {spec} gave {values} as probabilities of {question.choices}")
