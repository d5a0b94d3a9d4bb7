"""The captioner's deployment: whole batches for pipelines, single captions and questions gathered into batches.

It knows the role `Captioner` and Serve; which model it serves is an argument, where it runs is in `deployments/`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from ray import serve

from c2b_ray.errors import ServiceError
from c2b_ray.models import catalog
from c2b_ray.roles import Answer, CaptionReply, Pixels, Question
from c2b_ray.serving.failures import carried_in_text
from c2b_ray.serving.payload import PackedImages, unpack
from c2b_ray.serving.replica import Hands, apply_settings, can_be_probed, refuse_other_model, take_gpus

DEPLOYMENT = "Captioner"
Reply = TypeVar("Reply", Answer, CaptionReply)
_PROBE = Question("Is this a photo by day or by night?", ("day", "night"))


@serve.deployment(name=DEPLOYMENT)
class CaptionerServer:
    """Serves one captioner; every call names the model that the caller expects."""

    def __init__(self, model: str, threads: int = 1) -> None:
        take_gpus()
        self._spec = model
        with carried_in_text():
            self._captioner = catalog.captioner(model)
        self._hands = Hands(DEPLOYMENT, threads)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Takes `BatchSettings`, also while it serves."""
        apply_settings(user_config, self._captions_together, self._answers_together)

    async def describe(self, model: str | None = None) -> dict[str, Any]:
        """What is served; asked with a model, refuses if it is another."""
        if model is not None:
            refuse_other_model(DEPLOYMENT, self._spec, model)
        return {"model": self._spec, "revision": self._captioner.revision}

    async def caption(self, model: str, images: PackedImages, labels: Sequence[str]) -> list[CaptionReply]:
        """A caption per image, as the role gives them."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._hands.run_batch(self._captions, len(labels), unpack(images), labels)

    async def answer(self, model: str, images: PackedImages, questions: Sequence[Question]) -> list[Answer]:
        """An answer per image, as the role gives them."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._hands.run_batch(self._answers, len(questions), unpack(images), questions)

    async def caption_one(self, model: str, image: Pixels, label: str) -> CaptionReply:
        """One caption, made together with whatever else waits."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._captions_together((image, label))

    async def answer_one(self, model: str, image: Pixels, question: Question) -> Answer:
        """One answer, given together with whatever else waits."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._answers_together((image, question))

    @serve.batch
    async def _captions_together(self, items: list[tuple[Pixels, str]]) -> list[CaptionReply]:
        images, labels = [image for image, _ in items], [label for _, label in items]
        return await self._hands.run_batch(self._captions, len(items), images, labels)

    @serve.batch
    async def _answers_together(self, items: list[tuple[Pixels, Question]]) -> list[Answer]:
        images, questions = [image for image, _ in items], [question for _, question in items]
        return await self._hands.run_batch(self._answers, len(items), images, questions)

    async def statistics(self) -> dict[str, Any]:
        return self._hands.statistics()

    async def check_health(self) -> None:
        """Raises where a plain grey image gets no answer; Serve then replaces the replica."""
        await self._hands.check(self._test)

    def _test(self) -> None:
        if not can_be_probed(self._spec):
            return
        [answer] = self._answers([np.full((64, 64, 3), 128, np.uint8)], [_PROBE])
        if answer.error:
            raise ServiceError(f"{DEPLOYMENT}: {self._spec} cannot say if a grey image is day or night: {answer.error}")

    def _captions(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        return _as_many(self._spec, self._captioner.caption(images, labels), len(labels))

    def _answers(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        answers = _as_many(self._spec, self._captioner.answer(images, questions), len(questions))
        for answer, question in zip(answers, questions, strict=True):
            _check(self._spec, answer, question)
        return answers

    def __del__(self) -> None:
        if hasattr(self, "_hands"):  # not there if the model failed to load
            self._hands.close()


def _as_many(spec: str, replies: list[Reply], rows: int) -> list[Reply]:
    if len(replies) != rows:
        raise ServiceError(f"{DEPLOYMENT}: {spec} gave {len(replies)} replies to {rows} rows")
    return replies


def _check(spec: str, answer: Answer, question: Question) -> None:
    """ServiceError where a model breaks the role: a choice that is none, probabilities that are none."""
    if (answer.choice is None) == (answer.error is None) or answer.choice not in (None, *question.choices):
        raise ServiceError(f"{DEPLOYMENT}: {spec} answered {answer} to a choice among {question.choices}")
    values = answer.probabilities
    if values is not None and (len(values) != len(question.choices) or not math.isclose(sum(values), 1, abs_tol=1e-3)):
        raise ServiceError(f"{DEPLOYMENT}: {spec} gave {values} as probabilities of {question.choices}")
