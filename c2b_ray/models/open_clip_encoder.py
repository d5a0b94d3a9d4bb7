"""Embeddings of images and texts in one space, from open_clip, with its own preprocessing and tokenizer.

    open_clip:ViT-B-32/laion2b_s34b_b79k          architecture and weights that open_clip lists, from the model hub
    open_clip:ViT-B-32?weights=PATH.safetensors   weights of one's own for a listed architecture
    open_clip:local-dir:PATH                      open_clip_config.json, open_clip_model.safetensors, tokenizer files
    open_clip:hf-hub:org/name                     the same from a hub repository

Options: weights, device, batch, precision (fp32, tf32, fp16, bf16, pure_fp16, pure_bf16), compile (true, false),
tensors and unused (`tensor_names`); with weights, what the file does not say: quickgelu (true, false), pretrained_cfg
(the tag of the published weights whose variant and preprocessing it has); and overrides of the preprocessing: mean, std
(one number or three), interpolation (bicubic, bilinear), resize_mode (shortest, longest, squash). Only safetensors are
read: weights that are published as pickles alone are refused. It knows nothing of captions, images' sources or indices.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import open_clip
import torch
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed, resize_text_pos_embed
from open_clip.transform import PreprocessCfg, image_transform_v2

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models import devices, weights
from c2b_ray.models.batched_run import Compute, Runtime, compiled, run
from c2b_ray.models.building import built
from c2b_ray.models.catalog import Spec
from c2b_ray.models.open_clip_sources import Sources, sources
from c2b_ray.models.packed import pack
from c2b_ray.models.pixels.preprocess import OnArrays, batched, shape_of
from c2b_ray.models.spec_tables import normalisation, options_of
from c2b_ray.models.tensor_names import TensorNames, check_fit, kinds_of, naming, selection_of
from c2b_ray.models.torch_runtime import batch_of, computing_facts, decoder_for, device_of, image_changes
from c2b_ray.roles import Blocks, Description, Floats, ModelFact, Pixels, Shape
from c2b_ray.tables import content_id

OPTIONS = options_of("encoder", "open_clip")
_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "pure_fp16", "pure_bf16")
_POSITION_IDS = "text.transformer.embeddings.position_ids"
"""A buffer that older transformers saved and newer ones compute."""


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
        uncompiled = replace(self.runtime, compiled=False)
        return self.unit(run(self._model.encode_text, texts, self._texts, uncompiled))

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
    """Loads the encoder of an `open_clip:` spec. Raises SpecError for wrong names and for what a file does not say,
    WeightsError for weights that cannot be used."""
    precision = _precision(spec)
    device = device_of(spec)
    runtime = Runtime(
        device,
        batch_of(spec, device),
        open_clip.get_input_dtype(_of_weights(precision)) or torch.float32,
        devices.compiled(spec.options.get("compile"), spec.text),
        decoder_for(spec, device),
        precision == "tf32",
    )
    origin = sources(spec)
    model = built(partial(_created, spec, origin, precision, device))
    names = _filled(spec, origin, model, loaded=True)
    tokenizer = _tokenizer(origin)
    revision = _revision(spec, origin, model, precision)
    facts = (*_facts(origin, model, names), *computing_facts(spec, precision, device.type))
    try:
        return OpenClipEncoder(model, tokenizer, revision, runtime, facts)
    except (IndexError, RuntimeError) as error:  # the first text goes through the model at once
        raise WeightsError(f"{spec.text}: its tokenizer does not fit its text model ({error})") from error


def describe(spec: Spec) -> Description:
    """Returns the description from a model without memory for its weights; of the weights only the file's hash and
    header are needed."""
    return _described(spec).known


def describe_scaled(spec: Spec) -> tuple[Description, float]:
    """Returns the description, and the `logit_scale` of the loaded encoder."""
    described = _described(spec)
    scale = weights.read_tensor(described.origin.files[0], described.names.names["logit_scale"])
    return described.known, float(scale.to(described.model.logit_scale.dtype).exp())


@dataclass(frozen=True)
class _Described:
    known: Description
    origin: Sources
    model: Any
    names: TensorNames


def _described(spec: Spec) -> _Described:
    precision, origin = _precision(spec), sources(spec)
    with torch.device("meta"):
        model = _created(spec, origin, precision, torch.device("meta"))
        names = _filled(spec, origin, model, loaded=False)
    revision = _revision(spec, origin, model, precision)
    device = devices.device(spec.options.get("device"), spec.text, 0)
    facts = (*_facts(origin, model, names), *computing_facts(spec, precision, device))
    shape = None if devices.computing().decode == "gpu" else shape_of(_transform(model))
    description = Description(revision, dimension=int(origin.config["embed_dim"]), shape=shape, facts=facts)
    return _Described(description, origin, model, names)


def _filled(spec: Spec, origin: Sources, model: Any, loaded: bool) -> TensorNames:
    """Fills a model with the tensors of its file if `loaded`; else checks that it could."""
    file = origin.files[0]
    tensors = weights.read_safetensors(file) if loaded else weights.read_outlines(file)
    expected = kinds_of(model.state_dict())
    names = naming(expected, tensors, file, selection_of(spec))
    selected = {name: tensors[source] for name, source in names.names.items()}
    try:
        check_fit(expected, kinds_of(selected), file, _architecture(origin), rest=names.rest)
    except WeightsError:
        if names.rest:
            raise
        selected = _converted(model, selected, origin.published)
        check_fit(expected, kinds_of(selected), file, _architecture(origin))
    if loaded:
        weights.load_into(model, selected, file)
    return names


def _architecture(origin: Sources) -> str:
    return origin.name if origin.published or "pretrained" in origin.arguments else "its open_clip_config.json"


def _converted(model: Any, tensors: dict[str, Any], resized: bool) -> dict[str, Any]:
    """Returns the tensors as open_clip converts them from other formats: MobileCLIP's, OpenAI's for a model with its
    text model apart, a scale in one dimension. `resized`: also those of positions, for another size of pictures."""
    result = dict(convert_state_dict(model, dict(tensors)))
    if "positional_embedding" in result and not hasattr(model, "positional_embedding"):
        result = dict(convert_to_custom_text_state_dict(result))
    for name in ("logit_scale", "logit_bias"):
        scalar = getattr(model, name, None)
        if name in result and scalar is not None and result[name].numel() == scalar.numel():
            result[name] = result[name].reshape(scalar.shape)
    result.pop(_POSITION_IDS, None)
    if resized:
        resize_pos_embed(result, model)
        resize_text_pos_embed(result, model)
    return result


def _facts(origin: Sources, model: Any, names: TensorNames) -> tuple[ModelFact, ...]:
    prepared, origins = model.visual.preprocess_cfg, origin.preprocessing
    size = prepared["size"]
    sides = "×".join(str(side) for side in size) if isinstance(size, (tuple, list)) else f"{size}×{size}"
    value = f"{sides}, {prepared['resize_mode']}, {prepared['interpolation']}"
    source = "open_clip_config.json" if origin.name.startswith("local-dir:") else f"open_clip:{origin.name}"
    weakest = max((origins["mean"], origins["std"]), key=lambda o: o.assumed)
    resized = max((origins["resize_mode"], origins["interpolation"]), key=lambda o: o.assumed)
    return (
        *names.facts(origin.files[0]),
        ModelFact("architecture", origin.name.partition(":")[2] or origin.name, source),
        origin.activation.fact("activation", "QuickGELU" if origin.quick_gelu else "GELU"),
        resized.fact("input size", value),
        weakest.fact("normalisation", normalisation(prepared["mean"], prepared["std"])),
    )


@contextmanager
def _silent() -> Iterator[None]:
    """Silences open_clip's warning about a model without weights, which is intended here."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous)


def _precision(spec: Spec) -> str:
    precision = spec.options_among(OPTIONS).get("precision") or devices.precision(None, spec.text) or "fp32"
    if precision not in _PRECISIONS:
        raise SpecError(f"{spec.text}: no precision {precision!r}; {nearest(precision, _PRECISIONS)}")
    return precision


def _of_weights(precision: str) -> str:
    """Returns open_clip's name of the numbers that hold the weights."""
    return "fp32" if precision == "tf32" else precision


def _revision(spec: Spec, origin: Sources, model: Any, precision: str) -> str:
    """Returns the revision; what changes embeddings of images alone, by rounding, stands behind a plus sign: such an
    index is searched by texts of the same weights."""
    files = weights.file_revision(*origin.files)
    choices = (*origin.variant, *selection_of(spec).identity)
    revision = content_id("open_clip", files, model.visual.preprocess_cfg, precision, *choices)
    return "+".join([revision, *image_changes(spec)])


def _tokenizer(origin: Sources) -> Any:
    try:
        return open_clip.get_tokenizer(origin.name)
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"no tokenizer can be read from {origin.name}: {error}") from error


def _created(spec: Spec, origin: Sources, precision: str, device: torch.device) -> Any:
    """Returns the model without its weights."""
    arguments = {**origin.arguments, "precision": _of_weights(precision), "device": device, "weights_only": True}
    try:
        with _silent():
            return open_clip.create_model(origin.name, load_weights=False, pretrained_text=False, **arguments)
    except (KeyError, TypeError, AssertionError, OSError, ValueError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(
            f"{spec.text}: open_clip cannot build it from its config and weights: {lines[:500]}"
        ) from error
