"""Packs a transformer's weights once in the layout that oneDNN multiplies fastest, on a CPU and in float32.

PyTorch multiplies float32 matrices by MKL, which on AMD's processors leaves part of a core unused. Results differ by
rounding alone. It knows open_clip's residual blocks, which hold nearly all the work of its transformers; what is around
them stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from open_clip.transformer import ResidualAttentionBlock
from torch import Tensor, nn
from torch.nn import functional as F


def pack(model: nn.Module) -> None:
    """Replaces the layers inside `model`'s blocks where that can be done. These layers can no longer be trained;
    gradients flow to their inputs."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    blocks: list[Any] = [part for part in model.modules() if type(part) is ResidualAttentionBlock]
    for block in blocks:
        if hasattr(block, "ln_1_kv"):  # attends to another sequence than its own
            continue
        if _fits(block.attn.in_proj_weight) and block.attn.batch_first and block.attn.in_proj_bias is not None:
            block.attn = _SelfAttention(block.attn)
        for name, child in list(block.mlp.named_children()):
            if type(child) is nn.Linear and _fits(child.weight):
                setattr(block.mlp, name, _Linear(child.weight, child.bias))


def _fits(weight: Tensor | None) -> bool:
    return weight is not None and weight.device.type == "cpu" and weight.dtype == torch.float32


class _Linear(nn.Module):
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        # Not a parameter: it has no strides to be saved by. Named as open_clip looks for its dtype.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        self._bias = None if bias is None else bias.detach()

    def forward(self, rows: Tensor) -> Tensor:
        if rows.requires_grad and torch.is_grad_enabled():  # no gradient goes through a packed product
            return F.linear(rows, self.weight.to_dense(), self._bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.weight, self._bias, "none", [], "")
        return product


class _SelfAttention(nn.Module):
    """An `nn.MultiheadAttention` as the block calls it: of a sequence to itself, without its weights."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self._heads = attention.num_heads
        self._inward = _Linear(attention.in_proj_weight, attention.in_proj_bias)
        self._outward = _Linear(attention.out_proj.weight, attention.out_proj.bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, need_weights: bool, attn_mask: Tensor | None
    ) -> tuple[Tensor, None]:
        """Maps (rows, length, width) to the same shape; `attn_mask` is added to the logits of the softmax."""
        if need_weights or key is not query or value is not query:
            raise NotImplementedError("packed attention is of a sequence to itself, and keeps no weights")
        rows, length, width = query.shape
        split = self._inward(query).view(rows, length, 3, self._heads, width // self._heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask)
        return self._outward(attended.transpose(1, 2).reshape(rows, length, width)), None
