"""Debiases a generator with hidden associations by an adapter (LoRA) that learns from balanced data of curated words.

Knows peft and the training of `hidden`; does not know how an adapter is loaded. As in practice, nobody thinks of every
biased word: the data holds every second linked word, with uniformly drawn values. The generator may stay biased for the
other words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL
from peft import LoraConfig, get_peft_model

from c2b_ray.world.associations import Associations
from c2b_ray.world.training import diffusion
from c2b_ray.world.training.hidden import Course, Lessons, Recipe, Student, teach

RECIPE = Recipe(pool=800, steps=300, batch=32, rate=4e-3, plain=0.15, keep=0.97)
_RANK = 8
_MODULES = ["to_q", "to_k", "to_v", "to_out.0"]


def train(
    out: Path, seed: int, base: Path, hidden: Associations, recipe: Recipe = RECIPE, work: Path | None = None
) -> dict[str, Any]:
    """Trains an adapter of the UNet of `base` and writes it as peft does; returns the training's record."""
    torch.manual_seed(seed)
    student = Student(base, ()).requires_grad_(False)
    config = LoraConfig(r=_RANK, lora_alpha=_RANK, target_modules=_MODULES)
    student.unet = get_peft_model(student.unet, config)
    learning = [parameter for parameter in student.parameters() if parameter.requires_grad]
    vae: Any = AutoencoderKL.from_pretrained(base / "vae", torch_dtype=torch.float32).eval()
    lessons = Lessons(vae, hidden.curated().without_effect(), recipe, seed)
    course = Course(out.name, seed, recipe, (work or out.with_name(f"{out.name}.work")) / diffusion.CHECKPOINT)
    how = teach(student, [{"params": learning, "peak": recipe.rate}], lessons, course)
    student.unet.half().save_pretrained(out, safe_serialization=True)
    (out / "README.md").unlink(missing_ok=True)  # peft's empty model card
    return {**how, "curated": [link.word for link in hidden.curated().links]}
