"""What an ImageGenerator must do with a diffusers pipeline: its faults, options and revision, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline, StableDiffusionPipeline
from safetensors.torch import load_file, save_file
from tiny_pipeline import REQUESTS, STEPS, difference

from c2b_ray.errors import ServiceError, SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.diffusers_generator import DiffusersGenerator
from c2b_ray.roles import ImageGenerator


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / "copy"))


def damaged(directory: Path, part: str, names: Callable[[str], bool], value: float) -> ImageGenerator:
    file = directory / part / "diffusion_pytorch_model.safetensors"
    tensors = {name: torch.full_like(t, value) if names(name) else t for name, t in load_file(file).items()}
    save_file(tensors, file)
    return catalog.image_generator(f"diffusers:local-dir:{directory}?{STEPS}")


def test_nan_black_and_single_colour_are_errors_of_their_rows(copy: Path) -> None:
    def last(name: str) -> bool:
        return name.startswith("decoder.conv_out")

    def bias(name: str) -> bool:
        return name == "decoder.conv_out.bias"

    for names, value, reason in [(last, 0.0, "single colour"), (bias, -1.0, "all black"), (bias, math.nan, "NaN")]:
        found = damaged(copy, "vae", names, value).generate(REQUESTS[:3])
        assert [image.pixels for image in found] == [None] * 3
        assert [reason in str(image.error) for image in found] == [True] * 3


def test_a_pipeline_that_answers_with_another_number_of_images_is_refused() -> None:
    def one(**_: Any) -> Any:
        return SimpleNamespace(images=np.zeros((1, 8, 8, 3)))

    with pytest.raises(ServiceError, match="answered 2 prompts with 1 images"):
        DiffusersGenerator(one, {}, None, "r", batch=4).generate(REQUESTS[:2])


def test_what_a_safety_checker_blanks_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = catalog.image_generator(f"diffusers:local-dir:{directory}?{STEPS}")

    def censor(self: Any, image: torch.Tensor, device: Any, dtype: Any) -> tuple[torch.Tensor, list[bool]]:
        image[1] = 0
        return image, [False, True]

    monkeypatch.setattr(StableDiffusionPipeline, "run_safety_checker", censor)
    fine, blank = generator.generate(REQUESTS[:2])
    assert fine.error is None
    assert (blank.pixels, blank.error) == (None, "the pipeline's safety checker blanked the image")


def test_options_reach_the_pipeline(make: Callable[[str, str], ImageGenerator]) -> None:
    found = make("diffusers", "size=8x24&scheduler=EulerAncestralDiscreteScheduler").generate(REQUESTS[:2])
    assert [image.pixels.shape for image in found if image.pixels is not None] == [(8, 24, 3)] * 2
    revisions = {make("diffusers", o).revision for o in ("", "size=8x24", "dtype=bf16", "scheduler=PNDMScheduler")}
    assert len(revisions) == 4


def test_noise_of_a_scheduler_is_of_the_row_too(make: Callable[[str, str], ImageGenerator]) -> None:
    generator = make("diffusers", "scheduler=EulerAncestralDiscreteScheduler&batch=2")
    both, alone = generator.generate(REQUESTS[:2]), generator.generate(REQUESTS[1:2])
    assert difference(both[1], alone[0]) <= 1


@pytest.mark.parametrize("part", ["unet/diffusion_pytorch_model.safetensors", "scheduler/scheduler_config.json"])
def test_the_revision_follows_weights_and_settings(copy: Path, part: str) -> None:
    spec = f"diffusers:local-dir:{copy}?{STEPS}"
    before = catalog.image_generator(spec).revision
    path = copy / part
    if path.suffix == ".json":
        path.write_text(path.read_text().replace('"beta_end": 0.02', '"beta_end": 0.03'))
    else:
        tensors = load_file(path)
        save_file({**tensors, "conv_out.bias": tensors["conv_out.bias"] + 1}, path)
    assert catalog.image_generator(spec).revision != before
    assert catalog.image_generator(spec.replace("steps=2", "steps=3")).revision != before


def test_pickles_and_code_are_refused(copy: Path) -> None:
    spec = f"diffusers:local-dir:{copy}"
    (copy / "unet" / "model.py").write_text("")
    with pytest.raises(WeightsError, match=r"brings code of its own \(model.py\)"):
        catalog.image_generator(spec)
    (copy / "unet" / "model.py").unlink()
    whole = copy / "vae" / "diffusion_pytorch_model.safetensors"
    torch.save(load_file(whole), whole.with_suffix(".bin"))
    whole.unlink()
    with pytest.raises(WeightsError, match="are pickles"):
        catalog.image_generator(spec)
    whole.with_suffix(".bin").unlink()
    with pytest.raises(WeightsError, match="cannot build its pipeline"):
        catalog.image_generator(spec)
    whole.write_bytes(b"\x80\x04.")
    with pytest.raises(WeightsError):
        catalog.image_generator(spec)


def test_a_pipeline_that_takes_no_text_is_refused(copy: Path) -> None:
    index = json.loads((copy / "model_index.json").read_text())
    unconditional = {k: index[k] for k in ("_diffusers_version", "unet", "scheduler")}
    (copy / "model_index.json").write_text(json.dumps({"_class_name": "DDIMPipeline", **unconditional}))
    with pytest.raises(SpecError, match="makes no images from texts"):
        catalog.image_generator(f"diffusers:local-dir:{copy}")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("dtype=fp23", "did you mean 'fp32'"),
        ("size=64", "not HEIGHTxWIDTH"),
        ("guidance=-1", "not a number of 0 or above"),
        ("steps=0", "whole number above 0"),
        ("scheduler=DDIMSheduler", "did you mean 'DDIMScheduler'"),
        ("compile=yes", "neither true nor false"),
        ("stebs=3", "did you mean 'steps'"),
    ],
)
def test_options_that_mean_nothing_are_refused(directory: Path, options: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        catalog.image_generator(f"diffusers:local-dir:{directory}?{options}")


def test_the_hub_is_asked_for_safetensors_alone(
    directory: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[str, str], ImageGenerator]
) -> None:
    asked = []

    def hub(name: str, **how: Any) -> str:
        asked.append((name, how))
        if name != "org/name":
            raise OSError("offline\nand more")
        return str(directory)

    monkeypatch.setattr(DiffusionPipeline, "download", hub)
    generator = catalog.image_generator(f"diffusers:org/name@main?{STEPS}")
    assert generator.revision == make("diffusers", "").revision
    assert asked == [("org/name", {"revision": "main", "use_safetensors": True})]
    with pytest.raises(SpecError, match=r"org/other cannot be fetched from the model hub \(offline\); a directory"):
        catalog.image_generator("diffusers:org/other")


def test_names_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"holds no model_index.json"):
        catalog.image_generator(f"diffusers:local-dir:{tmp_path}")
    with pytest.raises(SpecError, match="did you mean 'renderer'"):
        catalog.image_generator("world:rendrer")
    with pytest.raises(SpecError, match="between 0 and 1"):
        catalog.image_generator("world:renderer?mislabel=2")
