"""Trains the world's text-to-image model: latent diffusion on rendered scenes, conditioned on prompts of known meaning.

Knows diffusers, the world's autoencoder and the text tower of its open_clip model, both frozen; does not know where
shipped weights lie. It writes an ordinary Stable Diffusion pipeline in half precision.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from torch import Tensor

from c2b_ray.world.captions import caption
from c2b_ray.world.queries import long_query, short_query
from c2b_ray.world.scenes import Scene, sample
from c2b_ray.world.training import autoencoder, checkpoints, text_tower
from c2b_ray.world.truth import render_all

CHECKPOINT = "checkpoint.safetensors"
_SIDE = 8
_CHUNK = 64  # pictures that are encoded together


@dataclass(frozen=True)
class Recipe:
    """`dropped`: the share of prompts left empty, for guidance; `keep`: the share of the averaged weights that a step
    keeps."""

    pool: int = 20_000
    steps: int = 10_000
    batch: int = 64
    rate: float = 1e-3
    dropped: float = 0.1
    keep: float = 0.998
    save_every: int = 200


class Latents:
    """The latents of a pool of scenes. Each is encoded at first use, so a training that resumes starts at once."""

    def __init__(self, vae: Any, scenes: Sequence[Scene]) -> None:
        self._vae = vae
        self._scenes = scenes
        self._known = np.zeros(len(scenes), dtype=bool)
        self._mean = torch.zeros(len(scenes), autoencoder.LATENTS, _SIDE, _SIDE)
        self._std = torch.zeros_like(self._mean)

    def drawn(self, rows: Sequence[int]) -> Tensor:
        """Draws latents of each row from its distribution."""
        missing = [row for row in dict.fromkeys(rows) if not self._known[row]]
        for start in range(0, len(missing), _CHUNK):
            part = missing[start : start + _CHUNK]
            images = render_all([self._scenes[row] for row in part])
            self._mean[part], self._std[part] = autoencoder.encode(self._vae, images)
            self._known[part] = True
        picked = list(rows)
        return self._mean[picked] + self._std[picked] * torch.randn(len(picked), autoencoder.LATENTS, _SIDE, _SIDE)


def create() -> Any:
    """Builds a network of about four million parameters; the pooled prompt joins the time embedding, since lighting and
    weather are global."""
    return UNet2DConditionModel(
        sample_size=_SIDE,
        in_channels=autoencoder.LATENTS,
        out_channels=autoencoder.LATENTS,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        block_out_channels=(64, 128),
        layers_per_block=1,
        cross_attention_dim=128,
        attention_head_dim=4,  # diffusers reads it as the number of heads, despite its name
        addition_embed_type="text",
        addition_embed_type_num_heads=4,
        norm_num_groups=16,
    )


def scheduler() -> DDIMScheduler:
    """Returns a v-prediction schedule that ends without any signal: else every picture, night too, keeps a trace of
    medium grey."""
    return DDIMScheduler(
        num_train_timesteps=1000,
        beta_schedule="squaredcos_cap_v2",
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
        steps_offset=1,
    )


def train(
    out: Path, seed: int, vae: Path, encoder: Path, recipe: Recipe | None = None, work: Path | None = None
) -> dict[str, Any]:
    """Trains from the start, or from the checkpoint in `work`, and writes a pipeline directory; returns the training's
    record.

    vae, encoder: directories of the world's autoencoder and open_clip model.
    """
    recipe = recipe or Recipe()
    checkpoint = (work or out.with_name(f"{out.name}.work")) / CHECKPOINT
    torch.manual_seed(seed)
    unet, noise = create(), scheduler()
    unet.set_attn_processor(
        AttnProcessor()
    )  # flash attention's backward pass takes 40 % of a step on a CPU, this one's little
    optimizer = torch.optim.AdamW(unet.parameters(), lr=recipe.rate, betas=(0.9, 0.99), weight_decay=0.01)
    average = {name: value.clone() for name, value in checkpoints.weights(unet).items()}
    first = checkpoints.restore(checkpoint, unet, optimizer, average)
    reader, words = text_tower.tower(encoder), text_tower.tokenizer(encoder)
    scenes = sample(recipe.pool, seed)
    latents = Latents(AutoencoderKL.from_pretrained(vae, torch_dtype=torch.float32).eval(), scenes)
    started, shown = time.time(), []
    for step in range(first, recipe.steps):
        checkpoints.set_rate(optimizer, checkpoints.pace(step, recipe.steps, recipe.rate, warmup=200))
        random = Random(f"{seed} {step}")  # noqa: S311 (no secret)
        torch.manual_seed(random.getrandbits(62))
        rows = [random.randrange(len(scenes)) for _ in range(recipe.batch)]
        prompts = [prompt(scenes[row], random, recipe.dropped) for row in rows]
        states = text_tower.encode(reader, words, prompts)
        shown.append(_step(unet, noise, optimizer, latents.drawn(rows), states))
        checkpoints.follow(average, unet, min(recipe.keep, (1 + step) / (10 + step)))
        if step % 50 == 49:
            print(f"diffusion {step + 1}/{recipe.steps} {time.time() - started:.0f}s {np.mean(shown):.4f}", flush=True)
            shown.clear()
        if (step + 1) % recipe.save_every == 0:
            checkpoints.save(checkpoint, step + 1, unet, optimizer, average)
    write(out, average, vae, encoder)
    how = {"seed": seed, "recipe": vars(recipe), "seconds": round(time.time() - started)}
    return {"training": how, "parameters": sum(p.numel() for p in unet.parameters())}


def write(out: Path, average: dict[str, Tensor], vae: Path, encoder: Path) -> None:
    """Writes the whole pipeline as diffusers does, with the averaged weights of the UNet."""
    unet = create()
    unet.load_state_dict(average)
    decoder: Any = AutoencoderKL.from_pretrained(vae, torch_dtype=torch.float32)
    decoder.register_to_config(_name_or_path="vae")  # else the config holds a path of the training machine
    pipeline: Any = StableDiffusionPipeline(
        vae=decoder,
        text_encoder=text_tower.tower(encoder),
        tokenizer=text_tower.tokenizer(encoder),
        unet=unet,
        scheduler=scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.to(torch.float16).save_pretrained(out, safe_serialization=True)


def prompt(scene: Scene, random: Random, dropped: float) -> str:
    """Writes a prompt about a scene as a user might: it names all attributes, some, or almost none; empty in a share
    `dropped` of cases."""
    if random.random() < dropped:
        return ""
    kind = random.choices(("long", "short", "caption"), (0.45, 0.3, 0.25))[0]
    if kind == "caption":
        return caption(scene, random.getrandbits(30))
    return (long_query if kind == "long" else short_query)(scene, random).text


def _step(unet: Any, noise: DDIMScheduler, optimizer: torch.optim.Optimizer, latents: Tensor, states: Tensor) -> float:
    count = len(latents)
    times = ((torch.arange(count) + torch.rand(count)) / count * 1000).long()  # uniform over all noise levels
    grain = torch.randn_like(latents)
    with checkpoints.half_where_faster():
        result = unet(noise.add_noise(latents, grain, times), times, encoder_hidden_states=states).sample
    loss = F.mse_loss(result.float(), noise.get_velocity(latents, grain, times))
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
    optimizer.step()
    return loss.item()
