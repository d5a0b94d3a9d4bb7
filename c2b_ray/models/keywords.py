"""Keywords of a text by YAKE (Campos et al. 2020), with the settings that Bias-to-Text uses. It knows text alone."""

from __future__ import annotations

from c2b_ray.errors import InputError
from c2b_ray.extras import needed_by

LANGUAGE, SAME = "en", 0.9
"""SAME: keywords more similar than this to a better one are dropped (YAKE's dedupLim)."""


def keywords(text: str, words: int = 3, most: int = 20) -> list[str]:
    """At most so many keywords of at most so many words, the best first; none of a text without words."""
    with needed_by("keywords of captions", InputError, "'c2b-ray[evaluate]'"):
        from yake import KeywordExtractor
    if not text.strip():
        return []
    extractor = KeywordExtractor(lan=LANGUAGE, n=words, dedupLim=SAME, top=most, features=None)
    return [" ".join(str(word).lower().split()) for word, _ in extractor.extract_keywords(text)]


def sentence(caption: str) -> str:
    """The caption with a full stop: a keyword does not go on from the end of one caption into the next."""
    text = caption.rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
