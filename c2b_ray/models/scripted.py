"""A `LanguageModel` and a `Captioner` that reply from a script: for tests, demonstrations and dry runs.

They know their scripts and keep every request; they do not read the questions, unless their script is a function of
them. They ship with the package, obey their roles like any other model, and raise an error when their script runs out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np

from c2b_ray.errors import InputError, ServiceError, SpecError
from c2b_ray.models.captioned import among_usable, captioned, no_answer, no_caption, parse_answer, scores_among_usable
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import (
    Answer,
    CaptionReply,
    ChatReply,
    ChatRequest,
    Description,
    Floats,
    Pixels,
    Question,
    TokenLogProb,
)
from c2b_ray.storage.manifest import read_json
from c2b_ray.tables import content_id

Request = TypeVar("Request")
Said = TypeVar("Said")


def load_language_model(spec: Spec) -> ScriptedLanguageModel:
    """Loads the model of `scripted:PATH.json`, a list of reply texts that are returned in order. Raises SpecError where
    the file is no such list."""
    replies = _read(spec)
    if not _texts(replies):
        raise SpecError(f"{spec.text}: {spec.name!r} must hold a JSON list of strings, the replies in their order")
    return ScriptedLanguageModel(replies, revision=content_id("scripted_lm", replies))


def describe_language_model(spec: Spec) -> Description:
    return Description(load_language_model(spec).revision)


def load_captioner(spec: Spec) -> ScriptedCaptioner:
    """The captioner of `scripted:PATH.json`, {"captions": [texts], "answers": [texts], "scores": [numbers]}.

    Raises SpecError for other content; without scores the captioner is no `roles.CaptionScorer`.
    """
    script = _read(spec)
    readers = {"captions": _texts, "answers": _texts, "scores": _numbers}
    if (
        not isinstance(script, dict)
        or not script
        or not script.keys() <= readers.keys()
        or not all(readers[name](value) for name, value in script.items())
    ):
        raise SpecError(
            f'{spec.text}: {spec.name!r} must hold {{"captions": [texts], "answers": [texts], "scores": [numbers]}}, '
            "or some of them, in their order"
        )
    arguments = (script.get("captions", ()), script.get("answers", ()), content_id("scripted_captioner", script))
    return ScriptedCaptionScorer(script["scores"], *arguments) if "scores" in script else ScriptedCaptioner(*arguments)


def describe_captioner(spec: Spec) -> Description:
    return Description(load_captioner(spec).revision)


def _read(spec: Spec) -> Any:
    spec.options_among(())
    try:
        return read_json(spec.name)
    except InputError as error:
        raise SpecError(f"{spec.text}: no readable JSON file at {spec.name!r} ({error})") from error


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(number) in (int, float) for number in value)


class ScriptedLanguageModel:
    """Each script is a list, used up in the order of the requests, or a function of a request, which never runs out.

    `replies` answers `chat`, `next_tokens` and `log_likelihoods` the methods of those names. Every request is kept in
    `requests`, in order. ServiceError where a script runs out: nothing is given out from a batch that it cannot fill.
    """

    def __init__(
        self,
        replies: Sequence[str | ChatReply] | Callable[[ChatRequest], str | ChatReply] = (),
        next_tokens: Sequence[list[TokenLogProb]] | Callable[[str], list[TokenLogProb]] = (),
        log_likelihoods: Sequence[float] | Callable[[str], float] = (),
        revision: str = "scripted",
    ) -> None:
        self._replies = _Script("replies", replies)
        self._next_tokens = _Script("next_tokens", next_tokens)
        self._log_likelihoods = _Script("log_likelihoods", log_likelihoods)
        self.revision = revision
        self.requests: list[ChatRequest] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Returns the script's next replies, one per request."""
        self.requests.extend(requests)
        replies = self._replies.answers(requests)
        return [reply if isinstance(reply, ChatReply) else ChatReply(reply) for reply in replies]

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        """Returns the script's next lists, each sorted by log-probability and cut to k."""
        return [sorted(row, key=lambda t: -t.log_prob)[:k] for row in self._next_tokens.answers(texts)]

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        """Returns the script's next numbers."""
        return self._log_likelihoods.answers(texts)


class ScriptedCaptioner:
    """As `ScriptedLanguageModel`: `captions` answers `caption`, `answers` answers `answer`, each a list or a function.

    A text is held to the role: a caption to its label, an answer to its choices. Images that cannot be looked at use up
    nothing of a script. Labels and questions are kept in `requests`, in order.
    """

    def __init__(
        self,
        captions: Sequence[str] | Callable[[tuple[Pixels, str]], str] = (),
        answers: Sequence[str | Answer] | Callable[[tuple[Pixels, Question]], str | Answer] = (),
        revision: str = "scripted",
    ) -> None:
        self._captions, self._answers = _Script("captions", captions), _Script("answers", answers)
        self.revision = revision
        self.requests: list[str | Question] = []

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        """Returns the script's next captions, one per image."""
        self.requests.extend(labels)
        return among_usable(images, labels, self._next_captions, no_caption)

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        """Returns the script's next answers, one per image."""
        self.requests.extend(questions)
        return among_usable(images, questions, self._next_answers, no_answer)

    def _next_captions(self, images: list[Pixels], labels: list[str]) -> list[CaptionReply]:
        texts = self._captions.answers(list(zip(images, labels, strict=True)))
        return [captioned(text, label) for text, label in zip(texts, labels, strict=True)]

    def _next_answers(self, images: list[Pixels], questions: list[Question]) -> list[Answer]:
        texts = self._answers.answers(list(zip(images, questions, strict=True)))
        return [
            reply if isinstance(reply, Answer) else parse_answer(reply, question.choices)
            for reply, question in zip(texts, questions, strict=True)
        ]


class ScriptedCaptionScorer(ScriptedCaptioner):
    """A scripted captioner that scores captions too: `scores` is a list of numbers or a function of (image, text)."""

    def __init__(
        self,
        scores: Sequence[float] | Callable[[tuple[Pixels, str]], float],
        captions: Sequence[str] | Callable[[tuple[Pixels, str]], str] = (),
        answers: Sequence[str | Answer] | Callable[[tuple[Pixels, Question]], str | Answer] = (),
        revision: str = "scripted",
    ) -> None:
        super().__init__(captions, answers, revision)
        self._scores = _Script("scores", scores)

    def caption_scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        """Returns the script's next numbers, first those of the first image's texts; (images, texts)."""
        return scores_among_usable(
            images,
            texts,
            lambda usable_images: np.array(
                self._scores.answers([(image, text) for image in usable_images for text in texts]), np.float32
            ).reshape(len(usable_images), len(texts)),
        )


class _Script(Generic[Request, Said]):
    """The script of one method, with a lock because Serve and thread pools call from several threads."""

    def __init__(self, name: str, script: Sequence[Said] | Callable[[Request], Said]) -> None:
        self._name, self._lock, self._used = name, Lock(), 0
        self._function = script if callable(script) else None
        self._list = [] if callable(script) else list(script)

    def answers(self, requests: Sequence[Request]) -> list[Said]:
        if self._function is not None:
            return [self._function(item) for item in requests]
        with self._lock:
            unused = len(self._list) - self._used
            if len(requests) > unused:
                raise ServiceError(
                    f"the script of {self._name} has run out: {len(requests)} asked for, {unused} of {len(self._list)} "
                    "left; give the scripted model more, or a function"
                )
            self._used += len(requests)
            return self._list[self._used - len(requests) : self._used]
