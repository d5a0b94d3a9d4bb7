"""A sentence of a page as spans of text, some of them emphasised. Knows no HTML."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A span of a sentence; `strong` spans are emphasised."""

    text: str
    strong: bool = False


Sentence = tuple[Span, ...]
