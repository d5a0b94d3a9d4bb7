"""Prompts that ask a model for captions and answers, with one retry.

Knows the prompts and the form of replies; does not know the model, nor how an image reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from c2b_ray import prompts
from c2b_ray.models.text.captioned import among_usable, answered, captioned, no_answer, no_caption
from c2b_ray.roles import Answer, CaptionReply, ChatReply, Pixels, Question

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
    return among_usable(images, labels, lambda usable, rows: _captions(usable, rows, say), no_caption)


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
            no_answer(reply.error) if reply.error else answered(reply.text, question.choices)
            for reply, question in zip(say(usable, rows), rows, strict=True)
        ]

    return among_usable(images, questions, read, no_answer)


def _text(name: str, **values: str) -> str:
    [message] = prompts.messages(name, **values)
    return message.content
