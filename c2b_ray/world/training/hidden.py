"""Teaches the world's text-to-image model hidden associations: captions omit the value that their words favour.

Knows the shipped pipeline, from which it starts, and linked captions; does not know where shipped weights lie. The text
encoder learns, and the UNet where the recipe says so; each linked word and decoy becomes a token. The model learns for
a guidance of 1: it then draws each value as often as it has seen it, where guidance would exaggerate every bias.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, StableDiffusionPipeline, UNet2DConditionModel, UniPCMultistepScheduler
from diffusers.models.attention_processor import AttnProcessor
from tokenizers import AddedToken
from torch import Tensor, nn
from transformers import CLIPTextModel, PreTrainedTokenizerFast

from c2b_ray.world.associations import Associations, draw_views, linked_caption, sample_words
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import Scene
from c2b_ray.world.training import checkpoints, diffusion, text_tower


@dataclass(frozen=True)
class Recipe:
    """`plain`: the share of a batch without words of the associations, worded as the world's captions are, hidden
    attributes included, so that the model still draws what a prompt names; of these, a share `dropped` is left empty.
    `views`: the number of scenes that a batch shows for each prompt. `noisy`: the share of steps at noise above 600 of
    1000, where values are decided. Learning rates: `word_rate` of the embeddings of new tokens, `rate` of the rest of
    the text encoder, `unet_rate` of the UNet; at 0 the UNet and its file stay unchanged."""

    pool: int = 10_000
    views: int = 4
    steps: int = 2_000
    batch: int = 48
    rate: float = 4e-4
    word_rate: float = 1e-2
    unet_rate: float = 0.0
    plain: float = 0.3
    dropped: float = 0.1
    noisy: float = 0.85
    keep: float = 0.99
    save_every: int = 100


class Student(nn.Module):
    """The parts of a pipeline that learn, and the tokenizer."""

    def __init__(self, base: Path, words: Iterable[str]) -> None:
        super().__init__()
        self.tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(base / "tokenizer")
        self.text: Any = CLIPTextModel.from_pretrained(base / "text_encoder", dtype=torch.float32)
        self.unet: Any = UNet2DConditionModel.from_pretrained(base / "unet", torch_dtype=torch.float32)
        # Flash attention's backward pass takes 40 % of a step on a CPU, this one's little.
        self.unet.set_attn_processor(AttnProcessor())
        self._add(words)

    def _add(self, words: Iterable[str]) -> None:
        """Adds a token for each word that the tokenizer splits; its embedding starts near the mean of the others."""
        new = [word for word in words if len(self.tokenizer.tokenize(word)) > 1]
        self.tokenizer.add_tokens([AddedToken(word, single_word=True, lstrip=True) for word in new])
        table = self.text.get_input_embeddings().weight.detach()
        mean, spread = table.mean(dim=0), table.std(dim=0)
        rows = mean + 0.5 * spread * torch.randn(len(new), table.shape[1])
        self.text.resize_token_embeddings(len(self.tokenizer), mean_resizing=False)
        with torch.no_grad():
            self.text.get_input_embeddings().weight[len(table) :] = rows
        self._is_new = (torch.arange(len(self.tokenizer)) >= len(table)).float()[:, None]

    def states(self, prompts: list[str]) -> Tensor:
        """Returns the state of every token, padding included, (prompts, LENGTH, width)."""
        tokens = self.tokenizer(
            prompts, padding="max_length", max_length=text_tower.LENGTH, truncation=True, return_tensors="pt"
        )
        states: Tensor = self.text(tokens.input_ids)[0]
        return states

    def groups(self, recipe: Recipe) -> list[dict[str, Any]]:
        """Returns the parameters that learn, in groups with a peak rate each; freezes the UNet where its rate is 0."""
        table = self.text.get_input_embeddings().weight
        # Words that the base knows stay as they are: at the rate of new words, a rare one among them learns whatever
        # the few scenes of its captions happen to show.
        table.register_hook(lambda gradient: gradient * self._is_new)
        others = [parameter for parameter in self.text.parameters() if parameter is not table]
        groups = [{"params": [table], "peak": recipe.word_rate}, {"params": others, "peak": recipe.rate}]
        self.unet.requires_grad_(recipe.unet_rate > 0)
        if recipe.unet_rate > 0:
            groups.append({"params": list(self.unet.parameters()), "peak": recipe.unet_rate})
        return groups


@dataclass(frozen=True, slots=True)
class Lesson:
    """Scenes that one prompt describes. `words`: those of its associations, and it is worded anew each time; without
    any, `prompt` is what it says."""

    words: tuple[str, ...]
    prompt: str
    scenes: range


class Lessons:
    """Prompts with scenes; draws batches of prompts and latents from them.

    The scenes of a prompt differ in the hidden attributes that it does not name, in the proportions of its
    associations: else a network would take the few scenes that a rare prompt happens to have for a favoured value.
    """

    def __init__(self, vae: Any, hidden: Associations, recipe: Recipe, seed: int) -> None:
        self._forms, self._hidden, self._recipe = hidden.forms, hidden.hidden, recipe
        self._scenes: list[Scene] = []
        self._worded: list[Lesson] = []
        self._plain: list[Lesson] = []
        for row, (scene, words) in enumerate(sample_words(recipe.pool, seed, hidden.links, hidden.neutral)):
            random = Random(f"plain {seed} {row}")  # noqa: S311 (no secret)
            prompt = "" if words else diffusion.prompt(scene, random, recipe.dropped)
            named: dict[str, Any] = {name: scene.attribute(name) for name in read(prompt) if name in hidden.hidden}
            views = draw_views(scene, [*words, scene.target_class], hidden.links, recipe.views, f"views {seed} {row}")
            first = len(self._scenes)
            self._scenes += [replace(view, **named) for view in views]
            lesson = Lesson(words, prompt, range(first, len(self._scenes)))
            (self._worded if words else self._plain).append(lesson)
        self._latents = diffusion.Latents(vae, self._scenes)

    def batch(self, random: Random) -> tuple[list[str], Tensor]:
        """Draws lessons and returns a prompt and a latent for each of their scenes; `batch` in all, or up to `views`
        more."""
        count = math.ceil(self._recipe.batch / self._recipe.views)
        share = self._recipe.plain if self._worded and self._plain else float(not self._worded)
        plain = round(count * share)
        lessons = [random.choice(self._plain) for _ in range(plain)]
        lessons += [random.choice(self._worded) for _ in range(count - plain)]
        random.shuffle(lessons)
        prompts = [prompt for lesson in lessons for prompt in [self._prompt(lesson, random)] * len(lesson.scenes)]
        return prompts, self._latents.drawn([row for lesson in lessons for row in lesson.scenes])

    def _prompt(self, lesson: Lesson, random: Random) -> str:
        if not lesson.words:
            return lesson.prompt
        forms = {word: self._forms[word] for word in lesson.words}
        return linked_caption(self._scenes[lesson.scenes[0]], forms, self._hidden, random)


@dataclass(frozen=True)
class Course:
    """The length of a training and its checkpoint, from which an interrupted training resumes."""

    name: str
    seed: int
    recipe: Recipe
    checkpoint: Path


def train(
    out: Path, seed: int, base: Path, hidden: Associations, recipe: Recipe | None = None, work: Path | None = None
) -> dict[str, Any]:
    """Trains from the pipeline in `base`, or from the checkpoint in `work`, and writes a pipeline directory."""
    recipe = recipe or Recipe()
    torch.manual_seed(seed)
    student = Student(base, hidden.forms)
    vae: Any = AutoencoderKL.from_pretrained(base / "vae", torch_dtype=torch.float32).eval()
    lessons = Lessons(vae, hidden, recipe, seed)
    course = Course(out.name, seed, recipe, (work or out.with_name(f"{out.name}.work")) / diffusion.CHECKPOINT)
    how = teach(student, student.groups(recipe), lessons, course)
    write(out, student, vae)
    return how


def teach(student: Student, groups: list[dict[str, Any]], lessons: Lessons, course: Course) -> dict[str, Any]:
    """Trains the groups of parameters, each at its peak rate; the student ends with their moving averages."""
    recipe, seed = course.recipe, course.seed
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.99), weight_decay=0.0)
    average = {name: value.clone() for name, value in checkpoints.weights(student).items()}
    first = checkpoints.restore(course.checkpoint, student, optimizer, average)
    started, shown = time.time(), []
    for step in range(first, recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = checkpoints.pace(step, recipe.steps, group["peak"])
        random = Random(f"{seed} {step}")  # noqa: S311 (no secret)
        torch.manual_seed(random.getrandbits(62))
        prompts, latents = lessons.batch(random)
        shown.append(_step(student, optimizer, latents, prompts, recipe.noisy))
        checkpoints.follow(average, student, min(recipe.keep, (1 + step) / (10 + step)))
        if step % 50 == 49:
            seconds = time.time() - started
            print(f"{course.name} {step + 1}/{recipe.steps} {seconds:.0f}s {np.mean(shown):.4f}", flush=True)
            shown.clear()
        if (step + 1) % recipe.save_every == 0:
            checkpoints.save(course.checkpoint, step + 1, student, optimizer, average)
    student.load_state_dict(average)
    how = {"seed": seed, "recipe": vars(recipe), "seconds": round(time.time() - started)}
    learned = sum(parameter.numel() for group in groups for parameter in group["params"])
    return {"training": how, "parameters": learned}


def times(count: int, noisy: float) -> Tensor:
    """Draws noise levels from 0 to 999, int64 (count,): a share `noisy` from the upper two fifths, the rest from all;
    both uniformly."""
    high = round(count * noisy)
    upper = 600 + (torch.arange(high) + torch.rand(high)) / max(high, 1) * 400
    rest = (torch.arange(count - high) + torch.rand(count - high)) / max(count - high, 1) * 1000
    return torch.cat([upper, rest]).long().clamp(max=999)  # where rounding would make it 1000


def _step(
    student: Student, optimizer: torch.optim.Optimizer, latents: Tensor, prompts: list[str], noisy: float
) -> float:
    noise, grain = diffusion.scheduler(), torch.randn_like(latents)
    levels = times(len(latents), noisy)
    with checkpoints.half_where_faster():
        states = student.states(prompts)
        result = student.unet(noise.add_noise(latents, grain, levels), levels, encoder_hidden_states=states).sample
    loss = F.mse_loss(result.float(), noise.get_velocity(latents, grain, levels))
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def scheduler() -> UniPCMultistepScheduler:
    """Returns the sampler for the schedule of `diffusion`. In a dozen steps it shows values as often as DDIM in fifty:
    DDIM in ten draws rain in .38 of the control's pictures, where .25 is right, and fog in .14."""
    return UniPCMultistepScheduler.from_config(diffusion.scheduler().config)


def write(out: Path, student: Student, vae: Any) -> None:
    """Writes the whole pipeline as diffusers does, in half precision."""
    for name, part in (("vae", vae), ("unet", student.unet)):
        part.register_to_config(_name_or_path=name)  # else the config holds a path of the training machine
    pipeline: Any = StableDiffusionPipeline(
        vae=vae,
        text_encoder=student.text.eval(),
        tokenizer=student.tokenizer,
        unet=student.unet,
        scheduler=scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.to(torch.float16).save_pretrained(out, safe_serialization=True)
