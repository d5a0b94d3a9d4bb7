"""The JSON schemas of a language model's replies to the prompts, and the parsing of a reply.

It does not know which model answers, nor whether the schema constrained the decoding or is only checked on the reply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from c2b_ray.errors import ReplyError
from c2b_ray.roles import ChatReply

_name = {"type": "string", "minLength": 1, "maxLength": 60}

PROPOSALS_SCHEMA: Mapping[str, object] = {
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

TEMPLATE_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"template": {"type": "string", "minLength": 1, "maxLength": 200}},
    "required": ["template"],
    "additionalProperties": False,
}

CAPTION_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"caption": {"type": "string", "minLength": 1, "maxLength": 300}},
    "required": ["caption"],
    "additionalProperties": False,
}

SAME_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"same": {"type": "boolean"}},
    "required": ["same"],
    "additionalProperties": False,
}


def parse_reply(reply: ChatReply, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON object of a reply. Raises ReplyError, which says what is wrong with it."""
    if reply.error:
        raise ReplyError(reply.error, reply.text)
    if not reply.text.strip():
        raise ReplyError("empty reply", reply.text)
    try:
        data = json.loads(_without_fence(reply.text))
    except ValueError as error:
        raise ReplyError(f"not JSON: {error}", reply.text) from error
    from jsonschema import Draft202012Validator  # here: it takes a tenth of the start of audits that ask no such model

    problem = next(iter(sorted(Draft202012Validator(dict(schema)).iter_errors(data), key=lambda e: list(e.path))), None)
    if problem is not None:
        path = "/".join(str(p) for p in problem.path) or "the whole"
        raise ReplyError(f"JSON of another form, at {path}: {problem.message[:200]}", reply.text)
    return dict(data)


def _without_fence(text: str) -> str:
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json")
    return text
