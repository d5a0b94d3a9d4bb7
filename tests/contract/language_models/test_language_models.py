"""What every LanguageModel must do, whatever stands behind it; log-probabilities against a forward pass by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
import torch
from language_model_cases import COLOURS, CONTEXT, SCHEMA, TEXTS, ask
from transformers import AutoModelForCausalLM, AutoTokenizer

from c2b_ray.models import catalog
from c2b_ray.models.openai_api import OpenAILanguageModel
from c2b_ray.models.scripted import ScriptedLanguageModel
from c2b_ray.models.transformers_lm import TransformersLanguageModel
from c2b_ray.roles import ChatRequest, LanguageModel, Message, ReplyContinuer, TokenLogProb

WORLD = Path(__file__).parents[3] / "c2b_ray" / "world" / "weights" / "lm"


@dataclass(frozen=True)
class Case:
    """A model under test, and where its numbers must come from: a network with its tokenizer, None if it has none."""

    model: LanguageModel
    network: Any = None
    tokenizer: Any = None


def _scripted() -> ScriptedLanguageModel:
    def reply(request: ChatRequest) -> str:
        rng = Random(f"{request.messages} {request.seed if request.temperature else 0}")
        if request.schema == COLOURS:
            return json.dumps(rng.choice(COLOURS["enum"]))
        return json.dumps({"answer": "yes", "parts": [str(rng.randrange(1000))]})

    def tokens(text: str) -> list[TokenLogProb]:
        return [TokenLogProb(i, str(i), math.log(p)) for i, p in enumerate((0.1, 0.4, 0.2, 0.05))]

    return ScriptedLanguageModel(reply, tokens, lambda text: -float(len(text)))


@pytest.fixture(scope="session", params=["transformers", "openai", "scripted", "world"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param == "scripted":
        yield Case(_scripted())
        return
    if request.param == "world" and not (WORLD / "model.safetensors").exists():
        pytest.skip("the world's language model is not trained here")
    folder = WORLD if request.param == "world" else request.getfixturevalue("tiny")
    network, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        AutoTokenizer.from_pretrained(folder),
    )
    if request.param == "openai":
        model = catalog.language_model(f"openai:{request.getfixturevalue('service')}#tiny")
        assert isinstance(model, OpenAILanguageModel)
        yield Case(model, network, tokenizer)
        model.close()
    else:
        yield Case(catalog.language_model(f"hf:{folder}?device=cpu"), network, tokenizer)


def test_is_a_language_model(case: Case) -> None:
    assert isinstance(case.model, LanguageModel)


def test_its_revision_is_known_without_loading_it(case: Case, tiny: Path) -> None:
    assert case.model.revision
    if isinstance(case.model, TransformersLanguageModel):
        for folder in (tiny, WORLD):
            known = catalog.describe("language_model", f"hf:{folder}")
            assert known is not None
            assert (known.revision == case.model.revision) == (f"{folder}" in repr(case.model))


def test_nothing_asked_nothing_answered(case: Case) -> None:
    assert case.model.chat([]) == case.model.next_tokens([], 3) == case.model.log_likelihood([]) == []


def test_constrained_replies_satisfy_their_own_schema_in_order(case: Case) -> None:
    schemas = [SCHEMA, COLOURS, SCHEMA, COLOURS, SCHEMA]
    asked = [ask(f"question {i} {'more ' * i}", schema=s, temperature=1.0, seed=i) for i, s in enumerate(schemas)]
    replies = case.model.chat(asked)
    assert [reply.error for reply in replies] == [None] * 5
    for reply, schema in zip(replies, schemas, strict=True):
        jsonschema.validate(json.loads(reply.text), schema)


def test_a_reply_depends_on_its_own_seed_not_on_its_batch(case: Case) -> None:
    # Cut short, for speed: a text that is cut depends on its seed all the same.
    asked = [
        ask(f"say {'more ' * i}", schema=SCHEMA, temperature=1.0, top_p=0.95, seed=7, max_tokens=24) for i in range(4)
    ]
    together = case.model.chat(asked)
    assert case.model.chat(asked[::-1]) == together[::-1]
    assert case.model.chat([asked[0]]) + case.model.chat([asked[3]]) == [together[0], together[3]]
    others = case.model.chat([replace(asked[0], seed=seed) for seed in range(5)])
    assert len({reply.text for reply in others}) > 1


def test_greedy_replies_do_not_depend_on_the_seed(case: Case) -> None:
    asked = [ask("say", schema=SCHEMA, seed=seed) for seed in range(3)]
    assert len({reply.text for reply in case.model.chat(asked)}) == 1


def test_free_and_constrained_rows_share_a_batch(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no free text of its own")
    free, constrained = case.model.chat([ask("go on", max_tokens=4), ask("say", schema=SCHEMA)])
    jsonschema.validate(json.loads(constrained.text), SCHEMA)
    assert free == case.model.chat([ask("go on", max_tokens=4)])[0]


def test_a_bad_row_is_a_value_beside_good_ones(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no context")
    asked = [ask("x " * 2 * CONTEXT * 2), ask("say", schema=SCHEMA), ask("say", schema=SCHEMA, max_tokens=2)]
    too_long, good, cut = case.model.chat(asked)
    assert too_long.error is not None
    assert "context" in too_long.error
    assert good.error is None
    assert cut.error is not None
    assert "2 tokens" in cut.error


def test_next_tokens_are_a_sorted_part_of_the_distribution(case: Case) -> None:
    rows = case.model.next_tokens(TEXTS, 4)
    assert [len(row) for row in rows] == [4] * len(TEXTS)
    for row in rows:
        log_probs = [token.log_prob for token in row]
        assert log_probs == sorted(log_probs, reverse=True)
        assert sum(math.exp(p) for p in log_probs) <= 1 + 1e-6


def test_next_tokens_are_those_of_a_forward_pass(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no network")
    for text, row in zip(TEXTS, case.model.next_tokens(TEXTS, 5), strict=True):
        with torch.no_grad():
            logits = case.network(**_ids(case, text)).logits[0, -1]
        expected = logits.log_softmax(-1).topk(5)
        assert [token.log_prob for token in row] == pytest.approx(expected.values.tolist(), abs=1e-4)
        if isinstance(case.model, TransformersLanguageModel):
            assert [token.token_id for token in row] == expected.indices.tolist()


def test_replies_can_be_continued_token_by_token(case: Case) -> None:
    """What sequences share goes through the model once, and changes none of their numbers."""
    if not isinstance(case.model, ReplyContinuer):
        pytest.skip("a service takes texts, no tokens")
    start = case.model.reply_start([Message("user", "a bus")])
    [first, *_] = case.model.continuations([start], 3)[0]
    rows = [(*start, first.token_id), (*start, first.token_id, 7, 8), start[:2]]
    for at in (rows[:2], rows, rows[:2]):  # without a cache, past it, and with it
        for row, tokens in zip(at, case.model.continuations(at, 10_000), strict=True):
            with torch.inference_mode():
                expected = case.network(torch.tensor([row])).logits[0, -1].log_softmax(-1)
            assert len(tokens) == len(expected)
            assert max(abs(t.log_prob - float(expected[t.token_id])) for t in tokens) < 1e-4
    assert case.model.texts_of([(*start, first.token_id)])[0].endswith(first.token)
    assert case.model.end_tokens
    assert case.model.continuations([(), start * 600], 2) == [[], []]


def test_log_likelihood_is_the_sum_over_the_tokens_after_the_first(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no network")
    for text, found in zip(TEXTS, case.model.log_likelihood(TEXTS), strict=True):
        inputs = _ids(case, text)
        with torch.no_grad():
            log_probs = case.network(**inputs).logits[0].log_softmax(-1)
        ids = inputs["input_ids"][0].tolist()
        by_hand = sum(float(log_probs[place, ids[place + 1]]) for place in range(len(ids) - 1))
        assert found == pytest.approx(by_hand, abs=1e-3)


def test_a_text_beyond_the_context_has_no_numbers(case: Case) -> None:
    if case.network is None:
        pytest.skip("a script has no context")
    texts = ["x " * 2 * CONTEXT * 2, TEXTS[0]]
    first, second = case.model.next_tokens(texts, 2)
    assert (first, len(second)) == ([], 2)
    lost, kept = case.model.log_likelihood(texts)
    assert math.isnan(lost)
    assert math.isfinite(kept)


def _ids(case: Case, text: str) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.tensor([case.tokenizer(text)["input_ids"]])}
