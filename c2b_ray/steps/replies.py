"""The JSON schemas that the propose, template and caption prompts ask a language model to answer in.

It does not know which model answers, nor whether the schema constrained the decoding or is only checked afterwards.
"""

from __future__ import annotations

from typing import Any

_name = {"type": "string", "minLength": 1, "maxLength": 60}

PROPOSALS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "attributes": {
            "type": "array",
            "minItems": 1,
            "maxItems": 16,
            "items": {
                "type": "object",
                "properties": {
                    "name": _name,
                    "values": {"type": "array", "minItems": 2, "maxItems": 10, "items": _name},
                },
                "required": ["name", "values"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["attributes"],
    "additionalProperties": False,
}

TEMPLATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"template": {"type": "string", "minLength": 1, "maxLength": 200}},
    "required": ["template"],
    "additionalProperties": False,
}

CAPTION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"caption": {"type": "string", "minLength": 1, "maxLength": 300}},
    "required": ["caption"],
    "additionalProperties": False,
}
