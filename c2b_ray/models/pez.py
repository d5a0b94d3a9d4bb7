"""PEZ: hard prompts by gradients through a text encoder (Wen et al. 2023, "Hard Prompts Made Easy", Algorithm 1).

Soft embeddings are moved by the gradient that their nearest tokens have, towards texts whose embedding is like a
target's. It knows open_clip's models and tokenizers; it does not know the source of the target.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2b_ray.errors import SpecError
from c2b_ray.models.open_clip_encoder import OpenClipEncoder
from c2b_ray.roles import Floats

TOKENS, STEPS, RATE, DECAY = 8, 200, 0.1, 0.1
"""The paper's code has 8 to 16 tokens, AdamW with this rate and decay, and up to 3,000 steps for a large CLIP."""


def hard_prompt(encoder: Any, target: Floats, seed: int, steps: int = STEPS) -> str:
    """Returns the text of the tokens whose embedding was nearest to `target`, unit norm (dimension,).

    Raises SpecError for an encoder that is no open_clip model and so passes no gradient.
    """
    if not isinstance(encoder, OpenClipEncoder):
        raise SpecError(
            f"{type(encoder).__name__}: pez needs an open_clip encoder, through whose text tower gradients go"
        )
    model, tokenizer = encoder.text_tower
    tower = getattr(model, "text", model)  # whose largest table has the tokens' embeddings
    table = max((m for m in tower.modules() if isinstance(m, nn.Embedding)), key=lambda table: table.num_embeddings)
    ids = tokenizer([""])[0].to(table.weight.device)
    frame = torch.cat([ids[:1], torch.full((TOKENS,), 3, device=ids.device), ids[1:]])[: len(ids)]
    special = set(ids.tolist())
    # Tokens that are text.
    token_ids = [i for i in range(table.num_embeddings) if i not in special and _decoded(tokenizer, [i]).strip(" <>|")]
    vocabulary = table.weight.detach().float()[token_ids]
    noise = torch.Generator().manual_seed(seed)
    soft = vocabulary[torch.randint(len(token_ids), (TOKENS,), generator=noise)].clone().requires_grad_(True)
    optimizer = torch.optim.AdamW([soft], lr=RATE, weight_decay=DECAY)
    target_tensor = torch.from_numpy(target).to(table.weight.device)
    highest, best_tokens = -2.0, [0] * TOKENS
    for _ in range(steps):
        nearest = (F.normalize(soft.detach(), dim=1) @ F.normalize(vocabulary, dim=1).T).argmax(dim=1)
        hard = vocabulary[nearest].clone().requires_grad_(True)
        likeness = F.cosine_similarity(_embedded(model, table, frame, hard), target_tensor, dim=0)
        if likeness.item() > highest:
            highest, best_tokens = likeness.item(), [token_ids[i] for i in nearest.tolist()]
        [gradient] = torch.autograd.grad(-likeness, [hard])
        soft.grad = gradient
        optimizer.step()
    return " ".join(_decoded(tokenizer, best_tokens).split())


def _embedded(model: Any, table: nn.Embedding, frame: Tensor, hard: Tensor) -> Tensor:
    """Returns the embedding of the frame's text with `hard` in place of its second to ninth token."""

    def put(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return torch.cat([output[:, :1], hard[None].to(output.dtype), output[:, 1 + TOKENS :]], dim=1)

    handle = table.register_forward_hook(put)
    try:
        result: Tensor = model.encode_text(frame[None])[0].float()
    finally:
        handle.remove()
    return result


def _decoded(tokenizer: Any, ids: list[int]) -> str:
    inner = getattr(tokenizer, "tokenizer", None)  # of Hugging Face, inside open_clip's
    return str(inner.decode(ids, skip_special_tokens=True) if inner is not None else tokenizer.decode(ids))
