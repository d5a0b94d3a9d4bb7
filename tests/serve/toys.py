"""Small models that need no library, for replicas: registered the way a third party registers its own."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np

from c2b_ray.errors import SourceError, WeightsError
from c2b_ray.models.catalog import Spec
from c2b_ray.models.scripted import ScriptedCaptioner, ScriptedCaptionScorer
from c2b_ray.roles import Answer, ChatReply, ChatRequest, Floats, ModelFact, Pixels, Question, TokenLogProb
from c2b_ray.tables import seed_of


class ToyLanguageModel:
    """Says what it was told; `pid` answers its process, `fail` raises, `nap` and `slow` take their time."""

    revision = "toy"

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        return [self._reply(request) for request in requests]

    def _reply(self, request: ChatRequest) -> ChatReply:
        said = request.messages[-1].content
        time.sleep({"slow": 1.0, "nap": 0.05}.get(said, 0.0))
        if said == "fail":
            raise SourceError("no such reply")
        if said == "crash":
            raise ZeroDivisionError("a bug")
        return ChatReply(str(os.getpid()) if said == "pid" else f"{said} {request.seed}")

    def next_tokens(self, texts: Sequence[str], k: int) -> list[list[TokenLogProb]]:
        return [[TokenLogProb(i, f"{text}{i}", -float(i)) for i in range(k)] for text in texts]

    def log_likelihood(self, texts: Sequence[str]) -> list[float]:
        return [-float(len(text)) for text in texts]


class ToyEncoder:
    dimension = 6
    revision = "toy-1"
    facts = (ModelFact("input size", "any", "its class"),)

    def __init__(self, sound: bool = True) -> None:
        self._sound = sound

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        return self._units([seed_of(text) for text in texts])

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        return self._units([seed_of(image.tobytes(), list(image.shape)) for image in images])

    def _units(self, seeds: list[int]) -> Floats:
        found = np.array([np.random.default_rng(s).normal(size=self.dimension) for s in seeds]).reshape(-1, 6)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return np.asarray(found if self._sound else found * np.nan, np.float32)


class ToyClassifier:
    labels = ("dark", "light")
    facts = (ModelFact("resize and crop", "none", "nothing states it", assumed=True),)

    def __init__(self, name: str) -> None:
        self.revision = name
        self.weights = np.zeros(60 * 10**6 if name.startswith("heavy") else 1, np.uint8)

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        sign = np.nan if self.revision == "nan" else float(len(self.revision))
        means = np.array([image.mean() for image in images], np.float32)
        return np.stack([-means * sign, means * sign], axis=1).astype(np.float32)


def language_model(spec: Spec) -> ToyLanguageModel:
    if spec.name == "damaged":
        raise WeightsError(f"{spec.text}: these weights are damaged", location="/models/toy.bin")
    return ToyLanguageModel()


def encoder(spec: Spec) -> ToyEncoder:
    return ToyEncoder(sound=spec.name != "nan")


def captioner(spec: Spec) -> ScriptedCaptioner:
    """Says an image's sum and its label; its answers go by the sum, its scores by the sum and the text's length."""

    def answer(asked: tuple[Pixels, Question]) -> Answer:
        image, question = asked
        picked = int(image.sum()) % len(question.choices)
        return Answer(question.choices[picked], tuple(float(i == picked) for i in range(len(question.choices))))

    return ScriptedCaptionScorer(
        lambda asked: asked[0].sum() / len(asked[1]), lambda asked: f"{asked[0].sum()} {asked[1]}", answer, spec.name
    )


def classifier(spec: Spec) -> ToyClassifier:
    spec.options_among(())
    time.sleep(4.0 if spec.name == "slow to load" else 0.0)
    return ToyClassifier(spec.name)
