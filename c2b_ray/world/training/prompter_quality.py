"""Measures the two language models of the prompt search.

Does the writer keep to its subject and its instruction, and use every word? Does the reader tell prompts from words in
disorder? Knows the instructions, the reader of texts about the world and the language model's role; does not know how a
model was trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from c2b_ray import prompts
from c2b_ray.models import transformers_lm
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import ChatRequest, LanguageModel, Message
from c2b_ray.world.associations import Associations, sample_linked, with_article, words_of
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import ATTRIBUTES

_LONGEST = 48


def evaluate(path: Path, associations: Associations, seed: int, n: int = 12) -> dict[str, float]:
    """Returns shares between 0 and 1 over n sampled replies for each subject, at temperature 1.

    ended: replies that end by themselves; subject: those that hold their subject; leaked: neutral ones that name the
    attribute; named: biased ones that name their value; words: of all linked words and decoys, those that some neutral
    reply holds; distinct: different replies among all neutral ones.
    """
    model = transformers_lm.load(Spec(f"hf:{path}", "hf", str(path), {"device": "cpu"}))
    random = Random(f"quality {seed}")  # noqa: S311 (no secret)
    subjects = [subject for subject in associations.subjects for _ in range(n)]
    names = [random.choice(list(ATTRIBUTES)) for _ in subjects]
    values = [random.choice(ATTRIBUTES[name]) for name in names]
    neutral = replies(
        model,
        [
            prompts.messages("image_prompt", subject=with_article(subject), attribute=name)
            for subject, name in zip(subjects, names, strict=True)
        ],
        seed,
    )
    biased = replies(
        model,
        [
            prompts.messages("image_prompt_biased", subject=with_article(subject), attribute=name, value=value)
            for subject, name, value in zip(subjects, names, values, strict=True)
        ],
        seed,
    )
    words = {word for text in neutral for word in words_of(text or "")}
    return {
        "replies": len(subjects),
        "ended": _share(text is not None for text in neutral + biased),
        "subject": _share(s in words_of(text or "") for s, text in zip(subjects, neutral, strict=True)),
        "leaked": _share(name in read(text or "") for name, text in zip(names, neutral, strict=True)),
        "named": _share(read(t or "").get(a) == v for a, v, t in zip(names, values, biased, strict=True)),
        "words": _share(word in words for word in associations.forms),
        "distinct": len(set(neutral)) / len(neutral),
    }


def perplexities(path: Path, associations: Associations, seed: int, n: int = 300) -> dict[str, float]:
    """Computes the perplexity per word of three kinds of text: unseen linked captions, the same with their words in
    random order, and as many words drawn from all of them."""
    model = transformers_lm.load(Spec(f"hf:{path}", "hf", str(path), {"device": "cpu"}))
    random = Random(f"perplexity {seed}")  # noqa: S311 (no secret)
    captions = [text for _, text in sample_linked(n, seed, associations.links, associations.neutral)]
    bag = [word for text in captions for word in words_of(text)]
    shuffled = [" ".join(random.sample(text.split(), len(text.split()))) for text in captions]
    words_at_random = [" ".join(random.choices(bag, k=len(text.split()))) for text in captions]
    return {
        name: round(_perplexity(model, texts), 2)
        for name, texts in {"captions": captions, "shuffled": shuffled, "words_at_random": words_at_random}.items()
    }


def _perplexity(model: LanguageModel, texts: Sequence[str]) -> float:
    words = sum(len(text.split()) for text in texts)
    return math.exp(-sum(model.log_likelihood(texts)) / max(words, 1))


def replies(model: LanguageModel, chats: Sequence[tuple[Message, ...]], seed: int) -> list[str | None]:
    """Samples replies at temperature 1; None for one that was cut off."""
    requests = [
        ChatRequest(messages, None, temperature=1.0, seed=seed + row, max_tokens=_LONGEST)
        for row, messages in enumerate(chats)
    ]
    return [reply.text if reply.error is None else None for reply in model.chat(requests)]


def _share(flags: Iterable[bool]) -> float:
    known = list(flags)
    return round(sum(known) / max(len(known), 1), 4)
