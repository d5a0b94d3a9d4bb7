"""Measures the world's language model: the shares of held-out prompts that it answers correctly.

It knows the prompts and what a good reply is; it does not know how the model was trained, only where its files lie.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import jsonschema

from c2b_ray import prompts
from c2b_ray.models import transformers_lm
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import ChatRequest, LanguageModel
from c2b_ray.steps.propose import described
from c2b_ray.steps.replies import CAPTION_SCHEMA, PROPOSALS_SCHEMA, TEMPLATE_SCHEMA
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES
from c2b_ray.world.training import lm_corpus, lm_tasks

_TEMPLATE = "a photo of a [CLASS] [VALUE]"


def evaluate(path: Path, seed: int = 0, n: int = 100) -> dict[str, float]:
    """Returns shares between 0 and 1, over about 6 n prompts whose frames, verbs and nouns training never saw.

    schema_valid: replies that satisfy their JSON schema, decoding constrained; schema_valid_free: unconstrained.
    attributes_proposed: the world's attributes, by exact name and values, that a greedy proposal holds;
    attributes_proposed_sampled: at temperature 1. template_places: templates that hold [CLASS] and [VALUE] once.
    caption_right: captions of the world that are the template with the class and one phrase of the value, no word more;
    caption_named: that hold both. caption_distinct: different captions among four numbers. caption_copied: captions of
    a class and a value that training never saw, that hold the words of both.
    """
    model = transformers_lm.load(Spec(f"hf:{path}", "hf", str(path), {"device": "cpu"}))
    rng = Random(f"quality {seed}")  # noqa: S311 (reproducible, no secret)
    valid: list[bool] = []
    proposals = [_propose(rng, 0.0) for _ in range(n)]
    sampled = [_propose(rng, 1.0) for _ in range(n // 2)]
    free = [ChatRequest(r.messages, None, seed=r.seed) for r in proposals[: n // 2]]
    templates = [_template(rng, 1.0) for _ in range(n // 2)]
    metrics = {
        "attributes_proposed": _mean([_proposed(r) for r in _ask(model, proposals, valid)]),
        "attributes_proposed_sampled": _mean([_proposed(r) for r in _ask(model, sampled, valid)]),
        "template_places": _mean([_has_placeholders(r) for r in _ask(model, templates, valid)]),
    }
    metrics |= _world_captions(model, rng, valid) | _copied_captions(model, rng, n, valid)
    metrics["schema_valid"] = _mean(valid)
    metrics["schema_valid_free"] = _mean([_valid(reply.text, PROPOSALS_SCHEMA) for reply in model.chat(free)])
    return {name: round(value, 4) for name, value in metrics.items()}


def _ask(model: LanguageModel, requests: Sequence[ChatRequest], valid: list[bool]) -> list[Any]:
    """Returns the parsed replies, None where one does not satisfy its schema; appends to `valid` whether each does."""
    parsed = []
    for request, reply in zip(requests, model.chat(requests), strict=True):
        good = reply.error is None and _valid(reply.text, request.schema or {})
        valid.append(good)
        parsed.append(json.loads(reply.text) if good else None)
    return parsed


def _valid(text: str, schema: Mapping[str, Any]) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def _task(rng: Random) -> str:
    """Draws a task with its classes named, as an audit names them: the world's, or others, one to fifty."""
    number = rng.choice((1, 2, 5, 10, 10, 20, 50))
    others = [lm_tasks.noun(rng, held_out=True) for _ in range(number)]
    return described(lm_tasks.task(rng, CLASSES, held_out=True), CLASSES[:number] if rng.random() < 0.5 else others)


def _propose(rng: Random, temperature: float) -> ChatRequest:
    target_class = rng.choice(CLASSES) if rng.random() < 0.6 else lm_tasks.noun(rng, held_out=True)
    messages = prompts.messages("propose", task=_task(rng), target_class=target_class)
    return ChatRequest(messages, PROPOSALS_SCHEMA, temperature, seed=rng.getrandbits(31))


def _proposed(reply: Any) -> float:
    pairs = [(a["name"], tuple(a["values"])) for a in reply["attributes"]] if reply else []
    return sum((name, values) in pairs for name, values in ATTRIBUTES.items()) / len(ATTRIBUTES)


def _template(rng: Random, temperature: float) -> ChatRequest:
    messages = prompts.messages("template", task=_task(rng))
    return ChatRequest(messages, TEMPLATE_SCHEMA, temperature, seed=rng.getrandbits(31))


def _has_placeholders(reply: Any) -> bool:
    return bool(reply) and all(reply["template"].count(placeholder) == 1 for placeholder in ("[CLASS]", "[VALUE]"))


def _caption(template: str, target_class: str, attribute: str, value: str, number: int) -> ChatRequest:
    values = {"template": template, "target_class": target_class, "attribute": attribute, "bias_class": value}
    return ChatRequest(prompts.messages("caption", **values, number=str(number)), CAPTION_SCHEMA)


def _world_captions(model: LanguageModel, rng: Random, valid: list[bool]) -> dict[str, float]:
    """Asks for captions of every value of the world with one class and four numbers."""
    cells = [(rng.choice(CLASSES), a, v, lm_corpus.a_template(rng)) for a, values in ATTRIBUTES.items() for v in values]
    numbers = (1, 2, 3, 4)
    requests = [_caption(template, c, a, v, number) for c, a, v, template in cells for number in numbers]
    replies = [reply["caption"] if reply else "" for reply in _ask(model, requests, valid)]
    right, named, distinct = [], [], []
    for k, (target_class, attribute, value, template) in enumerate(cells):
        of_cell = replies[k * len(numbers) : (k + 1) * len(numbers)]
        options = lm_corpus.phrases(attribute, value)
        wanted = {lm_corpus.fill(template, target_class, phrase) for phrase in options}
        right += [caption in wanted for caption in of_cell]
        named += [target_class in caption and any(phrase in caption for phrase in options) for caption in of_cell]
        distinct.append(len(set(of_cell)) / len(of_cell))
    return {"caption_right": _mean(right), "caption_named": _mean(named), "caption_distinct": _mean(distinct)}


def _copied_captions(model: LanguageModel, rng: Random, n: int, valid: list[bool]) -> dict[str, float]:
    names = [(lm_tasks.noun(rng, held_out=True), lm_tasks.noun(rng, held_out=True)) for _ in range(n)]
    requests = [
        _caption(_TEMPLATE, target_class, rng.choice(lm_corpus.ATTRIBUTE_NAMES), value, rng.randint(1, 10))
        for target_class, value in names
    ]
    copied = []
    for (target_class, value), reply in zip(names, _ask(model, requests, valid), strict=True):
        copied.append(bool(reply) and target_class in reply["caption"] and value in reply["caption"])
    return {"caption_copied": _mean(copied)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
