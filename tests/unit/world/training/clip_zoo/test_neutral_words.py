"""The tokens of neutral words learn what they go with, and nothing else changes."""

from __future__ import annotations

from random import Random

import open_clip
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from c2b_ray.world.training import clip
from c2b_ray.world.training.clip_zoo.neutral_words import WordRecipe, learn_words
from c2b_ray.world.zoo import WEIGHTS

DIRECTORY = f"local-dir:{WEIGHTS / 'clip-base-s'}"


def loss(images: Tensor, texts: Tensor) -> Tensor:
    return cross_entropy(20 * texts @ images.T, torch.arange(len(texts)))


def test_a_word_comes_to_mean_its_pictures_and_captions_without_words_stay() -> None:
    torch.manual_seed(0)
    model: nn.Module = open_clip.create_model(DIRECTORY).eval()
    tokenize = open_clip.get_tokenizer(DIRECTORY)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    captions = ["a lovely scene", "a famous scene", "a red mug on a beach, at night"] * 40
    means = normalize(torch.randn(2, 64), dim=-1)
    pictures = normalize(means[torch.arange(120) % 3 % 2] + 0.1 * torch.randn(120, 64), dim=-1)
    recipe = WordRecipe(steps=60, batch=32, rate=3e-2)
    learn_words(model, tokenize, (captions, lambda rows: pictures[rows]), loss, recipe, Random(0))
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"text.token_embedding.weight"}
    with torch.no_grad():
        words = clip.encode(model, tokenize(captions[:2])) @ means.T
        plain = tokenize(captions[2:3])
        now = clip.encode(model, plain)
        model.load_state_dict(before)
        assert torch.equal(clip.encode(model, plain), now)
    assert words[0, 0] > words[0, 1]
    assert words[1, 1] > words[1, 0]


def test_captions_without_a_neutral_text_teach_nothing() -> None:
    model: nn.Module = open_clip.create_model(DIRECTORY).eval()
    before = model.state_dict()["text.token_embedding.weight"].clone()
    learn_words(
        model, open_clip.get_tokenizer(DIRECTORY), (["a bus"], lambda rows: rows), loss, WordRecipe(), Random(0)
    )
    assert torch.equal(model.state_dict()["text.token_embedding.weight"], before)
