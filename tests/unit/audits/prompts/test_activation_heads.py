"""Heads on the activations of a generator made up here: found where there is something to read, refused where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from c2b_ray.audits.prompts.heads import HeadPlan, Trained, guiding_step, train_heads
from c2b_ray.audits.prompts.steps.search import Head, HeadGuide
from c2b_ray.models.activation_heads import decoded, encoded, train_head
from c2b_ray.models.scripted import ScriptedCaptioner
from c2b_ray.roles import Floats, GeneratedImage, GenerationRequest, Question
from c2b_ray.stats.gains import BalancedAccuracy

COLOUR = Question("Which colour?", ("dark", "light"))
PLAN = HeadPlan(tuple(f"prompt {n}" for n in range(40)), 4, "unet.mid_block", (0, 2), 0.3, 0.05, 1)


class Generator:
    """A picture is light or dark by its seed; from step 1 on its activations know which. Implements both roles."""

    revision = "made up"
    activation_names: tuple[str, ...] = ("unet.mid_block",)
    denoising_steps = 3

    def light(self, request: GenerationRequest) -> bool:
        return bool(np.random.default_rng(request.seed).random() < 0.5)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        return [GeneratedImage(self._pixels(request)) for request in requests]

    def _pixels(self, request: GenerationRequest) -> np.ndarray:
        pixels = np.random.default_rng(0).integers(0, 100, (8, 8, 3)) + 150 * self.light(request)
        return pixels.astype(np.uint8)

    def activations(self, requests: Sequence[GenerationRequest], name: str, steps: Sequence[int]) -> Floats:
        noise = np.array([np.random.default_rng(r.seed + 1).normal(size=(len(steps), 5)) for r in requests])
        known = np.array([[(step > 0) * (2 * self.light(r) - 1) for step in steps] for r in requests])
        noise[:, :, 2] += 3 * known
        return noise.astype(np.float32)


def judge(answer: str | None = None) -> ScriptedCaptioner:
    return ScriptedCaptioner(answers=lambda asked: answer or ("light" if asked[0].mean() > 125 else "dark"))


def trained_heads(*arguments: Any) -> list[Trained]:
    """Returns the heads, and checks that the counts of images before them rise to all of them."""
    plan, yielded = arguments[3], list(train_heads(*arguments))
    counts = [one for one in yielded if isinstance(one, int)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, len(plan.prompts) * plan.images)
    return [one for one in yielded[len(counts) :] if isinstance(one, Trained)]


def test_a_step_that_knows_nothing_is_at_chance_and_a_later_one_guides() -> None:
    [trained] = trained_heads(Generator(), judge(), {"colour": COLOUR}, PLAN, train_head)
    assert trained.accuracy[0].low < 0.5
    assert trained.accuracy[2].value == 1
    assert trained.accuracy[2].low > 0.65  # twelve prompts, all right, are no certainty
    assert trained.step == 2
    assert trained.values == ("dark", "light")
    assert trained.prompts == 12  # .3 of 40


def test_a_head_guides_by_its_value_and_comes_back_from_its_file() -> None:
    [trained] = trained_heads(Generator(), judge(), {"colour": COLOUR}, PLAN, train_head)
    about = {"attribute": "colour", "values": ["dark", "light"], "activation": "unet.mid_block", "step": 2}
    heads, noted = decoded(encoded(trained.heads, about), "x")  # type: ignore[arg-type]
    assert noted == about
    one = heads[2]
    head = Head("colour", trained.values, "unet.mid_block", 2, one.weight, one.bias, one.mean, one.scale)
    generator = Generator()
    seeds = list(range(200))
    shown = HeadGuide(generator, (head,), ("light",)).probabilities(["a", "b"], seeds)
    truth = [generator.light(GenerationRequest("a", seed)) for seed in seeds]
    assert shown.shape == (2, 200)
    assert np.mean((shown[0] > 0.5) == truth) > 0.95
    both = HeadGuide(generator, (head, head), ("light", "light")).probabilities(["a"], seeds)
    np.testing.assert_allclose(both[0], shown[0] ** 2)


def test_an_attribute_of_which_images_show_one_value_has_no_head_and_the_others_have_theirs() -> None:
    """A generator that draws only light pictures is biased, not wrong."""
    teacher = ScriptedCaptioner(
        answers=lambda asked: "light" if asked[1] == COLOUR or asked[0].mean() > 125 else "dark"
    )
    tone = Question("Which tone?", ("dark", "light"))
    colour, other = trained_heads(Generator(), teacher, {"colour": COLOUR, "tone": tone}, PLAN, train_head)
    assert (colour.step, colour.values, colour.missing, colour.heads) == (None, ("light",), ("dark",), {})
    assert np.isnan(colour.accuracy[0].value)
    assert other.step == 2
    about = {"attribute": "colour", "values": ["light"], "activation": "unet.mid_block", "step": None}
    assert decoded(encoded({}, about), "x") == ({}, about)


class OneRed(Generator):
    """As `Generator`, but all images of one prompt are red."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        images = super().generate(requests)
        for image, request in zip(images, requests, strict=True):
            if request.prompt == self._prompt and image.pixels is not None:
                image.pixels[:] = (255, 0, 0)
        return images


@pytest.mark.parametrize("prompt", PLAN.prompts[:6])
def test_a_rare_value_that_is_not_both_learned_and_held_out_is_no_value_of_the_head(prompt: str) -> None:
    """Otherwise nothing would say whether a search for it goes by anything."""
    question = Question("Which colour?", ("dark", "light", "red"))
    plan = replace(PLAN, images=8)

    def says(asked: tuple[np.ndarray, Question]) -> str:
        return "red" if asked[0][..., 1].max() == 0 else "light" if asked[0].mean() > 125 else "dark"

    [trained] = trained_heads(OneRed(prompt), ScriptedCaptioner(answers=says), {"colour": question}, plan, train_head)
    assert (trained.missing, trained.step) == (("red",), 2)


def test_the_earliest_step_that_is_not_clearly_behind_guides() -> None:
    def accuracy(value: float, reach: float = 0.05) -> BalancedAccuracy:
        return BalancedAccuracy(value, value - reach, value + reach, 0.5)

    assert guiding_step({0: accuracy(0.6), 3: accuracy(0.87), 6: accuracy(0.9)}) == 3
    assert guiding_step({0: accuracy(0.52), 3: accuracy(0.54)}) is None
    assert guiding_step({}) is None
