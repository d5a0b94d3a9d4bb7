"""Questions, texts and schemas for the suites of language models."""

from __future__ import annotations

from typing import Any

from c2b_ray.roles import ChatRequest, Message

CONTEXT = 512
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"enum": ["yes", "no", "perhaps"]},
        "parts": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string", "maxLength": 4}},
    },
    "required": ["answer", "parts"],
    "additionalProperties": False,
}
COLOURS = {"enum": ["red", "green", "blue"]}
TEXTS = ["a photo of a bus", "on", "a bus in heavy snow, at night", "two dogs"]


def ask(text: str, **settings: Any) -> ChatRequest:
    return ChatRequest((Message("system", "Answer in JSON."), Message("user", text)), **settings)
