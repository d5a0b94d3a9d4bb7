"""Vision-language models whose weights have one defect: no tensor is made up."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from defective_weights import DEFECTS, Kit, damaged, names_of, refused, same_twice_or_refused, saved
from safetensors.torch import load_file

from c2b_ray.models import catalog
from c2b_ray.roles import Captioner, Pixels


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_refused_by_name_or_answers_alike(
    defect: str, tiny: Path, images: list[Pixels], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "copy"))
    file = folder / "model.safetensors"
    middle = next(name for name in names_of(file) if name.endswith("layers.0.mlp.up_proj.weight"))
    damaged(Kit(file, middle), defect)

    def load() -> Captioner:
        return catalog.captioner(f"hf-vlm:{folder}?device=cpu")

    def answers(captioner: Captioner) -> bytes:
        return repr(captioner.caption(images[:1], ["bus"])).encode()

    shown = {"layers.0.mlp.up_proj.weight", "ema.", *(name[:12] for name in names_of(file))}
    same_twice_or_refused(load, answers, shown)
    if defect in ("a tensor missing", "tensors too many"):
        refused(load, "1 missing|2 unexpected")


def test_a_prefix_is_taken_off(tiny: Path, images: list[Pixels], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "copy"))
    file = folder / "model.safetensors"
    good = catalog.captioner(f"hf-vlm:{folder}?device=cpu").caption(images[:2], ["bus"] * 2)
    saved({f"module.{name}": tensor for name, tensor in load_file(file).items()}, file)
    assert catalog.captioner(f"hf-vlm:{folder}?device=cpu").caption(images[:2], ["bus"] * 2) == good
