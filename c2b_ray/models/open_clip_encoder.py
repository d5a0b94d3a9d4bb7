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

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from huggingface_hub import snapshot_download
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed, resize_text_pos_embed
from open_clip.pretrained import get_pretrained_cfg
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict
from open_clip.transformer import ResidualAttentionBlock
from torch import Tensor, nn
from torch.nn import functional as F

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models import devices, weights
from c2b_ray.models.batched_run import Compute, Runtime, compiled, run
from c2b_ray.models.catalog import Spec
from c2b_ray.models.pixels.preprocess import OnArrays, batched, shape_of
from c2b_ray.models.spec_options import normalisation_words, numbers, options_of, truth
from c2b_ray.models.tensor_names import TensorNames, check_fit, kinds_of, naming, selection_of
from c2b_ray.models.torch_runtime import batch_of, computing_facts, decoder_for, device_of, image_changes
from c2b_ray.models.weights import built
from c2b_ray.roles import Blocks, Description, Floats, ModelFact, Pixels, Shape
from c2b_ray.tables import content_id

# Where an `open_clip:` spec's files lie, and which variant of the architecture and which preprocessing they are of. A
# file of weights says neither. What all weights that open_clip lists for its architecture agree on is assumed, and
# named as an assumption; where they differ, the spec has to say (`quickgelu=`, `pretrained_cfg=`).


VARIANT = ("quickgelu", "pretrained_cfg")
PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")
CONFIG = "open_clip_config.json"
FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
_TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model", "added_tokens.json")
_CHOICES = {"interpolation": ("bicubic", "bilinear"), "resize_mode": ("shortest", "longest", "squash")}


@dataclass(frozen=True)
class Origin:
    """Where a setting was read; `assumed` where no file states it, and the `option` that does."""

    source: str
    assumed: bool = False
    option: str = ""

    def fact(self, name: str, value: str) -> ModelFact:
        return ModelFact(name, value, self.source, self.assumed, self.option)


@dataclass(frozen=True)
class Sources:
    """The sources of a model.

    `name` and `arguments` of open_clip's constructor; the `files` that the revision depends on (weights first); the
    model's `config`; `published`: whether open_clip lists these weights, and converts them as it likes; `activation`
    and `preprocessing`: where these were read, the latter by key; `variant`: what a revision depends on beside them.
    """

    name: str
    arguments: dict[str, Any]
    files: list[Path]
    config: dict[str, Any]
    published: bool
    activation: Origin
    preprocessing: dict[str, Origin] = field(default_factory=dict)
    variant: tuple[str, ...] = ()

    @property
    def quick_gelu(self) -> bool:
        return bool(self.arguments.get("force_quick_gelu") or self.config.get("quick_gelu"))


def sources(spec: Spec) -> Sources:
    """Returns the sources of an `open_clip:` spec. Raises SpecError for wrong names and open questions, WeightsError
    for files that cannot be used."""
    preprocessing, origins = _stated(spec)
    if spec.name.startswith(("local-dir:", "hf-hub:")):
        for option in ("weights", *VARIANT):
            if option in spec.options:
                brings = "its own weights" if option == "weights" else f"its own {CONFIG}"
                raise SpecError(f"{spec.text}: it brings {brings}, {option}= does not go with it")
        local = spec.name.startswith("local-dir:")
        directory = Path(spec.name.removeprefix("local-dir:")) if local else _downloaded(spec)
        return _of_directory(spec, directory, preprocessing, origins)
    name, _, tag = spec.name.partition("/")
    if name not in open_clip.list_models():
        raise SpecError(f"{spec.text}: open_clip has no model {name!r}; {nearest(name, open_clip.list_models())}")
    if "weights" in spec.options:
        return _of_file(spec, name, tag, preprocessing, origins)
    for option in VARIANT:
        if option in spec.options:
            raise SpecError(f"{spec.text}: {option}= goes with weights=FILE; published weights have their own settings")
    file, config = _published(spec, name, tag)
    origin = Origin(f"open_clip's settings of {name}/{tag}")
    # open_clip only warns where a tag was trained with QuickGELU.
    arguments = _arguments(file, bool(config.get("quick_gelu")), {**merge_preprocess_dict({}, config), **preprocessing})
    read_from = dict.fromkeys(PREPROCESSING, origin) | origins
    return Sources(name, arguments, [file], _listed_config(name), True, origin, read_from)


def _listed_config(name: str) -> dict[str, Any]:
    return dict(open_clip.get_model_config(name))


def _arguments(file: Path, quick_gelu: bool, preprocessing: dict[str, Any]) -> dict[str, Any]:
    return {"pretrained": str(file), "force_quick_gelu": quick_gelu, "force_preprocess_cfg": preprocessing}


def _stated(spec: Spec) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Returns the preprocessing that the spec's options state, and that they do."""
    preprocessing: dict[str, Any] = {name: numbers(spec, name) for name in ("mean", "std")}
    for name, choices in _CHOICES.items():
        preprocessing[name] = spec.options.get(name)
        if preprocessing[name] not in (None, *choices):
            raise SpecError(f"{spec.text}: {name}={preprocessing[name]!r} is none of {', '.join(choices)}")
    preprocessing = {name: tuple(v) if isinstance(v, list) else v for name, v in preprocessing.items() if v is not None}
    return preprocessing, {name: Origin(f"?{name}={spec.options[name]}") for name in preprocessing}


def _of_file(spec: Spec, name: str, tag: str, overrides: dict[str, Any], origins: dict[str, Origin]) -> Sources:
    """Returns the sources of weights of one's own for an architecture that open_clip lists."""
    file, config = weights.whole(spec.options["weights"]), _listed_config(name)
    tags = open_clip.list_pretrained_tags_by_model(name)
    tag = spec.options.get("pretrained_cfg") or tag
    if tag and tag not in tags:
        raise SpecError(f"{spec.text}: open_clip lists no weights {tag!r} for {name}; {nearest(tag, tags)}")
    settings = {t: get_pretrained_cfg(name, t) for t in ([tag] if tag else tags)}
    quick, activation = _activation(spec, name, config, settings, bool(tag))
    preprocessing, read_from = _preprocessing(spec, name, settings, bool(tag), {*overrides})
    variant = ("quick_gelu",) if quick and not config.get("quick_gelu") else ()
    arguments = _arguments(file, quick, {**preprocessing, **overrides})
    return Sources(name, arguments, [file], config, False, activation, read_from | origins, variant)


def _activation(
    spec: Spec, name: str, config: dict[str, Any], configs: dict[str, Any], is_named: bool
) -> tuple[bool, Origin]:
    """Returns whether weights of one's own are of the variant with QuickGELU, and where that was read."""
    if config.get("quick_gelu"):
        if "quickgelu" in spec.options and not truth(spec, "quickgelu", True):
            raise SpecError(f"{spec.text}: {name} is the variant with QuickGELU; name the one without it")
        return True, Origin(f"open_clip's config of {name}")
    if "quickgelu" in spec.options:
        return truth(spec, "quickgelu", False), Origin(f"?quickgelu={spec.options['quickgelu']}")
    quick = [tag for tag, settings in configs.items() if settings.get("quick_gelu")]
    without_quick = [tag for tag in configs if tag not in quick]
    if quick and without_quick:
        raise SpecError(
            f"{spec.text}: of the published weights of {name} some have QuickGELU ({_some(quick)}), others GELU "
            f"({_some(without_quick)}), and a file does not say; write quickgelu=true or quickgelu=false, or "
            "pretrained_cfg=TAG of the weights that yours began from"
        )
    return bool(quick), _origin(name, configs, is_named, "quickgelu")


def _preprocessing(
    spec: Spec, name: str, configs: dict[str, Any], is_named: bool, overridden: set[str]
) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Returns the preprocessing of weights of one's own, and where it was read, by key."""
    settings = {tag: merge_preprocess_dict({}, config) for tag, config in configs.items()}
    agreed: dict[str, Any] = {}
    for key in sorted({key for values_of_tag in settings.values() for key in values_of_tag} - overridden):
        values = {str(values_of_tag.get(key)): tag for tag, values_of_tag in settings.items()}
        if len(values) > 1:
            listed_values = ", ".join(f"{key} {value} ({tag})" for value, tag in values.items())
            raise SpecError(
                f"{spec.text}: the published weights of {name} prepare pictures differently: {listed_values}; write "
                f"pretrained_cfg=TAG of the weights that yours began from, or {key}="
            )
        agreed[key] = next(iter(settings.values()))[key]
    option = "pretrained_cfg" if configs else ""
    return agreed, {key: _origin(name, configs, is_named, option or key) for key in PREPROCESSING}


def _origin(name: str, configs: dict[str, Any], is_named: bool, option: str) -> Origin:
    if is_named:
        return Origin(f"open_clip's settings of {name}/{next(iter(configs))}")
    if not configs:
        return Origin("open_clip's default: it lists no weights of this architecture", True, option)
    count = "the one set of" if len(configs) == 1 else f"all {len(configs)} sets of"
    return Origin(f"{count} published weights of {name}", True, option)


def _some(tags: Sequence[str]) -> str:
    return ", ".join(tags[:3]) + (", …" if len(tags) > 3 else "")


def _of_directory(spec: Spec, directory: Path, overrides: dict[str, Any], origins: dict[str, Origin]) -> Sources:
    config = directory / CONFIG
    if not config.is_file():
        raise SpecError(f"{spec.text}: {directory} holds no {CONFIG}")
    # Under any other name open_clip would read a pickle first, were one beside it.
    file = weights.whole(next((directory / f for f in FILES if (directory / f).is_file()), directory / FILES[0]))
    try:
        document = json.loads(config.read_text(encoding="utf-8"))
        model_config, preprocessing = dict(document["model_cfg"]), dict(document.get("preprocess_cfg") or {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{spec.text}: open_clip cannot build it from its config and weights: {error}") from error
    extra = sorted({path for pattern in _TOKENIZER for path in directory.glob(pattern) if path.is_file()})
    config_origin, default = Origin(CONFIG), f"open_clip's default: {CONFIG} states none"
    read_from = {
        key: config_origin if key in preprocessing else Origin(default, True, key) for key in PREPROCESSING
    } | origins
    arguments = {"force_preprocess_cfg": overrides} if overrides else {}
    return Sources(
        f"local-dir:{directory}", arguments, [file, config, *extra], model_config, False, config_origin, read_from
    )


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
            f"open_clip:{name}?weights=PATH.safetensors&pretrained_cfg={tag}"
        )
    filename = f"{filename.rpartition('.')[0]}.safetensors" if filename else FILES[0]
    return weights.checked(weights.from_hub(repository, filename, spec.text)), config


def _downloaded(spec: Spec) -> Path:
    repository, _, revision = spec.name.removeprefix("hf-hub:").partition("@")
    weights.from_hub(repository, FILES[0], spec.text, revision or None)
    config = weights.from_hub(repository, CONFIG, spec.text, revision or None)
    try:
        snapshot_download(repository, revision=revision or None, allow_patterns=["*.json", *_TOKENIZER])
    except OSError as error:
        raise SpecError(f"{spec.text}: the tokenizer of {repository} cannot be downloaded: {error}") from error
    return config.parent


# Packs a transformer's weights once in the layout that oneDNN multiplies fastest, on a CPU and in float32: PyTorch
# multiplies float32 matrices by MKL, which on AMD's processors leaves part of a core unused. Results differ by rounding
# alone. Only residual blocks are packed, which hold nearly all the work of open_clip's transformers.


def pack(model: nn.Module) -> None:
    """Replaces the layers inside `model`'s blocks where that can be done. These layers can no longer be trained;
    gradients flow to their inputs."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    blocks: list[Any] = [part for part in model.modules() if type(part) is ResidualAttentionBlock]
    for block in blocks:
        if hasattr(block, "ln_1_kv"):  # attends to another sequence than its own
            continue
        if _fits(block.attn.in_proj_weight) and block.attn.batch_first and block.attn.in_proj_bias is not None:
            block.attn = _SelfAttention(block.attn)
        for name, child in list(block.mlp.named_children()):
            if type(child) is nn.Linear and _fits(child.weight):
                setattr(block.mlp, name, _Linear(child.weight, child.bias))


def _fits(weight: Tensor | None) -> bool:
    return weight is not None and weight.device.type == "cpu" and weight.dtype == torch.float32


class _Linear(nn.Module):
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        # Not a parameter: it has no strides to be saved by. Named as open_clip looks for its dtype.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        self._bias = None if bias is None else bias.detach()

    def forward(self, rows: Tensor) -> Tensor:
        if rows.requires_grad and torch.is_grad_enabled():  # no gradient goes through a packed product
            return F.linear(rows, self.weight.to_dense(), self._bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.weight, self._bias, "none", [], "")
        return product


class _SelfAttention(nn.Module):
    """An `nn.MultiheadAttention` as the block calls it: of a sequence to itself, without its weights."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self._heads = attention.num_heads
        self._inward = _Linear(attention.in_proj_weight, attention.in_proj_bias)
        self._outward = _Linear(attention.out_proj.weight, attention.out_proj.bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, need_weights: bool, attn_mask: Tensor | None
    ) -> tuple[Tensor, None]:
        """Maps (rows, length, width) to the same shape; `attn_mask` is added to the logits of the softmax."""
        if need_weights or key is not query or value is not query:
            raise NotImplementedError("packed attention is of a sequence to itself, and keeps no weights")
        rows, length, width = query.shape
        split = self._inward(query).view(rows, length, 3, self._heads, width // self._heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask)
        return self._outward(attended.transpose(1, 2).reshape(rows, length, width)), None


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
        weakest.fact("normalisation", normalisation_words(prepared["mean"], prepared["std"])),
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
