"""Reads documents that clients send, JSON or YAML, strictly and at bounded cost.

It refuses duplicate keys, deep nesting, YAML's aliases (which can expand without bound), NaN, numbers of thousands of
digits, and text that databases reject (NUL, lone surrogates). It knows no fields.
"""

from __future__ import annotations

import email.message
import hashlib
import json
from typing import Any, TypeVar

import yaml
from fastapi import Request
from pydantic import BaseModel, ValidationError

from c2b_ray.config.problems import first_problem
from c2b_ray.endpoint.api.problems import FieldError, ProblemError
from c2b_ray.errors import ConfigError
from c2b_ray.filesystems.documents import StrictLoader, parse_json

M = TypeVar("M", bound=BaseModel)
JSON, YAML = ("application/json",), ("application/yaml", "application/x-yaml", "text/yaml")
DEEPEST = 32
LARGEST_YAML = 512 * 1024
"""The most characters of YAML, whose parser is a hundred times slower than JSON's."""


class Document:
    """The body of a request, not yet parsed: its bytes and its media type."""

    def __init__(self, data: bytes, content_type: str) -> None:
        self.data, self.content_type = data, content_type

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def parsed(self) -> Any:
        """Parses the body. Raises 400 if it is malformed, 415 if its type is neither JSON nor YAML."""
        header = email.message.Message()
        header["content-type"] = self.content_type
        kind = header.get_content_type() if self.content_type else JSON[0]
        if kind not in JSON + YAML:
            raise ProblemError(415, "unsupported_media_type", f"send {JSON[0]} or {YAML[0]}, not {kind!r}")
        try:
            text = self.data.decode("utf-8-sig")
            value = _yaml(text) if kind in YAML else parse_json(text)
            _check(value, 0)
        except RecursionError as error:
            raise _malformed(kind, "it is nested too deeply") from error
        except (ValueError, yaml.YAMLError) as error:
            raise _malformed(kind, " ".join(str(error).split())) from error
        return value

    def as_model(self, model: type[M]) -> M:
        """Parses and validates the body. Raises 422, which names the wrong field."""
        value = self.parsed()
        if not isinstance(value, dict):
            raise ProblemError(422, "invalid", "expected an object of fields", [FieldError("", "expected an object")])
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise _of(error, model) from error


async def document(request: Request) -> Document:
    """Reads a request's body; a dependency of routes. The envelope limits its size meanwhile."""
    return Document(await request.body(), request.headers.get("content-type", ""))


def canonical(value: Any) -> bytes:
    """Returns the same bytes for equal JSON values, whatever their formatting."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _of(error: ValidationError, model: type[BaseModel]) -> ProblemError:
    problem = first_problem(error, None, model)
    assert isinstance(problem, ConfigError)
    return ProblemError(422, "invalid", str(problem), [
        FieldError(problem.field, str(problem).removeprefix(f"{problem.field}: "))
    ])  # fmt: skip


def _yaml(text: str) -> Any:
    if len(text) > LARGEST_YAML:
        raise ValueError(f"YAML may have at most {LARGEST_YAML} characters; send JSON")
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has aliases (*name); replace them by their values")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return yaml.load(text, StrictLoader)  # noqa: S506 — a safe loader


def _check(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("a text holds NUL or half of a surrogate pair")
    elif isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise ValueError(f"the key {str(name)[:60]!r} is not a text; quote it")
            _check(name, depth)
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, float) and (value != value or abs(value) == float("inf")):
        raise ValueError("NaN and Infinity are not numbers in JSON")
    elif isinstance(value, int):
        if abs(value) >= 2**63:
            raise ValueError("a number does not fit in 64 bits")
    elif value is not None and not isinstance(value, float):
        raise ValueError(f"{str(value)[:60]!r} is read as a {type(value).__name__}; quote it")


def _malformed(kind: str, why: str) -> ProblemError:
    return ProblemError(400, "malformed", f"the body is not valid {kind}: {why}")
