"""Keywords of a text by YAKE (Campos et al. 2020), with the settings that Bias-to-Text uses. It knows text alone."""

from __future__ import annotations

from c2b_ray.errors import InputError
from c2b_ray.extras import needed_by

LANGUAGE, SAME = "en", 0.9
"""SAME: keywords more similar than this to a better one are dropped (YAKE's dedupLim)."""


def keywords(text: str, words: int = 3, most: int = 20) -> list[str]:
    """Returns at most `most` keywords of at most `words` words, the best first; none for a text without words."""
    with needed_by("keywords of captions", InputError, "'c2b-ray[evaluate]'"):
        from yake import KeywordExtractor
    if not text.strip():
        return []
    extractor = KeywordExtractor(lan=LANGUAGE, n=words, dedupLim=SAME, top=most, features=None)
    return [" ".join(str(word).lower().split()) for word, _ in extractor.extract_keywords(text)]


def sentence(caption: str) -> str:
    """Returns the caption with a full stop, so no keyword spans two captions."""
    text = caption.rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
