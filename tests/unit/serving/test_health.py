"""Health checks ask the model itself. Deployments are called as plain objects; no cluster is started."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from c2b_ray.models import catalog
from c2b_ray.roles import Floats, GeneratedImage, GenerationRequest, Pixels
from c2b_ray.serving.answers import LoadedModel
from c2b_ray.serving.classifier import ClassifierServer
from c2b_ray.serving.generator import GeneratorServer

CUDA = "CUDA error: an illegal memory access was encountered"


class OnGpu:
    """A generator and classifier on a device that fails for good at some moment, as CUDA contexts do."""

    labels, revision, failed = ("a", "b"), "1", False

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        self.compute()
        return [GeneratedImage(np.zeros((2, 2, 3), np.uint8)) for _ in requests]

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        self.compute()
        return np.zeros((len(images), 2), np.float32)

    def compute(self) -> None:
        if self.failed:
            raise RuntimeError(CUDA)


def checked(server: Any, model: OnGpu, ask: Any) -> None:
    async def check() -> None:
        await server.check_health()
        model.failed = True
        with pytest.raises(RuntimeError, match=CUDA):
            await ask()
        for _ in range(2):  # and it stays sick, until Serve replaces the replica
            with pytest.raises(RuntimeError, match=CUDA):
                await server.check_health()

    asyncio.run(check())
    server._model_threads.close()


def test_a_generator_whose_device_failed_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = OnGpu()
    monkeypatch.setattr(catalog, "load", lambda role, spec: model)
    server = GeneratorServer.func_or_class("diffusers:x")
    checked(server, model, lambda: server.generate("diffusers:x", [GenerationRequest("a dog", 1)]))


def test_classifiers_whose_device_failed_are_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = OnGpu()
    monkeypatch.setattr(catalog, "load", lambda role, spec: model)
    server = ClassifierServer.func_or_class()
    held = LoadedModel(server._load("timm:x"), 0)
    server._loaded_models._loaded["timm:x"] = held  # as Serve's multiplexing, which needs a replica, would do
    grey = np.full((4, 4, 3), 128, np.uint8)
    checked(server, model, lambda: server._model_threads.run(model.logits, [grey], [""]))
