"""Embeddings of images and texts in one space, from open_clip, with its own preprocessing and tokenizer.

    open_clip:ViT-B-32/laion2b_s34b_b79k          architecture and weights that open_clip lists, from the model hub
    open_clip:ViT-B-32?weights=PATH.safetensors   weights of one's own for a listed architecture
    open_clip:local-dir:PATH                      open_clip_config.json, open_clip_model.safetensors, tokenizer files
    open_clip:hf-hub:org/name                     the same from a hub repository

Options: weights, device, batch, precision (fp32, fp16, bf16, pure_fp16, pure_bf16). Only safetensors are read: weights
that are published as pickles alone are refused. It knows nothing of captions, images' sources or indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from huggingface_hub import snapshot_download
from open_clip.pretrained import get_pretrained_cfg
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.packed import pack
from c2b_ray.models.pixels.preprocess import batched
from c2b_ray.models.torch_runtime import batch_of, device_of, run
from c2b_ray.roles import Floats, Pixels
from c2b_ray.schemas import content_id

OPTIONS = ("weights", "device", "batch", "precision")
_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
_PRECISIONS = ("fp32", "fp16", "bf16", "pure_fp16", "pure_bf16")
_TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model", "added_tokens.json")


class OpenClipEncoder:
    """An open_clip model with its preprocessing and tokenizer; implements `roles.TextImageEncoder`."""

    def __init__(
        self, model: Any, tokenizer: Any, revision: str, device: torch.device, batch: int, precision: str
    ) -> None:
        self._model = model.eval().requires_grad_(False)
        pack(self._model)
        self._tokenizer = tokenizer
        self._prepare = batched(image_transform_v2(PreprocessCfg(**model.visual.preprocess_cfg), is_train=False))
        self._revision = revision
        self._device = device
        self._batch = batch
        self._dtype = open_clip.get_input_dtype(precision) or torch.float32
        self._dimension = 0
        self._dimension = self.encode_texts(["a photo"]).shape[1]

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def revision(self) -> str:
        return self._revision

    @property
    def logit_scale(self) -> float:
        """What cosines were multiplied by in training, before the softmax or sigmoid over texts."""
        return float(self._model.logit_scale.exp())

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        """Unit-norm embeddings, float32 (images, dimension), of uint8 (height, width, 3) images of any sizes."""
        return self._unit(run(self._model.encode_image, images, self._image_tensor, self._device, self._batch))

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        """Unit-norm embeddings, float32 (texts, dimension); what exceeds the model's context is cut off."""
        return self._unit(run(self._model.encode_text, texts, self._text_tensor, self._device, self._batch))

    def _image_tensor(self, images: Sequence[Pixels]) -> torch.Tensor:
        return self._prepare(images).to(self._dtype)

    def _text_tensor(self, texts: Sequence[str]) -> torch.Tensor:
        tokens: torch.Tensor = self._tokenizer(list(texts))
        return tokens

    def _unit(self, found: Floats) -> Floats:
        # Normalised here in float32, also where the model computes in half precision.
        if len(found) == 0:
            return np.zeros((0, self._dimension), np.float32)
        unit: Floats = found / np.linalg.norm(found, axis=1, keepdims=True)
        return unit


def load(spec: Spec) -> OpenClipEncoder:
    """The encoder of an `open_clip:` spec; SpecError for names, WeightsError for weights that cannot be used."""
    options = spec.options_among(OPTIONS)
    precision = options.get("precision", "fp32")
    if precision not in _PRECISIONS:
        raise SpecError(f"{spec.text}: no precision {precision!r}; {nearest(precision, _PRECISIONS)}")
    device = device_of(spec)
    batch = batch_of(spec, device)
    model, tokenizer, files = _parts(spec, {"precision": precision, "device": device})
    revision = content_id("open_clip", weights.file_revision(*files), model.visual.preprocess_cfg, precision)
    try:
        return OpenClipEncoder(model, tokenizer, revision, device, batch, precision)
    except (IndexError, RuntimeError) as error:  # the first text goes through the model at once
        raise WeightsError(f"{spec.text}: its tokenizer does not fit its text model ({error})") from error


def _parts(spec: Spec, place: dict[str, Any]) -> tuple[Any, Any, list[Path]]:
    """The model with its weights, its tokenizer, and the files that its revision depends on."""
    if spec.name.startswith(("local-dir:", "hf-hub:")):
        if "weights" in spec.options:
            raise SpecError(f"{spec.text}: it brings its own weights, weights= does not go with it")
        local = spec.name.startswith("local-dir:")
        directory = Path(spec.name.removeprefix("local-dir:")) if local else _downloaded(spec)
        return _from_directory(spec, directory, place)
    name, _, tag = spec.name.partition("/")
    if name not in open_clip.list_models():
        raise SpecError(f"{spec.text}: open_clip has no model {name!r}; {nearest(name, open_clip.list_models())}")
    config: dict[str, Any] = {}
    if "weights" in spec.options:
        file = weights.checked(spec.options["weights"])
    else:
        file, config = _published(spec, name, tag)
    model = _created(
        spec,
        name,
        pretrained=str(file),
        force_quick_gelu=bool(config.get("quick_gelu")),  # open_clip itself only warns where a tag was trained with it
        force_preprocess_cfg=merge_preprocess_dict({}, config),
        **place,
    )
    return model, open_clip.get_tokenizer(name), [file]


def _from_directory(spec: Spec, directory: Path, place: dict[str, Any]) -> tuple[Any, Any, list[Path]]:
    config = directory / "open_clip_config.json"
    if not config.is_file():
        raise SpecError(f"{spec.text}: {directory} holds no open_clip_config.json")
    # Under any other name open_clip would read a pickle first, were one beside it.
    file = weights.checked(next((directory / f for f in _FILES if (directory / f).is_file()), directory / _FILES[0]))
    model = _created(spec, f"local-dir:{directory}", **place)
    try:
        tokenizer = open_clip.get_tokenizer(f"local-dir:{directory}")
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"{spec.text}: no tokenizer can be read from {directory}: {error}") from error
    extra = sorted({path for pattern in _TOKENIZER for path in directory.glob(pattern) if path.is_file()})
    return model, tokenizer, [file, config, *extra]


def _published(spec: Spec, name: str, tag: str) -> tuple[Path, dict[str, Any]]:
    """The safetensors file and the config of a tag in open_clip's own list."""
    tags = open_clip.list_pretrained_tags_by_model(name)
    config = get_pretrained_cfg(name, tag)
    if not tag or not config:
        end = nearest(tag, tags) if tags else "open_clip lists none; give ?weights=PATH.safetensors"
        raise SpecError(f"{spec.text}: {f'no weights {tag!r}' if tag else 'expected ARCH/WEIGHTS'} for {name}; {end}")
    repository, _, filename = config.get("hf_hub", "").rpartition("/")
    if not repository:
        raise WeightsError(
            f"{spec.text}: published as a pickle alone; convert it with safetensors.torch.save_file and give "
            f"open_clip:{name}?weights=PATH.safetensors"
        )
    filename = f"{filename.rpartition('.')[0]}.safetensors" if filename else _FILES[0]
    return weights.checked(weights.from_hub(repository, filename, spec.text)), config


def _downloaded(spec: Spec) -> Path:
    repository, _, revision = spec.name.removeprefix("hf-hub:").partition("@")
    weights.from_hub(repository, _FILES[0], spec.text, revision or None)
    config = weights.from_hub(repository, "open_clip_config.json", spec.text, revision or None)
    try:
        snapshot_download(repository, revision=revision or None, allow_patterns=["*.json", *_TOKENIZER])
    except OSError as error:
        raise SpecError(f"{spec.text}: the tokenizer of {repository} cannot be downloaded: {error}") from error
    return config.parent


def _created(spec: Spec, name: str, **arguments: Any) -> Any:
    try:
        return open_clip.create_model(name, require_pretrained=True, weights_only=True, **arguments)
    except (KeyError, TypeError, AssertionError, OSError, ValueError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(
            f"{spec.text}: open_clip cannot build it from its config and weights: {lines[:500]}"
        ) from error
