"""A connector learns to say what an embedding holds, while the language model stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from c2b_ray.world.queries import FACTORS
from c2b_ray.world.scenes import sample
from c2b_ray.world.training.clip_zoo import connector
from c2b_ray.world.training.clip_zoo.connector import Exercise, FrozenLanguageModel, Stage
from c2b_ray.world.training.clip_zoo.downstream import answers, question, questions_about
from c2b_ray.world.zoo import WEIGHTS


@pytest.fixture(scope="module")
def language() -> FrozenLanguageModel:
    torch.set_num_threads(1)
    return FrozenLanguageModel(WEIGHTS / "lm")


def test_two_embeddings_get_two_answers_and_the_language_model_is_untouched(language: FrozenLanguageModel) -> None:
    before = {name: value.clone() for name, value in language.model.state_dict().items()}
    embeddings = np.eye(2, 8, dtype=np.float32)
    model, rows = connector.connect(embeddings, language, 32, 0)
    exercises = [Exercise(row, "What is the weather?", answer) for row, answer in enumerate((" rain", " snow"))]
    connector.fit(model, rows, language, exercises, Stage(steps=25, batch=2, rate=1e-2), 0)
    assert language.write(model(rows), "What is the weather?", 3) == ["rain", "snow"]
    assert all(torch.equal(value, before[name]) for name, value in language.model.state_dict().items())


def test_the_loss_is_of_the_reply_alone(language: FrozenLanguageModel) -> None:
    """Against transformers' own loss with labels, on rows of unequal length."""
    soft = torch.zeros(1, connector.SOFT_TOKENS, language.width)
    prompt, reply = "What is the setting?", " beach"
    long = Exercise(0, "", " a photo of a small red bus on a street at night in the rain")
    ids = language.tokens(prompt) + language.tokens(reply) + [language.tokenizer.eos_token_id]
    labels = torch.full((1, 1 + connector.SOFT_TOKENS + len(ids)), -100)
    labels[0, 1 + connector.SOFT_TOKENS + len(language.tokens(prompt)) :] = torch.tensor(
        ids[len(language.tokens(prompt)) :]
    )
    whole = torch.cat([language.before(soft), language.embed(torch.tensor([ids]))], dim=1)
    alone = language.model(inputs_embeds=whole, labels=labels).loss
    short = Exercise(0, prompt, reply)
    assert language.loss(soft, [short]) == pytest.approx(alone.item(), abs=1e-5)
    both, longer = language.loss(soft.expand(2, -1, -1), [short, long]), language.loss(soft, [long])
    n_short, n_long = len(language.tokens(reply)) + 1, len(language.tokens(long.reply)) + 1
    assert both == pytest.approx((alone.item() * n_short + longer.item() * n_long) / (n_short + n_long), abs=1e-5)


def test_questions_never_ask_for_a_protected_attribute() -> None:
    scenes = sample(50, 3)
    questions = questions_about(scenes, ("companion", "size"), 3, 0)
    assert len(questions) == 150
    assert {one.factor for one in questions} == set(FACTORS) - {"companion", "size"}
    assert all(one.answer == getattr(scenes[one.row], one.factor) for one in questions)


def test_answers_keep_the_order_of_their_questions(language: FrozenLanguageModel) -> None:
    questions = questions_about(sample(3, 4), ("companion",), 2, 0)
    soft = torch.randn(3, connector.SOFT_TOKENS, language.width, generator=torch.Generator().manual_seed(0))
    alone = [language.write(soft[[one.row]], question(one.factor), 5)[0] for one in questions]
    assert answers(soft, questions, language) == alone
