"""An interrupted training of autoencoder or diffusion goes on as if it had not been; the text tower is open_clip's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from safetensors.torch import load_file

from c2b_ray.models import catalog
from c2b_ray.roles import GenerationRequest
from c2b_ray.world.queries import FACTORS
from c2b_ray.world.scenes import sample
from c2b_ray.world.training import autoencoder, checkpoints, diffusion, judge, text_tower, train
from c2b_ray.world.training.model_card import write_card
from c2b_ray.world.truth import render_all
from c2b_ray.world.zoo import WEIGHTS

CLIP = WEIGHTS / "clip"
PROMPTS = ["a photo of a red bus on a street at night", "", "Fish, blue."]


class Interrupted(Exception):
    pass


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the next checkpoint the last thing that its training does."""

    def once() -> None:
        whole = checkpoints.save

        def save(*arguments: Any, **more: Any) -> None:
            whole(*arguments, **more)
            monkeypatch.setattr(checkpoints, "save", whole)
            raise Interrupted

        monkeypatch.setattr(checkpoints, "save", save)

    return once


@pytest.fixture(scope="module")
def vae(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("vae")
    autoencoder.save(autoencoder.create(), place)
    return place


def same(one: Path, other: Path) -> None:
    first, second = load_file(one), load_file(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=0, atol=0)


def test_the_text_tower_gives_what_open_clip_gives() -> None:
    model = open_clip.create_model(f"local-dir:{CLIP}").eval()
    tokens = open_clip.get_tokenizer(f"local-dir:{CLIP}")(PROMPTS)
    states = text_tower.encode(text_tower.tower(CLIP), text_tower.tokenizer(CLIP), PROMPTS)
    assert states.shape == (3, text_tower.LENGTH, 128)
    with torch.no_grad():
        ends = [states[row, (tokens[row] == 2).nonzero()[0, 0]] for row in range(3)]  # 2 is <eos>
        found = torch.stack(ends) @ model.text.text_projection
        torch.testing.assert_close(found, model.encode_text(tokens), rtol=0, atol=1e-4)


def test_an_interrupted_autoencoder_goes_on(tmp_path: Path, interrupt: Callable[[], None]) -> None:
    recipe = autoencoder.Recipe(scenes=20, steps=3, batch=2, save_every=2)
    autoencoder.train(tmp_path / "whole", 1, CLIP, recipe)
    interrupt()
    with pytest.raises(Interrupted):
        autoencoder.train(tmp_path / "parts", 1, CLIP, recipe)
    about = autoencoder.train(tmp_path / "parts", 1, CLIP, recipe)
    assert 0.8e6 < about["parameters"] < 1.3e6
    same(*(tmp_path / name / "diffusion_pytorch_model.safetensors" for name in ("whole", "parts")))


def test_an_interrupted_diffusion_goes_on_and_is_a_pipeline(
    tmp_path: Path, vae: Path, interrupt: Callable[[], None]
) -> None:
    recipe = diffusion.Recipe(pool=12, steps=3, batch=4, save_every=2)
    diffusion.train(tmp_path / "whole", 1, vae, CLIP, recipe)
    interrupt()
    with pytest.raises(Interrupted):
        diffusion.train(tmp_path / "parts", 1, vae, CLIP, recipe)
    about = diffusion.train(tmp_path / "parts", 1, vae, CLIP, recipe)
    assert 3e6 < about["parameters"] < 6e6
    same(*(tmp_path / name / "unet" / "diffusion_pytorch_model.safetensors" for name in ("whole", "parts")))
    generator = catalog.image_generator(f"diffusers:local-dir:{tmp_path / 'parts'}?steps=2&guidance=2&device=cpu")
    found = generator.generate([GenerationRequest(text, 1) for text in PROMPTS])
    assert [image.error or image.pixels.shape for image in found if image.pixels is not None] == [(64, 64, 3)] * 3


def test_a_pipeline_names_no_place_of_the_machine_that_made_it(vae: Path, tmp_path: Path) -> None:
    average = checkpoints.weights(diffusion.create())
    diffusion.write(tmp_path / "pipeline", average, vae, CLIP)
    for file in (tmp_path / "pipeline").rglob("*.json"):
        assert str(vae.parent) not in file.read_text(), file


def test_latents_are_of_unit_scale_and_back(vae: Path) -> None:
    model = autoencoder.create()
    autoencoder._set_scale(model, sample(8, 1))
    images = render_all(sample(8, 1))
    mean, std = autoencoder.encode(model, images)
    assert mean.shape == std.shape == (8, autoencoder.LATENTS, 8, 8)
    assert float((mean + std * torch.randn_like(std)).std()) == pytest.approx(1, abs=0.1)
    assert autoencoder.decode(model, mean).shape == images.shape
    assert autoencoder.decode(model, mean).dtype == np.uint8


def test_one_command_trains_measures_and_describes_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "QUALITY_PROMPTS", 6)
    monkeypatch.setattr(train, "_JUDGED", 20)
    train.train_judge(tmp_path, 1, judge.Recipe(scenes=20, steps=1, batch=4))
    train.train_vae(tmp_path, 1, autoencoder.Recipe(scenes=20, steps=1, batch=2))
    train.train_diffusion(tmp_path, 1, diffusion.Recipe(pool=8, steps=1, batch=2))
    card = write_card(tmp_path).read_text()
    for name in ("judge", "vae", "diffusion"):
        metrics = json.loads((tmp_path / name / "metrics.json").read_text())
        assert metrics["training"]["recipe"]["steps"] == 1
        quality = metrics["quality"]
        assert list(quality.get("factors") or quality["accuracy"]) == list(FACTORS)
        assert f"## {name}:" in card
    assert card.count("| lighting |") == 3
