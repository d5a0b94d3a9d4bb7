"""A sentence of a page as stretches of text, of which some are set strong. Knows no HTML."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A stretch of a sentence; `strong` ones are what it is about."""

    text: str
    strong: bool = False


Sentence = tuple[Span, ...]
