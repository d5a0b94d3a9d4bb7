"""Requests for the apps of the Serve tests."""

from __future__ import annotations

import numpy as np

from c2b_ray.roles import ChatRequest, GenerationRequest, Message, Pixels

RENDERER = "world:renderer?mislabel=0.2"


def asked(text: str, seed: int = 0) -> ChatRequest:
    return ChatRequest((Message("user", text),), seed=seed)


def pictures(n: int) -> list[Pixels]:
    """Of different sizes, so that a batch is no rectangle."""
    rng = np.random.default_rng(7)
    return [rng.integers(0, 256, (4 + i % 3, 5, 3), dtype=np.uint8) for i in range(n)]


def prompts(n: int) -> list[GenerationRequest]:
    """One in four names nothing that can be drawn."""
    things = ("bus at night", "red mug", "boat", "zebra")
    return [GenerationRequest(f"a photo of a {things[i % 4]}", seed=2**33 * i) for i in range(n)]
