"""What every TextImageEncoder must do, on an open_clip model made here; and what open_clip's loader refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from open_clip.pretrained import get_pretrained_cfg
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import catalog, weights
from c2b_ray.roles import Pixels, TextImageEncoder

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "a", "photo", "of", "dog", "cat"]
MODEL = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {
        "context_length": 12,
        "vocab_size": len(WORDS),
        "width": 32,
        "heads": 2,
        "layers": 2,
        "hf_tokenizer_name": "local",
        "pad_id": 0,
        "eos_id": 2,
        "pool_type": "eos",
    },
}
PREPROCESS = {
    "size": [32, 32],
    "mean": [0.4] * 3,
    "std": [0.3] * 3,
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}


def save_tokenizer(directory: Path) -> None:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(directory)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("clip")
    save_tokenizer(place)
    (place / "open_clip_config.json").write_text(json.dumps({"model_cfg": MODEL, "preprocess_cfg": PREPROCESS}))
    torch.manual_seed(0)
    model = open_clip.create_model(f"local-dir:{place}", load_weights=False)
    save_file(model.state_dict(), place / "open_clip_model.safetensors")
    return place


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / "copy"))


@pytest.fixture(scope="module")
def encoder(directory: Path) -> TextImageEncoder:
    return catalog.encoder(f"open_clip:local-dir:{directory}?device=cpu")


@pytest.fixture(scope="module")
def images() -> list[Pixels]:
    noise = np.random.default_rng(0)
    return [noise.integers(0, 256, (32 + 9 * i, 70 - 7 * i, 3), dtype=np.uint8) for i in range(5)]


def test_it_is_the_role(encoder: TextImageEncoder) -> None:
    assert isinstance(encoder, TextImageEncoder)
    assert encoder.dimension == 16
    assert len(encoder.revision) == 20


def test_embeddings_are_unit_norm_and_in_order(encoder: TextImageEncoder, images: list[Pixels]) -> None:
    texts = ["a photo of dog", "cat", "", "dog " * 50, "words it has never met"]
    for found, swapped in [
        (encoder.encode_images(images), encoder.encode_images(images[::-1])),
        (encoder.encode_texts(texts), encoder.encode_texts(texts[::-1])),
    ]:
        assert found.shape == (5, 16)
        assert found.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(found, swapped[::-1], atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "pure_bf16"])
def test_it_is_described_without_being_loaded(directory: Path, precision: str) -> None:
    for spec in (f"open_clip:local-dir:{directory}?device=cpu&precision={precision}", "world:clip?device=cpu"):
        known = catalog.describe("encoder", spec)
        assert known is not None
        assert known == catalog.description_of(catalog.encoder(spec))


def test_no_rows(encoder: TextImageEncoder) -> None:
    assert encoder.encode_images([]).shape == (0, 16)
    assert encoder.encode_texts([]).shape == (0, 16)


def test_the_batch_size_changes_nothing(directory: Path, encoder: TextImageEncoder, images: list[Pixels]) -> None:
    alone = catalog.encoder(f"open_clip:local-dir:{directory}?device=cpu&batch=2")
    np.testing.assert_allclose(alone.encode_images(images), encoder.encode_images(images), atol=1e-5)
    assert alone.revision == encoder.revision


def test_preprocessing_is_open_clips_own(directory: Path, encoder: TextImageEncoder, images: list[Pixels]) -> None:
    model = open_clip.create_model(f"local-dir:{directory}").eval()
    transform = image_transform_v2(PreprocessCfg(**{**PREPROCESS, "size": 32}), is_train=False)
    with torch.inference_mode():
        batch = torch.stack([transform(Image.fromarray(image)) for image in images])
        expected = model.encode_image(batch, normalize=True).numpy()
        words = open_clip.get_tokenizer(f"local-dir:{directory}")(["a photo of dog"])
        expected_text = model.encode_text(words, normalize=True).numpy()
    # The pixels are Pillow's (tests/unit/models/pixels/test_preprocess.py).
    np.testing.assert_allclose(encoder.encode_images(images), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_texts(["a photo of dog"]), expected_text, atol=1e-5)


def test_half_precision_still_gives_unit_float32(directory: Path, images: list[Pixels]) -> None:
    half = catalog.encoder(f"open_clip:local-dir:{directory}?device=cpu&precision=bf16")
    found = half.encode_images(images)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("file", ["open_clip_model.safetensors", "open_clip_config.json", "tokenizer.json"])
def test_the_revision_follows_weights_preprocessing_and_tokenizer(
    copy: Path, encoder: TextImageEncoder, file: str
) -> None:
    path = copy / file
    if file.endswith(".safetensors"):
        tensors = weights.read_safetensors(path)
        save_file({**tensors, "visual.proj": tensors["visual.proj"] + 1}, path)
    else:
        path.write_text(path.read_text().replace("0.4", "0.5") + "\n")
    assert catalog.encoder(f"open_clip:local-dir:{copy}").revision != encoder.revision


def test_a_pickle_is_refused_even_where_open_clip_would_take_it(copy: Path) -> None:
    (copy / "open_clip_model.safetensors").rename(copy / "other.safetensors")
    torch.save({}, copy / "open_clip_pytorch_model.bin")
    with pytest.raises(WeightsError, match="no such file"):
        catalog.encoder(f"open_clip:local-dir:{copy}")
    with pytest.raises(WeightsError, match="are pickles"):
        catalog.encoder(f"open_clip:ViT-B-32?weights={copy}/open_clip_pytorch_model.bin")


def test_weights_and_tokenizers_that_do_not_fit_are_refused(copy: Path) -> None:
    spec = f"open_clip:local-dir:{copy}"
    config, tokenizer = copy / "open_clip_config.json", copy / "tokenizer.json"
    whole, words = config.read_text(), tokenizer.read_text()
    config.write_text(whole.replace('"embed_dim": 16', '"embed_dim": 17'))
    with pytest.raises(WeightsError, match=r"of another shape \(.*visual\.proj .*another size or version"):
        catalog.encoder(spec)
    config.write_text("{")
    with pytest.raises(WeightsError, match="open_clip cannot build it"):
        catalog.encoder(spec)
    config.write_text(whole)
    tokenizer.write_text(words.replace('"photo":5', '"photo":99').replace('"photo": 5', '"photo": 99'))
    with pytest.raises(WeightsError, match="tokenizer does not fit"):
        catalog.encoder(spec)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("ViT-B-3/openai", "did you mean 'ViT-B-32'"),
        ("ViT-B-32/laion2b", "no weights 'laion2b' for ViT-B-32; did you mean"),
        ("ViT-B-32", "expected ARCH/WEIGHTS"),
        ("ViT-B-32/openai?precision=fp23", "did you mean 'fp32'"),
        ("local-dir:nowhere", "nowhere holds no open_clip_config.json"),
        ("ViT-B-32/openai?weigths=x", "did you mean 'weights'"),
    ],
)
def test_names_that_mean_nothing_offer_the_nearest(spec: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        catalog.encoder(f"open_clip:{spec}")


def test_published_weights_come_as_safetensors_with_their_own_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def hub(repository: str, filename: str, **_: object) -> str:
        asked.append((repository, filename))
        save_file({"logit_scale": torch.zeros(1)}, tmp_path / filename)
        return str(tmp_path / filename)

    def create(name: str, **arguments: Any) -> Any:
        asked.append((name, arguments))
        raise RuntimeError("that is far enough")

    monkeypatch.setattr(weights, "hf_hub_download", hub)
    monkeypatch.setattr(open_clip, "create_model", create)
    for name, filename in [
        ("ViT-B-32/openai", "open_clip_model.safetensors"),
        ("ViT-B-16-SigLIP/webli", "open_clip_model.safetensors"),
    ]:
        asked.clear()
        with pytest.raises(WeightsError, match="far enough"):
            catalog.encoder(f"open_clip:{name}")
        (_, asked_file), (_, arguments) = asked
        config = get_pretrained_cfg(*name.split("/"))
        assert asked_file == filename
        assert arguments["pretrained"].endswith(".safetensors")
        assert arguments["force_quick_gelu"] == bool(config.get("quick_gelu"))
        for key in ("mean", "std", "interpolation", "resize_mode"):
            assert arguments["force_preprocess_cfg"][key] == config[key]
