"""Captions and answers as any model gives them: the prompts that ask for them, and what counts as one.

A caption has to name its label, an answer is one of its question's choices, and an image has to be one that a model can
be asked about. Knows texts and arrays; does not know which model produced the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from c2b_ray import prompts
from c2b_ray.names import mentions
from c2b_ray.roles import Answer, CaptionReply, ChatReply, Floats, Pixels, Question
from c2b_ray.storage.manifest import parse_json

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


def parse_answer(text: str, choices: Sequence[str]) -> Answer:
    """Returns the choice that a free text names, or an error where it names none or several.

    Understands {"answer": …}, the bare choice, and a sentence in which exactly one choice occurs without a negation: of
    "light blue" and "blue" the longer one where both match.
    """
    answer = _unwrapped(text)
    tidy = " ".join(answer.split()).strip(" .,;:!\"'“”`*").casefold()
    for choice in choices:
        if tidy == " ".join(choice.split()).casefold():
            return Answer(choice)
    remaining, result = tidy, []
    for choice in sorted(choices, key=len, reverse=True):
        spelled = r"[\s_-]+".join(re.escape(word.casefold()) for word in choice.split())
        pattern = re.compile(rf"(?<!\w){spelled}(?!\w)")
        if any(not _DENIED.search(remaining[: match.start()]) for match in pattern.finditer(remaining)):
            result.append(choice)
        remaining = pattern.sub("…", remaining)
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
    usable_rows = [i for i, reason in enumerate(reasons) if reason is None]
    replies = iter(ask([images[i] for i in usable_rows], [rows[i] for i in usable_rows]) if usable_rows else [])
    return [next(replies) if reason is None else refuse(reason) for reason in reasons]


def scores_among_usable(
    images: Sequence[Pixels], texts: Sequence[str], ask: Callable[[list[Pixels]], Floats]
) -> Floats:
    """Returns float32 (images, texts): the result of `ask` for usable images, NaN for others."""
    result = np.full((len(images), len(texts)), np.nan, np.float32)
    usable_rows = [i for i, image in enumerate(images) if unusable(image) is None]
    if usable_rows and texts:
        result[usable_rows] = ask([images[i] for i in usable_rows])
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


# Prompts that ask a model for captions and answers, with one retry.


PROMPTS = ("image_caption", "image_caption_again", "image_question", "image_sentences")
CAPTION_TOKENS = 128  # seven short sentences, as many as the paper's examples have at most

Say = Callable[[Sequence[Pixels], Sequence[str]], Sequence[ChatReply]]
"""Returns a reply per image to the prompt at the same position."""
SayChoice = Callable[[Sequence[Pixels], Sequence[Question]], Sequence[ChatReply]]
"""Returns a reply per image to the question at the same position, held to its choices where the model can be."""


def wording() -> list[str]:
    """Returns all prompts; they are part of the revision of each model that answers them."""
    return [prompts.text(name) for name in PROMPTS]


def question_prompt(question: Question) -> str:
    return _text("image_question", question=question.text, choices=", ".join(question.choices))


def scoring_prompt() -> str:
    """Returns the prompt to which a scored caption is the reply; the label is in the caption, not in the prompt."""
    return _text("image_sentences")


def captions(images: Sequence[Pixels], labels: Sequence[str], say: Say) -> list[CaptionReply]:
    """Returns the captions of `say`, checked for their labels; failed ones are requested once more in firmer words. An
    unusable image has an error."""
    return among_usable(images, labels, lambda usable_images, rows: _captions(usable_images, rows, say), no_caption)


def _captions(images: Sequence[Pixels], labels: Sequence[str], say: Say) -> list[CaptionReply]:
    result: list[CaptionReply] = [CaptionReply(None, "the label is empty")] * len(labels)
    open_rows = [i for i, label in enumerate(labels) if label.strip(" _")]
    for prompt in PROMPTS[:2]:
        if open_rows:
            texts = [_text(prompt, label=labels[i].replace("_", " ")) for i in open_rows]
            for i, reply in zip(open_rows, say([images[i] for i in open_rows], texts), strict=True):
                result[i] = CaptionReply(None, reply.error) if reply.error else captioned(reply.text, labels[i])
        open_rows = [i for i in open_rows if result[i].error]
    return result


def answers(images: Sequence[Pixels], questions: Sequence[Question], say: SayChoice) -> list[Answer]:
    """Returns the choices that the replies of `say` name, without probabilities. An unusable image has an error."""

    def read(usable: list[Pixels], rows: list[Question]) -> list[Answer]:
        return [
            no_answer(reply.error) if reply.error else parse_answer(reply.text, question.choices)
            for reply, question in zip(say(usable, rows), rows, strict=True)
        ]

    return among_usable(images, questions, read, no_answer)


def _text(name: str, **values: str) -> str:
    [message] = prompts.messages(name, **values)
    return message.content
