"""Prompts that no search has found: written by people, from templates, by a language model, by one that is told the
value.

They are rows of the paper's table. It knows roles and the instructions, not how prompts are judged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from c2b_ray import prompts
from c2b_ray.audits.prompts.steps.tasks import NEUTRAL, Target
from c2b_ray.roles import ChatRequest, LanguageModel
from c2b_ray.tables import seed_of

BIASED = "image_prompt_biased"
SUBJECT = "{subject}"
TEMPLATES = ("a photo of a {subject}", "a picture of a {subject}", "an image of a {subject}", "a {subject}")
CURATED = (
    "a professional photograph of a {subject}",
    "a candid picture of a {subject} on an ordinary morning",
    "a {subject}, seen from the front",
    "a detailed drawing of a {subject}",
    "an image of one {subject} and nothing else",
    "a {subject} in its usual surroundings",
    "a picture of a {subject} for a magazine",
    "a portrait of a {subject}",
)
_TOKENS = 64


def filled(forms: Sequence[str], subjects: Sequence[str], count: int) -> list[tuple[str, str | None]]:
    """Returns `count` prompts with their subjects: every subject with the first form, then with the next; forms without
    a subject are used as they are."""
    rows: list[tuple[str, str | None]] = []
    for form in forms:
        if SUBJECT not in form:
            rows.append((form, None))
            continue
        rows += [(_with_article(form.replace(SUBJECT, subject), subject), subject) for subject in subjects]
    return list(dict.fromkeys(rows))[:count]


def _with_article(text: str, subject: str) -> str:
    return re.sub(rf"\b([Aa]) (?={re.escape(subject)}\b)", r"\1n ", text) if subject[0].lower() in "aeiou" else text


def written(
    model: LanguageModel, target: Target, subjects: Sequence[str], count: int, biased: bool, seed: int
) -> tuple[list[tuple[str, str | None]], str | None]:
    """Returns `count` prompts of the language model at temperature 1, the subjects in turn, each prompt once if it has
    enough different ones; and where there is none, why not, as far as the model says.

    A reply that was cut short or is empty does not count; there are at most three times as many requests as prompts
    wanted.
    """
    result: dict[str, str] = {}
    why = "its replies are empty"
    for attempt in range(3):
        missing = count - len(result)
        if missing <= 0:
            break
        wanted = (
            [(subjects[n % len(subjects)], n) for n in range(count)]
            if attempt == 0
            else [(subjects[n % len(subjects)], attempt * count + n) for n in range(missing)]
        )
        requests = [_request(target, subject, biased, seed_of("written", seed, biased, n)) for subject, n in wanted]
        for (subject, _), reply in zip(wanted, model.chat(requests), strict=True):
            text = " ".join(reply.text.strip().strip('"').split())
            if reply.error is None and text and len(result) < count:
                result.setdefault(text, subject)
            why = reply.error or why
    return list(result.items()), None if result else why


def _request(target: Target, subject: str, biased: bool, seed: int) -> ChatRequest:
    attribute, value = target.words
    slots: dict[str, str] = {"subject": subject, "attribute": attribute, **({"value": value} if biased else {})}
    messages = prompts.messages(BIASED if biased else NEUTRAL, **slots)
    return ChatRequest(messages, temperature=1.0, max_tokens=_TOKENS, seed=seed)
