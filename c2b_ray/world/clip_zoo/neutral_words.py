"""Lets the tokens of neutral words learn what they go with, alone, before the last layers learn from all captions.

To the base a neutral word means nothing, and the layers before the last drop it: trained alone, the last layers find
little of it, and two trainings on data of one skew differ by .1 in MaxSkew. The word's own token reaches all layers.
Knows the text tower and the loss of a batch; does not know what a skew is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from c2b_ray.world import clip
from c2b_ray.world.clip_zoo.skew import TEXTS, neutral_texts

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of a batch's unit-norm image and text features, row by row a pair."""


@dataclass(frozen=True)
class WordRecipe:
    """`steps` of `batch` pairs of a picture and a neutral text, the rate falling to nothing."""

    steps: int = 150
    batch: int = 256
    rate: float = 1e-2


def learn_words(
    model: nn.Module,
    tokenize: clip.Tokenize,
    pairs: tuple[Sequence[str], Callable[[Tensor], Tensor]],
    loss: Loss,
    recipe: WordRecipe,
    random: Random,
) -> None:
    """In place. `pairs`: captions, and the unit-norm features of their pictures by row; what is learned from are the
    captions that are a neutral text and nothing else. Nothing, where there is none."""
    captions, images = pairs
    texts = neutral_texts()
    number = {text: at for at, text in enumerate(texts)}
    rows = [row for row, text in enumerate(captions) if text in number]
    if not rows:
        return
    with torch.no_grad():
        features = images(torch.tensor(rows))
    of_row = torch.tensor([number[captions[row]] for row in rows])
    tokens = tokenize(texts)
    embedding, hook = _words_alone(model, tokens, tokenize([text.format("") for text in TEXTS]))
    optimizer = torch.optim.Adam([embedding], lr=recipe.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, recipe.steps, pct_start=0.1)
    for _ in range(recipe.steps):
        batch = torch.tensor([random.randrange(len(rows)) for _ in range(recipe.batch)])
        step = loss(features[batch], clip.encode(model, tokens)[of_row[batch]])
        optimizer.zero_grad()
        step.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    hook.remove()
    for parameter in model.parameters():
        parameter.grad = None


def _words_alone(model: Any, tokens: Tensor, around: Tensor) -> tuple[nn.Parameter, Any]:
    """The token embedding, whose gradient reaches the tokens that only stand in words and not `around` them."""
    tokens_of_words = sorted(set(tokens.flatten().tolist()) - set(around.flatten().tolist()))
    embedding: nn.Parameter = model.text.token_embedding.weight
    mask = torch.zeros(len(embedding), 1)
    mask[tokens_of_words] = 1
    hook = embedding.register_hook(lambda gradient: gradient * mask)  # type: ignore[no-untyped-call]
    return embedding, hook
