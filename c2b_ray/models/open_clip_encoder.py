"""Embeddings of images and texts in one space, from open_clip, with its own preprocessing and tokenizer.

    open_clip:ViT-B-32/laion2b_s34b_b79k          architecture and weights that open_clip lists, from the model hub
    open_clip:ViT-B-32?weights=PATH.safetensors   weights of one's own for a listed architecture
    open_clip:local-dir:PATH                      open_clip_config.json, open_clip_model.safetensors, tokenizer files
    open_clip:hf-hub:org/name                     the same from a hub repository

Options: weights, device, batch, precision (fp32, fp16, bf16, pure_fp16, pure_bf16), compile (true, false). Only
safetensors are read: weights that are published as pickles alone are refused. It knows nothing of captions, images'
sources or indices.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from huggingface_hub import snapshot_download
from open_clip.pretrained import get_pretrained_cfg
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models import devices, weights
from c2b_ray.models.batched_run import Compute, Runtime, compiled, run
from c2b_ray.models.building import built
from c2b_ray.models.catalog import Spec
from c2b_ray.models.packed import pack
from c2b_ray.models.pixels.preprocess import OnArrays, batched, shape_of
from c2b_ray.models.torch_runtime import batch_of, computing_facts, decoder_for, device_of, image_changes
from c2b_ray.roles import Blocks, Description, Floats, ModelFact, Pixels, Shape
from c2b_ray.schemas import content_id

OPTIONS = ("weights", "device", "batch", "precision", "compile")
_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
_WITH_WEIGHTS: dict[str, bool] = {"require_pretrained": True}
_WITHOUT: dict[str, bool] = {"load_weights": False, "pretrained_text": False}
_PRECISIONS = ("fp32", "fp16", "bf16", "pure_fp16", "pure_bf16")
_TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model", "added_tokens.json")


class OpenClipEncoder:
    """An open_clip model with its preprocessing and tokenizer; implements `roles.TextImageEncoder`."""

    def __init__(
        self, model: Any, tokenizer: Any, revision: str, runtime: Runtime, facts: tuple[ModelFact, ...] = ()
    ) -> None:
        self._model = model.eval().requires_grad_(False)
        pack(self._model)
        self._texts = _Texts(tokenizer)
        self.preparation = batched(_transform(model))
        self._revision = revision
        self.runtime, self.facts = runtime, facts
        encode: Compute = model.encode_image
        self.compute_images = compiled(encode) if runtime.compiled else encode
        self._dimension = 0
        self._dimension = self.encode_texts(["a photo"]).shape[1]

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def revision(self) -> str:
        return self._revision

    @property
    def text_tower(self) -> tuple[Any, Any]:
        """Returns the model, through which gradients flow, and its tokenizer."""
        return self._model, self._texts.tokenizer

    @property
    def logit_scale(self) -> float:
        """The factor on cosines in training, before the softmax or sigmoid over texts."""
        return float(self._model.logit_scale.exp())

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        """Returns unit-norm embeddings, float32 (images, dimension), of uint8 (height, width, 3) images of any
        sizes."""
        return self.unit(run(self.compute_images, images, self.preparation, self.runtime))

    @property
    def shape(self) -> Shape | None:
        """How pictures are prepared, where another process can do that (`roles.ShapedEncoder`)."""
        return self.preparation.shape if isinstance(self.preparation, OnArrays) else None

    def embeddings_of_shaped(self, images: Blocks) -> Floats:
        """Returns `encode_images` of pictures prepared by `shape`, uint8 (images, height, width, 3)."""
        assert isinstance(self.preparation, OnArrays)
        return self.unit(run(self.compute_images, images, self.preparation.prepared, self.runtime))

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        """Returns unit-norm embeddings, float32 (texts, dimension); texts are truncated to the model's context."""
        plain = replace(self.runtime, compiled=False)
        return self.unit(run(self._model.encode_text, texts, self._texts, plain))

    def unit(self, embeddings: Floats) -> Floats:
        """Returns `embeddings` scaled to length 1."""
        # Normalised here in float32, also where the model computes in half precision.
        if len(embeddings) == 0:
            return np.zeros((0, self._dimension), np.float32)
        unit: Floats = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
        return unit


def _transform(model: Any) -> Any:
    return image_transform_v2(PreprocessCfg(**model.visual.preprocess_cfg), is_train=False)


class _Texts:
    """Texts as the model's tokens, truncated to its context."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def stacked(self, rows: Sequence[str], pinned: bool = False) -> torch.Tensor:
        tokens: torch.Tensor = self.tokenizer(list(rows))
        return tokens.pin_memory() if pinned else tokens

    def normalised(self, stacked: torch.Tensor) -> torch.Tensor:
        return stacked


def load(spec: Spec) -> OpenClipEncoder:
    """Loads the encoder of an `open_clip:` spec. Raises SpecError for wrong names, WeightsError for weights that cannot
    be used."""
    precision = _precision(spec)
    device = device_of(spec)
    runtime = Runtime(
        device,
        batch_of(spec, device),
        open_clip.get_input_dtype(precision) or torch.float32,
        devices.compiled(spec.options.get("compile"), spec.text),
        decoder_for(spec, device),
    )
    sources = _sources(spec)
    arguments = {"precision": precision, "device": device, **sources.arguments, **_WITH_WEIGHTS}
    model = built(partial(_created, spec, sources.name, **arguments))
    tokenizer = _tokenizer(sources)
    try:
        revision = _revision(spec, sources, model, precision)
        return OpenClipEncoder(model, tokenizer, revision, runtime, computing_facts(spec, precision, device.type))
    except (IndexError, RuntimeError) as error:  # the first text goes through the model at once
        raise WeightsError(f"{spec.text}: its tokenizer does not fit its text model ({error})") from error


def describe(spec: Spec) -> Description:
    """Returns the description from a model without memory for its weights; of the weights only the file's hash is
    needed."""
    return _described(spec)[0]


def describe_scaled(spec: Spec) -> tuple[Description, float | None]:
    """Returns the description, and the `logit_scale` of the loaded encoder; None where its file does not contain it."""
    known, model, file = _described(spec)
    if "logit_scale" not in weights.read_shapes(file):
        return known, None
    return known, float(weights.read_tensor(file, "logit_scale").to(model.logit_scale.dtype).exp())


def _described(spec: Spec) -> tuple[Description, Any, Path]:
    precision, sources = _precision(spec), _sources(spec)
    with torch.device("meta"), _silent():
        model = _created(spec, sources.name, precision=precision, device="meta", **sources.arguments, **_WITHOUT)
    revision = _revision(spec, sources, model, precision)
    facts = computing_facts(spec, precision, devices.device(spec.options.get("device"), spec.text, 0))
    shape = None if devices.computing().decode == "gpu" else shape_of(_transform(model))
    dimension = int(sources.config["embed_dim"])
    return Description(revision, dimension=dimension, shape=shape, facts=facts), model, sources.files[0]


@contextmanager
def _silent() -> Iterator[None]:
    """Silences open_clip's warning about a model without weights, which is intended here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _precision(spec: Spec) -> str:
    precision = spec.options_among(OPTIONS).get("precision") or devices.precision(None, spec.text) or "fp32"
    if precision not in _PRECISIONS:
        raise SpecError(f"{spec.text}: no precision {precision!r}; {nearest(precision, _PRECISIONS)}")
    return precision


def _revision(spec: Spec, sources: _Sources, model: Any, precision: str) -> str:
    """Returns the revision; what changes embeddings of images alone, by rounding, stands behind a plus sign: such an
    index is searched by texts of the same weights."""
    files = weights.file_revision(*sources.files)
    revision = content_id("open_clip", files, model.visual.preprocess_cfg, precision)
    return "+".join([revision, *image_changes(spec)])


@dataclass(frozen=True)
class _Sources:
    """The sources of a model: `name` and `arguments` of open_clip's constructor, the `files` that the revision depends
    on (weights first), the model's `config`."""

    name: str
    arguments: dict[str, Any]
    files: list[Path]
    config: dict[str, Any]


def _tokenizer(sources: _Sources) -> Any:
    try:
        return open_clip.get_tokenizer(sources.name)
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"no tokenizer can be read from {sources.name}: {error}") from error


def _sources(spec: Spec) -> _Sources:
    if spec.name.startswith(("local-dir:", "hf-hub:")):
        if "weights" in spec.options:
            raise SpecError(f"{spec.text}: it brings its own weights, weights= does not go with it")
        local = spec.name.startswith("local-dir:")
        directory = Path(spec.name.removeprefix("local-dir:")) if local else _downloaded(spec)
        return _of_directory(spec, directory)
    name, _, tag = spec.name.partition("/")
    if name not in open_clip.list_models():
        raise SpecError(f"{spec.text}: open_clip has no model {name!r}; {nearest(name, open_clip.list_models())}")
    config: dict[str, Any] = {}
    if "weights" in spec.options:
        file = weights.checked(spec.options["weights"])
    else:
        file, config = _published(spec, name, tag)
    arguments = {
        "pretrained": str(file),
        "force_quick_gelu": bool(config.get("quick_gelu")),  # open_clip only warns where a tag was trained with it
        "force_preprocess_cfg": merge_preprocess_dict({}, config),
    }
    return _Sources(name, arguments, [file], open_clip.get_model_config(name))


def _of_directory(spec: Spec, directory: Path) -> _Sources:
    config = directory / "open_clip_config.json"
    if not config.is_file():
        raise SpecError(f"{spec.text}: {directory} holds no open_clip_config.json")
    # Under any other name open_clip would read a pickle first, were one beside it.
    file = weights.checked(next((directory / f for f in _FILES if (directory / f).is_file()), directory / _FILES[0]))
    try:
        about = dict(json.loads(config.read_text(encoding="utf-8"))["model_cfg"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{spec.text}: open_clip cannot build it from its config and weights: {error}") from error
    extra = sorted({path for pattern in _TOKENIZER for path in directory.glob(pattern) if path.is_file()})
    return _Sources(f"local-dir:{directory}", {}, [file, config, *extra], about)


def _published(spec: Spec, name: str, tag: str) -> tuple[Path, dict[str, Any]]:
    """Returns the safetensors file and the config of a tag in open_clip's list."""
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
        return open_clip.create_model(name, weights_only=True, **arguments)
    except (KeyError, TypeError, AssertionError, OSError, ValueError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(
            f"{spec.text}: open_clip cannot build it from its config and weights: {lines[:500]}"
        ) from error
