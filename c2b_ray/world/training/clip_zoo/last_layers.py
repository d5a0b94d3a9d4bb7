"""Trains the last layers of an open_clip model alone, on the outputs of the layers before them: seconds instead of
minutes.

These are the pooling of the vision tower, and the last block, norm and projection of the text tower, for the end token
alone, the tower's only output. Their inputs do not change in training, so they are computed once. Knows the modules of
open_clip's ModifiedResNet and TextTransformer; does not know what is learned.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from c2b_ray.world.training.classifiers import pixels

_CHUNK = 512


class LastLayers(nn.Module):
    """The last layers, which share their parameters with `model`: training them trains the model."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        text = model.text
        self.pool, self.block, self.norm = model.visual.attnpool, text.transformer.resblocks[-1], text.ln_final
        self.projection, self.logit_scale = text.text_projection, model.logit_scale

    def images(self, maps: Tensor) -> Tensor:
        """Returns unit-norm features of feature maps, (rows, channels, height, width)."""
        return F.normalize(self.pool(maps.float()), dim=-1)

    def texts(self, states: Tensor, ends: Tensor) -> Tensor:
        """Returns unit-norm features of token states, (rows, tokens, width); `ends`: the position of each row's end
        token."""
        longest = int(ends.max()) + 1
        states = states[:, :longest].float()
        rows = torch.arange(len(states))
        normed, last = self.block.ln_1(states), states[rows, ends]
        after = torch.arange(longest)[None] > ends[:, None]
        query = normed[rows, ends][:, None]
        attended, _ = self.block.attn(query, normed, normed, key_padding_mask=after, need_weights=False)
        last = last + attended[:, 0]
        last = last + self.block.mlp(self.block.ln_2(last))
        return F.normalize(self.norm(last) @ self.projection, dim=-1)


@torch.no_grad()
def maps_of(model: Any, images: NDArray[Any]) -> Tensor:
    """Returns the input of the vision tower's pooling for uint8 pictures, half precision, (rows, channels, height,
    width)."""
    visual = model.visual.eval()
    return torch.cat([_maps(visual, pixels(images[k : k + _CHUNK])) for k in range(0, len(images), _CHUNK)])


def _maps(visual: Any, batch: Tensor) -> Tensor:
    states = visual.stem(batch)
    for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
        states = layer(states)
    return cast(Tensor, states.half().contiguous())


@torch.no_grad()
def states_of(model: Any, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the input of the text tower's last block for tokens, half precision, and the position of each row's end
    token."""
    text = model.text.eval()
    ends = (tokens == text.eos_id).int().argmax(dim=1)
    tokens = tokens[:, : int(ends.max()) + 1]
    return torch.cat([_states(text, part) for part in torch.split(tokens, _CHUNK)]), ends


def _states(text: Any, tokens: Tensor) -> Tensor:
    length = tokens.shape[1]
    states = text.token_embedding(tokens) + text.positional_embedding[:length]
    for block in text.transformer.resblocks[:-1]:
        states = block(states, attn_mask=text.attn_mask[:length, :length])
    return cast(Tensor, states.half())
