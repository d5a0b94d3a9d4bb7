"""How pictures become an ONNX graph's input: what is stated about it, where, and the preprocessing that follows.

A setting may be stated, in this order, and the first that speaks of the normalisation speaks of all of it, by

    the spec                         preprocess=, or mean= and std= (and scale=)
    the file's metadata              mean, std, scale, size, resize of the same names
    an exporter's metadata           Ultralytics; Image.NominalPixelRange and Image.BitmapPixelFormat
    a config beside the file         preprocessor_config.json (transformers, optimum), config.json (timm)
    the graph                        a uint8 input; the nodes at its start (`onnx_graph.start_of`)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from pathlib import Path
from typing import Any

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models.catalog import Spec
from c2b_ray.models.onnx_graph import RANGES, Graph, Start, start_of
from c2b_ray.models.pixels.filters import Filter
from c2b_ray.models.pixels.resize import Preprocessing
from c2b_ray.models.spec_options import (
    WORDS,
    UnstatedPreprocessingError,
    by_number,
    height_and_width,
    normalisation,
    positive,
    switch,
)
from c2b_ray.roles import ModelFact
from c2b_ray.storage.manifest import read_json

# The configs that transformers, optimum and timm write beside an exported ONNX file, read as settings of its input.


PROCESSOR, CONFIG = "preprocessor_config.json", "config.json"
_FILTERS: tuple[Filter, ...] = ("bilinear", "bicubic")
_RESAMPLE = {2: "bilinear", 3: "bicubic"}
_SQUASHED = 384
"""ConvNeXT's processor squashes pictures from this size on, and crops smaller ones."""
_PLAIN = ("", "Beit", "Bit", "ChineseCLIP", "CLIP", "ConvNext", "DeiT", "DINOv3ViT", "EfficientNet", "Flava",
          "MobileNetV1", "MobileNetV2", "MobileViT", "Pvt", "Siglip", "ViT")  # fmt: skip
"""Processors that resize and crop as their `size` and `crop_size` say; others take them for something else."""
_FLIPS = "MobileViT"
"""The processor that gives pixels in the order blue, green, red, and normalises none, unless its config says else."""


@dataclass(frozen=True)
class ConfigSettings:
    """Settings of the file's input in the words of options.

    `sides`: the height and width that the config speaks of; `channels`: their order; `unlike`: by option, what the
    config says that the option cannot.
    """

    file: str = ""
    normalisation: Mapping[str, str] = field(default_factory=dict)
    geometry: Mapping[str, str] = field(default_factory=dict)
    sides: tuple[int, int] | None = None
    labels: tuple[list[str], str] | None = None
    channels: Mapping[str, str] = field(default_factory=dict)
    unlike: Mapping[str, str] = field(default_factory=dict)


def read_config_settings(spec: Spec, sides: tuple[int | None, int | None]) -> ConfigSettings:
    """Returns what the configs beside an ONNX file say of an input of that height and width. Raises WeightsError for
    one that is damaged."""
    folder = Path(spec.name).parent
    try:
        onnx_files = [file.name for file in folder.glob("*.onnx")]
    except OSError:
        return ConfigSettings()
    if len(onnx_files) > 1 and not all(name.startswith("model") for name in onnx_files):
        return ConfigSettings()
    for directory in (folder, *([folder.parent] if folder.name == "onnx" else [])):
        config, processor = (_document(directory / name) for name in (CONFIG, PROCESSOR))
        labels = None if "labels" in spec.options else _labels(config)
        try:
            if processor:
                return _of_transformers(processor, labels)
            if config:
                return _of_timm(config, labels, sides)
        except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
            file = directory / (PROCESSOR if processor else CONFIG)
            raise WeightsError(
                f"{file}: a setting of the pictures is not what exporters write there: {error}; correct it, or give "
                f"the ONNX file a folder of its own and state the settings in the spec"
            ) from error
    return ConfigSettings()


def _document(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            return {}
    except OSError:  # a folder that this process may not read
        return {}
    document = read_json(path)
    if not isinstance(document, dict):
        raise WeightsError(f"{path}: expected a JSON object, as the exporters write it")
    return document


def _labels(config: Mapping[str, Any]) -> tuple[list[str], str] | None:
    names = config.get("label_names")
    for key in ("id2label", "label_names"):  # of transformers, and of timm, which takes a list too
        mapping = config.get(key)
        if isinstance(mapping, dict) and mapping:
            listed = by_number(mapping, f"{CONFIG}: {key}")
            return None if listed == [f"LABEL_{i}" for i in range(len(listed))] else (listed, f"{CONFIG} ({key})")
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return names, f"{CONFIG} (label_names)"
    return None


def _of_transformers(config: Mapping[str, Any], labels: tuple[list[str], str] | None) -> ConfigSettings:
    kind = _kind(config)
    normal = {}
    mean, std = config.get("image_mean"), config.get("image_std")
    normalised = config.get("do_normalize", False if kind == _FLIPS else True if mean is not None else None)
    if not config.get("rescale_offset"):
        scale = str(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else "1"
        if normalised and mean and std:
            if kind == "EfficientNet" and config.get("include_top", True):  # which divides by it a second time
                std = [side**2 for side in std] if isinstance(std, list) else std**2
            normal = {"mean": _listed(mean), "std": _listed(std), "scale": scale}
        elif normalised is False:
            normal = {"mean": "0", "std": "1", "scale": scale}
    size, crop = _sides(config.get("size")), _sides(config.get("crop_size"))
    geometry: dict[str, str] = {}
    unlike: dict[str, str] = {}
    if config.get("do_resize", True) and size:
        geometry, unlike = _geometry(config, size, crop if config.get("do_center_crop") else None)
    if config.get("do_resize", True) and config.get("resample", 2) not in _RESAMPLE:
        unlike["interpolation"] = f"resample {config['resample']}, which is neither bilinear (2) nor bicubic (3)"
    if kind not in _PLAIN:
        unlike["resize"] = f"the processor of {kind}, which resizes in a way of its own"
    flips = {"channels": "bgr"} if config.get("do_flip_channel_order", kind == _FLIPS) else {}
    sides = [int(side) for side in geometry.get("size", "").split(",") if side]
    return ConfigSettings(PROCESSOR, normal, geometry, (sides[0], sides[-1]) if sides else None, labels, flips, unlike)


def _kind(config: Mapping[str, Any]) -> str:
    """Returns the model for which transformers made a processor, such as `ViT`; "" where the config does not say."""
    name = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    for end in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(end)
    return name


def _geometry(
    config: Mapping[str, Any], size: list[int], crop: list[int] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """`size`: one number, of the shorter side, or a height and a width that pictures are squashed to. Also returns what
    no option can say."""
    interpolation = {"interpolation": _RESAMPLE[config["resample"]]} if config.get("resample") in _RESAMPLE else {}
    if _kind(config) == "ConvNext":
        if size[0] >= _SQUASHED:
            return {**interpolation, "size": f"{size[0]}", "squash": "true"}, {}
        resize = int(size[0] / (config.get("crop_pct") or 224 / 256))
        return {**interpolation, "size": f"{size[0]}", "resize": f"{resize}"}, {}
    if crop is None:
        squashed = {"squash": "true"} if len(size) > 1 else {"resize": f"{size[0]}"}
        return {**interpolation, "size": _listed(size), **squashed}, {}
    if len(size) == 1:
        return {**interpolation, "size": _listed(crop), "resize": f"{size[0]}"}, {}
    if size == crop:
        return {**interpolation, "size": _listed(size), "squash": "true"}, {}
    cropped = " × ".join(str(side) for side in (crop[0], crop[-1]))
    return (
        {**interpolation, "size": _listed(crop)},
        {"resize": f"pictures squashed to {size[0]} × {size[1]} and then cropped to {cropped}"},
    )


def _of_timm(
    config: Mapping[str, Any], labels: tuple[list[str], str] | None, sides: tuple[int | None, int | None]
) -> ConfigSettings:
    """The size and crop are those of timm's test, unless the graph takes pictures of the training's size."""
    pretrained = config.get("pretrained_cfg", config)
    mean, std, size = (pretrained.get(key) for key in ("mean", "std", "input_size"))
    if not (isinstance(mean, list) and isinstance(std, list) and isinstance(size, list) and len(size) == 3):
        return ConfigSettings(CONFIG, labels=labels)
    crop = pretrained.get("crop_pct") or 0.875
    tested = pretrained.get("test_input_size") or size
    if tested == size or sides != tuple(size[1:]):
        size, crop = tested, pretrained.get("test_crop_pct") or crop
    height, width = int(size[1]), int(size[2])
    geometry = {"size": f"{height},{width}"}
    unlike = {}
    interpolation, mode = pretrained.get("interpolation") or "bicubic", pretrained.get("crop_mode") or "center"
    if interpolation in _FILTERS:
        geometry["interpolation"] = interpolation
    else:
        unlike["interpolation"] = f"interpolation {interpolation}, which is neither bilinear nor bicubic"
    if mode == "squash":
        geometry["squash"] = "true"
    else:
        geometry["resize"] = str(floor(min(height, width) / crop))
    if mode == "border" or (mode == "squash" and crop != 1):
        unlike["resize"] = f"crop_mode {mode} with crop_pct {crop:g}"
    normal = {"mean": _listed(mean), "std": _listed(std), "scale": str(1 / 255)}
    return ConfigSettings(CONFIG, normal, geometry, (height, width), labels, unlike=unlike)


def _sides(size: Any) -> list[int] | None:
    """Returns one number for a shorter side, two for a height and a width; None where the config says neither."""
    if isinstance(size, int):
        return [size]
    if isinstance(size, dict) and isinstance(size.get("shortest_edge"), int):
        return [size["shortest_edge"]]
    if isinstance(size, dict) and all(isinstance(size.get(side), int) for side in ("height", "width")):
        return [size["height"], size["width"]]
    return None


def _listed(values: Any) -> str:
    return ",".join(map(str, values)) if isinstance(values, list | tuple) else str(values)


NORMALISATION = ("mean", "std", "scale")
GEOMETRY = ("size", "resize", "squash", "interpolation", "channels")
_ALSO = {"image_mean": "mean", "norm_mean": "mean", "normalize_mean": "mean", "pixel_mean": "mean", "image_std": "std",
         "norm_std": "std", "normalize_std": "std", "pixel_std": "std", "rescale_factor": "scale",
         "imgsz": "size"}  # fmt: skip
_RANGES = {"0_255": "none", "zeroto255": "none", "normalized_0_1": "unit", "zerotoone": "unit",
           "normalized_1_1": "minus-one-one", "minusonetoone": "minus-one-one"}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Settings by option, as texts, and the source of each; `start`: what the graph's first nodes say; `unlike`: by
    option, what the config beside the file says that the option cannot, where nothing else states it."""

    values: Mapping[str, str]
    sources: Mapping[str, str] = field(default_factory=dict)
    labels: tuple[list[str], str] | None = None
    start: Start | None = None
    unlike: Mapping[str, str] = field(default_factory=dict)

    def spec(self, spec: Spec) -> Spec:
        """Returns the spec with the settings among its options, to read them as options are read."""
        return Spec(spec.text, spec.scheme, spec.name, {**spec.options, **self.values})


def settings_of(spec: Spec, model: Any, tensor: str, dtype: str, sides: tuple[int | None, int | None]) -> Settings:
    """Returns what is stated about the input `tensor` of a graph. Raises UnstatedPreprocessingError where nothing
    states the normalisation, SpecError for statements that do not go together."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    from_metadata = {_ALSO.get(key, key): value.strip("[]() ") for key, value in metadata.items() if value.strip()}
    beside_file = read_config_settings(spec, sides)
    geometry = [
        _sourced(
            {key: from_metadata[key] for key in ("size", "resize") if key in from_metadata}, "the file's metadata"
        ),
        _sourced(_pixel_format(metadata), "the file's metadata (Image.BitmapPixelFormat)"),
        _sourced(beside_file.channels, beside_file.file),
        _sourced(beside_file.geometry if None in sides or sides == beside_file.sides else {}, beside_file.file),
    ]
    start = start_of(model.graph, tensor) if dtype != "uint8" else None
    groups = [
        _sourced(_of_spec(spec), "the spec"),
        _sourced({key: from_metadata[key] for key in NORMALISATION if key in from_metadata}, "the file's metadata"),
        _of_exporter(metadata),
        _sourced(beside_file.normalisation, beside_file.file),
        _of_graph(start, dtype),
    ]
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    for level in (*reversed(geometry), _sourced({k: v for k, v in spec.options.items() if k in GEOMETRY}, "the spec")):
        if {"resize", "squash"} & level.keys():  # of one level: the one replaces the other
            values = {key: value for key, value in values.items() if key not in ("resize", "squash")}
        values.update({key: value for key, (value, _) in level.items()})
        sources.update({key: source for key, (_, source) in level.items()})
    normal = _normalisation(spec, groups, dtype)
    values.update({key: value for key, (value, _) in normal.items()})
    sources.update({key: source for key, (_, source) in normal.items()})
    here = {None, beside_file.file}
    is_stated = {
        "resize": not {sources.get("resize"), sources.get("squash")} <= here,
        "interpolation": sources.get("interpolation") not in here,
    }
    unlike = {
        option: f"{beside_file.file} has {words}"
        for option, words in beside_file.unlike.items()
        if not is_stated[option]
    }
    return Settings(values, sources, beside_file.labels, start, unlike)


def layout_of(spec: Spec, model: Any) -> str | None:
    """Returns the layout that the spec or the file's metadata states; None where neither does."""
    in_metadata = next((entry.value for entry in model.metadata_props if entry.key == "layout"), None)
    return spec.options.get("layout", in_metadata)


Sourced = dict[str, tuple[str, str]]
"""Values and their sources by option."""


def _sourced(values: Mapping[str, str], source: str) -> Sourced:
    return {key: (value, source) for key, value in values.items()}


def _of_spec(spec: Spec) -> dict[str, str]:
    values = {key: spec.options[key] for key in NORMALISATION if key in spec.options}
    word = spec.options.get("preprocess")
    if word is None:
        return values
    if word not in WORDS:
        raise SpecError(f"{spec.text}: preprocess={word!r}; {nearest(word, WORDS)}")
    if values:
        raise SpecError(f"{spec.text}: preprocess={word} states mean, std and scale; leave out {', '.join(values)}")
    return dict(WORDS[word])


def _of_exporter(metadata: Mapping[str, str]) -> Sourced:
    if "ultralytics" in f"{metadata.get('author', '')} {metadata.get('description', '')}".casefold():
        return _sourced(WORDS["unit"], "the file's metadata (Ultralytics divides by 255 alone)")
    folded = {key.casefold(): value.casefold().strip() for key, value in metadata.items()}
    pixel_range = folded.get("image.nominalpixelrange", "")
    word = next((word for end, word in _RANGES.items() if pixel_range.endswith(end)), None)
    if word is None or folded.get("image.colorspacegamma") == "linear":
        return {}
    return _sourced(WORDS[word], f"the file's metadata (Image.NominalPixelRange {pixel_range})")


def _pixel_format(metadata: Mapping[str, str]) -> dict[str, str]:
    pixel_format = {key.casefold(): value.casefold() for key, value in metadata.items()}.get(
        "image.bitmappixelformat", ""
    )
    return {"channels": pixel_format[:3]} if pixel_format[:3] in ("rgb", "bgr") else {}


def _of_graph(start: Start | None, dtype: str) -> Sourced:
    if dtype == "uint8":
        return _sourced(WORDS["none"], "the graph's input is uint8")
    return _sourced(WORDS[start.word], start.nodes) if start else {}


def _normalisation(spec: Spec, groups: list[Sourced], dtype: str) -> Sourced:
    """Returns mean, std and scale, of the first that states them; the spec and the file's own complete each other."""
    by_spec, from_metadata, *others = groups
    if dtype == "uint8":
        if by_spec and by_spec != _sourced(WORDS["none"], "the spec"):
            raise SpecError(
                f"{spec.text}: the graph takes pixels as whole numbers from 0 to 255 (uint8), which nothing normalises "
                f"before it; leave out {', '.join(spec.options.keys() & {*NORMALISATION, 'preprocess'})}"
            )
        return others[-1]
    values = {**from_metadata, **by_spec}
    if not values:
        values = next((group for group in others if group), {})
    if not values:
        raise UnstatedPreprocessingError(
            f"{spec.text}: nothing states how pixels become this graph's numbers, and each way gives other answers; "
            "state what it was trained with: ?preprocess=imagenet (pixels / 255, then ImageNet's mean and std), unit "
            "(pixels / 255), minus-one-one (pixels / 127.5 − 1), none (0 to 255 as they are), or ?mean=&std= of pixels "
            "from 0 to 1"
        )
    missing = [key for key in ("mean", "std") if key not in values]
    if missing:
        raise UnstatedPreprocessingError(
            f"{spec.text}: {' and '.join(values)} without {' and '.join(missing)} leaves the normalisation open; state "
            "mean= and std= together (?mean=0&std=1 for none), or ?preprocess=imagenet, unit, minus-one-one or none"
        )
    return {"scale": (str(1 / 255), "with mean and std"), **values}


# From what is stated about an ONNX graph's input to the preprocessing of pictures, and to facts for a person.


def preprocessing(user_spec: Spec, settings: Settings, graph: Graph) -> Preprocessing:
    """Returns the preprocessing of an input. Raises SpecError for settings that do not fit it, or a free size that
    nothing states."""
    spec = settings.spec(user_spec)
    height, width = _size(spec, graph, settings)
    squash, resize = switch(spec, "squash"), positive(spec, "resize", min(height, width))
    if squash and "resize" in spec.options:
        raise SpecError(f"{spec.text}: squash=true takes pictures to the input's size at once; leave resize= out")
    if resize < min(height, width):
        raise SpecError(f"{spec.text}: resize={resize} is smaller than the {height} × {width} that the graph takes")
    scale = _scale(spec)
    mean, std = normalisation(spec, scale)
    _check_start(user_spec, settings, mean, std, scale)
    kind = next((kind for kind in _FILTERS if kind == spec.options.get("interpolation", "bilinear")), None)
    order = spec.options.get("channels", "rgb").casefold()
    if kind is None or order not in ("rgb", "bgr"):
        option, allowed = ("interpolation", list(_FILTERS)) if kind is None else ("channels", ["rgb", "bgr"])
        text = spec.options[option]
        raise SpecError(f"{spec.text}: {option}={text!r}; {nearest(text, allowed)}")
    return Preprocessing(
        height, width, resize, tuple(mean), tuple(std), scale, graph.channels_last, graph.dtype, squash, kind,
        order == "bgr",
    )  # fmt: skip


def _check_start(spec: Spec, settings: Settings, mean: list[float], std: list[float], scale: float) -> None:
    """Raises SpecError where pixels would be normalised before a graph that does so itself, or not as it expects.
    Numbers in the spec are taken all the same: a model may have been trained so."""
    start, source = settings.start, settings.sources["mean"]
    if start is None or not start.contradicts(mean, std, scale) or {"mean", "std"} & spec.options.keys():
        return
    stated = f"preprocess={spec.options['preprocess']}" if "preprocess" in spec.options else f"what {source} says"
    black, white = RANGES[start.word]
    raise SpecError(
        f"{spec.text}: {stated} does not suit the graph: {start.nodes}, so it takes numbers from {black:g} to "
        f"{white:g}; write ?preprocess={start.word}. If it was trained with both, state mean= and std= in numbers"
    )


def facts_of(prepare: Preprocessing, settings: Settings, graph: Graph) -> tuple[ModelFact, ...]:
    """Returns the input size, the way of resizing and the normalisation, each with its source."""
    size = f"{prepare.height} × {prepare.width}"
    source = "the graph's input" if None not in graph.sides else settings.sources.get("size", "")
    if prepare.squash:
        method, stated_by = f"squashed to {size}", settings.sources.get("squash")
    else:
        method, stated_by = f"shorter side to {prepare.resize}, then the centre {size}", settings.sources.get("resize")
    method += f", {prepare.interpolation}"
    stated_by = None if settings.unlike else stated_by
    unstated = "; ".join(settings.unlike.values()) or "nothing states it"
    option = "interpolation" if list(settings.unlike) == ["interpolation"] else "resize"
    normalised_by = settings.sources["mean"]
    if settings.start is not None and settings.start.contradicts(prepare.mean, prepare.std, prepare.scale):
        normalised_by += f", although {settings.start.nodes}"
    return (
        ModelFact("input size", size, source, option="" if None not in graph.sides else "size"),
        ModelFact("resize and crop", method, stated_by or unstated, stated_by is None, option),
        ModelFact("normalisation", _in_words(prepare), normalised_by, option="preprocess"),
    )


def _in_words(prepare: Preprocessing) -> str:
    order = ", channels in the order blue, green, red" if prepare.bgr else ""
    if prepare.dtype == "uint8":
        return f"none: whole numbers from 0 to 255{order}"
    if math.isclose(prepare.scale * 255, 1):
        pixels = "pixels / 255"
    else:
        pixels = "pixels from 0 to 255" if prepare.scale == 1 else f"pixels × {prepare.scale:.6g}"
    mean, std = (",".join(f"{x:.6g}" for x in dict.fromkeys(numbers)) for numbers in (prepare.mean, prepare.std))
    return f"{pixels}, mean {mean}, std {std}{order}"


def _size(spec: Spec, graph: Graph, settings: Settings) -> tuple[int, int]:
    spec_size = height_and_width(spec, "size")
    if None in graph.sides and spec_size is None:
        free = " and ".join(name for name, side in zip(("height", "width"), graph.sides, strict=True) if side is None)
        raise SpecError(
            f"{spec.text}: the graph takes pictures of any {free}, and nothing states the size that it was trained "
            "with; state it in pixels, such as ?size=224 (or ?size=HEIGHT,WIDTH)"
        )
    height, width = (fixed or side for fixed, side in zip(graph.sides, spec_size or (0, 0), strict=True))
    if settings.sources.get("size") == "the spec" and spec_size != (height, width):
        raise SpecError(f"{spec.text}: size={spec.options['size']}, but the graph takes {height} × {width}")
    return height, width


def _scale(spec: Spec) -> float:
    try:
        scale = float(spec.options["scale"])
    except ValueError:
        scale = math.nan
    if not math.isfinite(scale):
        raise SpecError(f"{spec.text}: scale={spec.options['scale']!r} is not a number")
    return scale
