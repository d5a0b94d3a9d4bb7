"""What counts as a caption of its label, as an answer to its question, and as an image that a model can be asked about.

Knows texts and arrays; does not know which model produced the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from c2b_ray.filesystems.documents import parse_json
from c2b_ray.names import mentions
from c2b_ray.roles import Answer, CaptionReply, Floats, Pixels, Question

Row = TypeVar("Row")
Reply = TypeVar("Reply")

# Before a choice, these deny it: "it is not red" names nothing.
_DENIED = re.compile(r"(?:\b(?:not|no|never|without|neither|nor)|n['’]t)(?:\s+(?:an?|the|any|in|at|on|of))*\s*$")


def captioned(text: str, label: str) -> CaptionReply:
    """Returns the text on one line as a caption, or an error where it lacks its label."""
    line = " ".join(text.split()).strip("\"'“”")
    if mentions(line, label):
        return CaptionReply(line)
    return CaptionReply(None, f"the caption does not contain {label!r}: said {line[:200]!r}")


def answered(text: str, choices: Sequence[str]) -> Answer:
    """Returns the choice that a free text names, or an error where it names none or several.

    Understands {"answer": …}, the bare choice, and a sentence in which exactly one choice occurs without a negation: of
    "light blue" and "blue" the longer one where both match.
    """
    said = _unwrapped(text)
    tidy = " ".join(said.split()).strip(" .,;:!\"'“”`*").casefold()
    for choice in choices:
        if tidy == " ".join(choice.split()).casefold():
            return Answer(choice)
    rest, result = tidy, []
    for choice in sorted(choices, key=len, reverse=True):
        pattern = _pattern(choice.split())
        if any(not _DENIED.search(rest[: match.start()]) for match in pattern.finditer(rest)):
            result.append(choice)
        rest = pattern.sub("…", rest)
    if len(result) == 1:
        return Answer(result[0])
    return Answer(None, None, f"named {'several choices' if result else 'no choice'}: said {text.strip()[:200]!r}")


def among_usable(
    images: Sequence[Pixels],
    rows: Sequence[Row],
    ask: Callable[[list[Pixels], list[Row]], list[Reply]],
    refuse: Callable[[str], Reply],
) -> list[Reply]:
    """Returns a reply per row: the result of `ask` for usable images, and an error for others."""
    if len(images) != len(rows):
        raise ValueError(f"{len(images)} images for {len(rows)} rows")
    reasons = [unusable(image) for image in images]
    usable = [i for i, reason in enumerate(reasons) if reason is None]
    said = iter(ask([images[i] for i in usable], [rows[i] for i in usable]) if usable else [])
    return [next(said) if reason is None else refuse(reason) for reason in reasons]


def scores_among_usable(
    images: Sequence[Pixels], texts: Sequence[str], ask: Callable[[list[Pixels]], Floats]
) -> Floats:
    """Returns float32 (images, texts): the result of `ask` for usable images, NaN for others."""
    result = np.full((len(images), len(texts)), np.nan, np.float32)
    usable = [i for i, image in enumerate(images) if unusable(image) is None]
    if usable and texts:
        result[usable] = ask([images[i] for i in usable])
    return result


def unusable(image: Pixels) -> str | None:
    """Returns why an image cannot be used, None if it can. A black image can."""
    shape = " × ".join(map(str, image.shape))
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        return f"the image is {image.dtype} {shape}; expected uint8 height × width × 3"
    return None if image.size else f"the image has no pixels: {shape}"


def no_caption(reason: str) -> CaptionReply:
    return CaptionReply(None, reason)


def no_answer(reason: str) -> Answer:
    return Answer(None, None, reason)


def probable(question: Question, probabilities: Sequence[float]) -> Answer:
    """Returns the likeliest choice, or an error where the probabilities are not finite."""
    values = tuple(float(p) for p in probabilities)
    if not np.isfinite(values).all():
        return Answer(None, None, "the model gives no finite probabilities; check its weights, or dtype=float32")
    return Answer(question.choices[int(np.argmax(values))], values)


def _unwrapped(text: str) -> str:
    """Returns the value of "answer" in a JSON reply, fenced or not; the text itself where it is no such reply."""
    inner = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        value = parse_json(inner.group()) if inner else None
    except ValueError:
        return text
    return value["answer"] if isinstance(value, dict) and isinstance(value.get("answer"), str) else text


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    return re.compile(r"(?<!\w)" + r"[\s_-]+".join(re.escape(word.casefold()) for word in words) + r"(?!\w)")
