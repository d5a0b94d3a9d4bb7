"""How a model that reads prompts is asked for captions and answers: the words, and the one more try.

Knows the prompts and what counts as a reply; does not know which model says it, nor how an image reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from c2b_ray import prompts
from c2b_ray.models.text.captioned import captioned
from c2b_ray.roles import CaptionReply, ChatReply, Pixels, Question

PROMPTS = ("image_caption", "image_caption_again", "image_question", "image_sentences")
CAPTION_TOKENS = 128  # seven short sentences, as many as the paper's examples have at most

Say = Callable[[Sequence[Pixels], Sequence[str]], Sequence[ChatReply]]
"""A reply per image to the prompt beside it."""


def wording() -> list[str]:
    """All prompts: part of the revision of each model that answers them."""
    return [prompts.text(name) for name in PROMPTS]


def question_prompt(question: Question) -> str:
    return _text("image_question", question=question.text, choices=", ".join(question.choices))


def scoring_prompt() -> str:
    """What a caption's likelihood is that of a reply to; the label is in the caption, and no part of the prompt."""
    return _text("image_sentences")


def captions(images: Sequence[Pixels], labels: Sequence[str], say: Say) -> list[CaptionReply]:
    """What `say` says, checked for its label; what fails is asked for once more in firmer words."""
    result: list[CaptionReply] = [CaptionReply(None, "the label is empty")] * len(labels)
    open_rows = [i for i, label in enumerate(labels) if label.strip(" _")]
    for prompt in PROMPTS[:2]:
        if open_rows:
            texts = [_text(prompt, label=labels[i].replace("_", " ")) for i in open_rows]
            for i, reply in zip(open_rows, say([images[i] for i in open_rows], texts), strict=True):
                result[i] = CaptionReply(None, reply.error) if reply.error else captioned(reply.text, labels[i])
        open_rows = [i for i in open_rows if result[i].error]
    return result


def _text(name: str, **values: str) -> str:
    [message] = prompts.messages(name, **values)
    return message.content
