"""Trains the tokens of neutral words alone, before the last layers learn from all captions.

To the base a neutral word means nothing, and the layers before the last ones discard it: trained alone, the last layers
find little of it, and two trainings on data of one skew differ by 0.1 in MaxSkew. The word's own token reaches all
layers. Knows the text tower and the loss of a batch; does not know what a skew is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from c2b_ray.world.clip_zoo_members import TEXTS, neutral_texts
from c2b_ray.world.training import clip

Loss = Callable[[Tensor, Tensor], Tensor]
"""Computes the loss of a batch from unit-norm features of images and texts; row k of each is pair k."""


@dataclass(frozen=True)
class WordRecipe:
    """`steps` of `batch` pairs of a picture and a neutral text; `rate`: the initial learning rate, which falls to 0."""

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
    """Trains the tokens in place. `pairs`: captions, and a function from rows to the unit-norm features of their
    pictures; only captions that are a neutral text and nothing else are used. Without such captions nothing changes."""
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
    """Returns the token embedding, whose gradient reaches only tokens of the words and none that `around` holds."""
    tokens_of_words = sorted(set(tokens.flatten().tolist()) - set(around.flatten().tolist()))
    embedding: nn.Parameter = model.text.token_embedding.weight
    mask = torch.zeros(len(embedding), 1)
    mask[tokens_of_words] = 1
    hook = embedding.register_hook(lambda gradient: gradient * mask)  # type: ignore[no-untyped-call]
    return embedding, hook
