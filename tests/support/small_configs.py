"""Configs of audits of the embedded world that run in seconds."""

from __future__ import annotations

from typing import Any

EVALUATE: dict[str, Any] = {
    "classes": ["bus"],
    "classifier": {"fog": "world:resnet-planted-0"},
    "truth": {"world": {"scenes": 1000}},
    "methods": {
        "C2B": {
            "images": {"source": "generate", "generator": "world:renderer"},
            "attributes": {"weather": ["clear", "fog"]},
            "captions_per_cell": 1,
            "images_per_caption": 20,
        }
    },
    "b2t": {"captioner": "world:clip", "encoder": "world:clip"},
    "vqa": {"model": "world:clip", "images": 20},
    "retrieval": {"encoder": "world:clip", "shares": [0.5]},
}
PROMPTS: dict[str, Any] = {
    "subjects": ["bus", "mug"],
    "attributes": {"lighting": {"values": ["day", "night"], "targets": ["night"]}},
    "generators": {"base": "world:linked"},
    "language_model": "world:lm",
    "judge": "world:clip",
    "guide": "judge",
    "search": {"weights": [10], "images": 2, "beams": 2, "expansion": 2, "pool": 4, "most_tokens": 6, "keep": 1},
    "methods": ["llm", "templates", "bgps"],
    "evaluation": {"prompts": 2, "images": 2},
    "associations": None,
    "modifiers": None,
}
