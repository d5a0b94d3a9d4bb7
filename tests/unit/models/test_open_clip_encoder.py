"""open_clip's variants and preprocessing as read from files, and its packed layers."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from open_clip.pretrained import get_pretrained_cfg
from safetensors.torch import load_file, save_file
from torch import nn

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
from c2b_ray.models.open_clip_encoder import pack, sources
from c2b_ray.world.zoo import WEIGHTS


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_file({"x": torch.zeros(1)}, path)
    return path


def read(text: str):
    return sources(catalog.parse(f"open_clip:{text}"))


@pytest.mark.parametrize("name", open_clip.list_models())
def test_weights_of_ones_own_are_read_as_all_published_ones_or_are_a_question(name: str, file: Path) -> None:
    """The oracle is open_clip's own list of published weights."""
    known = [get_pretrained_cfg(name, tag) for tag in open_clip.list_pretrained_tags_by_model(name)]
    quick_of_name = bool(open_clip.get_model_config(name).get("quick_gelu"))
    quick = {quick_of_name or bool(config.get("quick_gelu")) for config in known} or {quick_of_name}
    prepared = {tuple(str(config[key]) for key in ("mean", "std", "resize_mode", "interpolation")) for config in known}
    if len(quick) > 1 or len(prepared) > 1:
        with pytest.raises(SpecError, match="pretrained_cfg=TAG"):
            read(f"{name}?weights={file}")
        return
    found = read(f"{name}?weights={file}")
    assert {found.quick_gelu} == quick
    preprocessing = found.arguments["force_preprocess_cfg"]
    for config in known:
        for key in ("mean", "std", "resize_mode", "interpolation"):
            assert preprocessing[key] == config[key]
    assert found.preprocessing["mean"].assumed
    assert found.activation.assumed is not quick_of_name


def test_the_spec_says_what_published_weights_differ_in(file: Path) -> None:
    with pytest.raises(SpecError, match=r"some have QuickGELU \(openai.*quickgelu=true or quickgelu=false"):
        read(f"ViT-B-32?weights={file}")
    for option, quick in (
        ("quickgelu=true", True),
        ("quickgelu=false", False),
        ("pretrained_cfg=openai", True),
        ("pretrained_cfg=laion2b_s34b_b79k", False),
    ):
        found = read(f"ViT-B-32?weights={file}&{option}")
        assert (found.quick_gelu, found.activation.assumed) == (quick, False)
    assert read(f"ViT-B-32/openai?weights={file}").quick_gelu
    with pytest.raises(SpecError, match=r"prepare pictures differently: mean .*pretrained_cfg=TAG"):
        read(f"ViT-L-14?weights={file}&quickgelu=false")
    stated = read(f"ViT-L-14?weights={file}&quickgelu=false&mean=0.5&std=0.5")
    assert stated.arguments["force_preprocess_cfg"]["mean"] == (0.5, 0.5, 0.5)
    assert not stated.preprocessing["mean"].assumed


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("ViT-B-32?weights={w}&quickgelu=yes", "neither true nor false"),
        ("ViT-B-32-quickgelu?weights={w}&quickgelu=false", "name the one without it"),
        ("ViT-B-32?weights={w}&pretrained_cfg=openaj", "did you mean 'openai'"),
        ("ViT-B-32/openai?quickgelu=true", "goes with weights=FILE"),
        ("local-dir:x?pretrained_cfg=openai", "does not go with it"),
        ("RN50?weights={w}&resize_mode=fit", "none of shortest, longest, squash"),
    ],
)
def test_wrong_options_are_refused(spec: str, reason: str, file: Path) -> None:
    with pytest.raises(SpecError, match=reason):
        read(spec.format(w=file))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WEIGHTS / "clip-base-s", tmp_path / "clip"))


def rescaled(folder: Path, **scalars: float) -> None:
    path = folder / "open_clip_model.safetensors"
    save_file({**load_file(path), **{name: torch.tensor(value) for name, value in scalars.items()}}, path)


def test_zero_shot_answers_have_the_models_own_scale(copy: Path) -> None:
    picture = [np.random.default_rng(0).integers(0, 255, (70, 80, 3), dtype=np.uint8)]
    spec = f"open_clip:local-dir:{copy}?labels=bus,boat&device=cpu"
    hundred = catalog.classifier(f"{spec}&temperature=100")
    for scale, expected in ((np.log(10.0), 10.0), (np.log(100.0), 100.0), (np.log(112.0), 112.0)):
        rescaled(copy, logit_scale=float(scale))
        model = catalog.classifier(spec)
        np.testing.assert_allclose(
            model.logits(picture, [""]), hundred.logits(picture, [""]) * expected / 100, rtol=1e-4, atol=1e-4
        )
        known = catalog.describe("classifier", spec)
        assert known is not None
        assert known == catalog.description_of(model)
        for facts in (known.facts, catalog.description_of(model).facts):
            fact = next(fact for fact in facts if fact.name == "temperature")
            assert (float(fact.value), fact.source) == (pytest.approx(expected, rel=1e-4), "the model's logit_scale")
    # A scale of 100 is stored with a rounding error; runs of before, of 100, resume.
    rescaled(copy, logit_scale=4.6052)
    before = catalog.describe("classifier", f"{spec}&temperature=100")
    assert before == catalog.describe("classifier", spec)


def test_a_bias_of_siglip_cancels_and_its_scale_does_not(copy: Path) -> None:
    config = copy / "open_clip_config.json"
    about = json.loads(config.read_text())
    about["model_cfg"]["init_logit_bias"] = -10
    config.write_text(json.dumps(about))
    rescaled(copy, logit_scale=float(np.log(115.0)), logit_bias=-12.9)
    picture = [np.random.default_rng(0).integers(0, 255, (70, 80, 3), dtype=np.uint8)]
    model = open_clip.create_model(f"local-dir:{copy}").eval()
    ours = catalog.classifier(f"open_clip:local-dir:{copy}?labels=bus,boat&template={{}}&device=cpu")
    encoder = catalog.encoder(f"open_clip:local-dir:{copy}?device=cpu")
    with torch.inference_mode():
        cosines = torch.from_numpy(encoder.encode_images(picture) @ encoder.encode_texts(["bus", "boat"]).T)
        expected = (model.logit_scale.exp() * cosines + model.logit_bias).softmax(-1).numpy()
    logits = torch.from_numpy(ours.logits(picture, [""]))
    np.testing.assert_allclose(logits.softmax(-1).numpy(), expected, atol=1e-5)


def test_a_folder_without_preprocessing_says_what_is_assumed(copy: Path) -> None:
    config = copy / "open_clip_config.json"
    about = json.loads(config.read_text())
    stated = catalog.describe("encoder", f"open_clip:local-dir:{copy}")
    del about["preprocess_cfg"]["mean"]
    config.write_text(json.dumps(about))
    assumed = catalog.describe("encoder", f"open_clip:local-dir:{copy}")
    overridden = catalog.describe("encoder", f"open_clip:local-dir:{copy}?mean=0.5")
    assert stated is not None
    assert assumed is not None
    assert overridden is not None
    found = [{f.name: f for f in known.facts}["normalisation"] for known in (stated, assumed, overridden)]
    assert [fact.assumed for fact in found] == [False, True, False]
    assert found[1].option == "mean"
    assert "mean 0.5" in found[2].value
    assert assumed.facts == catalog.encoder(f"open_clip:local-dir:{copy}").facts  # type: ignore[attr-defined]


SMALL = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8},
    "text_cfg": {"context_length": 12, "vocab_size": 100, "width": 64, "heads": 2, "layers": 2},
}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return open_clip.CLIP(**deepcopy(SMALL)).eval().requires_grad_(False)


def linears(model: nn.Module) -> int:
    return sum(type(part) is nn.Linear for part in model.modules())


def test_a_packed_model_embeds_as_before_but_for_rounding(model: nn.Module) -> None:
    packed = deepcopy(model)
    pack(packed)
    assert linears(model) == 8
    assert linears(packed) == 0
    images, texts = torch.randn(5, 3, 32, 32), torch.randint(1, 100, (5, 12))
    with torch.inference_mode():
        for rows in (1, 5):
            for embed in ("encode_image", "encode_text"):
                given = (images if embed == "encode_image" else texts)[:rows]
                torch.testing.assert_close(getattr(packed, embed)(given), getattr(model, embed)(given))


def test_other_precisions_are_left_as_they_are(model: nn.Module) -> None:
    half = deepcopy(model).to(torch.bfloat16)
    pack(half)
    assert linears(half) == linears(model)
