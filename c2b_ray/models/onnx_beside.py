"""The configs that transformers, optimum and timm write beside an exported ONNX file, read as settings of its input.

Only where they can be of no other file: the file is alone in its folder, or its folder holds an export's variants
(`model.onnx`, `model_quantized.onnx`, …), be it the folder `onnx` inside the config's. It knows no graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from pathlib import Path
from typing import Any

from c2b_ray.errors import WeightsError
from c2b_ray.filesystems.documents import read_json
from c2b_ray.models.written_names import by_number

PROCESSOR, CONFIG = "preprocessor_config.json", "config.json"
_RESAMPLE = {2: "bilinear", 3: "bicubic"}
_SQUASHED = 384
"""ConvNeXT's processor squashes pictures from this size on, and crops smaller ones."""


@dataclass(frozen=True)
class Beside:
    """Settings of the file's input in the words of options; `sides`: the height and width that the config speaks of."""

    file: str = ""
    normalisation: Mapping[str, str] = field(default_factory=dict)
    geometry: Mapping[str, str] = field(default_factory=dict)
    sides: tuple[int, int] | None = None
    labels: tuple[list[str], str] | None = None


def beside(path: str) -> Beside:
    """Returns what the configs beside an ONNX file say. Raises WeightsError for one that is damaged."""
    folder = Path(path).parent
    try:
        others = [file.name for file in folder.glob("*.onnx")]
    except OSError:
        return Beside()
    if len(others) > 1 and not all(name.startswith("model") for name in others):
        return Beside()
    for place in (folder, *([folder.parent] if folder.name == "onnx" else [])):
        config, processor = (_document(place / name) for name in (CONFIG, PROCESSOR))
        labels = _labels(config)
        if processor:
            return _of_transformers(processor, labels)
        if config:
            return _of_timm(config, labels)
    return Beside()


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
    mapping, names = config.get("id2label"), config.get("label_names")
    if isinstance(mapping, dict) and mapping:
        found = by_number(mapping, f"{CONFIG}: id2label")
        return None if found == [f"LABEL_{i}" for i in range(len(found))] else (found, f"{CONFIG} (id2label)")
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return names, f"{CONFIG} (label_names)"
    return None


def _of_transformers(config: Mapping[str, Any], labels: tuple[list[str], str] | None) -> Beside:
    normal = {}
    mean, std = config.get("image_mean"), config.get("image_std")
    if not config.get("rescale_offset"):
        scale = str(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else "1"
        if config.get("do_normalize", mean is not None) and mean and std:
            normal = {"mean": _listed(mean), "std": _listed(std), "scale": scale}
        elif config.get("do_normalize") is False:
            normal = {"mean": "0", "std": "1", "scale": scale}
    size, crop = _sides(config.get("size")), _sides(config.get("crop_size"))
    geometry: dict[str, str] = {}
    if config.get("do_resize", True) and size:
        geometry = _geometry(config, size, crop if config.get("do_center_crop") else None)
    sides = _read_sides(geometry.get("size", ""))
    return Beside(PROCESSOR, normal, geometry, sides, labels)


def _geometry(config: Mapping[str, Any], size: list[int], crop: list[int] | None) -> dict[str, str]:
    """`size`: one number, of the shorter side, or a height and a width that pictures are squashed to."""
    found = {"interpolation": _RESAMPLE[config["resample"]]} if config.get("resample") in _RESAMPLE else {}
    kind = str(config.get("image_processor_type", config.get("feature_extractor_type", "")))
    if kind.startswith("ConvNext"):
        if size[0] >= _SQUASHED:
            return {**found, "size": f"{size[0]}", "squash": "true"}
        return {**found, "size": f"{size[0]}", "resize": f"{int(size[0] / (config.get('crop_pct') or 224 / 256))}"}
    if crop is None:
        squashed = {"squash": "true"} if len(size) > 1 else {"resize": f"{size[0]}"}
        return {**found, "size": _listed(size), **squashed}
    if len(size) > 1:
        # Squashed, then cropped: the same as a crop only where nothing is left to crop.
        return {**found, "size": _listed(size), "squash": "true"} if size == crop else {}
    return {**found, "size": _listed(crop), "resize": f"{size[0]}"}


def _of_timm(config: Mapping[str, Any], labels: tuple[list[str], str] | None) -> Beside:
    stated = config.get("pretrained_cfg", config)
    mean, std, size = (stated.get(key) for key in ("mean", "std", "input_size"))
    if not (isinstance(mean, list) and isinstance(std, list) and isinstance(size, list) and len(size) == 3):
        return Beside(CONFIG, labels=labels)
    height, width = int(size[1]), int(size[2])
    geometry = {"size": f"{height},{width}"}
    if stated.get("interpolation") in ("bilinear", "bicubic"):
        geometry["interpolation"] = stated["interpolation"]
    if stated.get("crop_mode") == "squash":
        geometry["squash"] = "true"
    else:
        geometry["resize"] = str(floor(min(height, width) / (stated.get("crop_pct") or 0.875)))
    normal = {"mean": _listed(mean), "std": _listed(std), "scale": str(1 / 255)}
    return Beside(CONFIG, normal, geometry, (height, width), labels)


def _sides(size: Any) -> list[int] | None:
    """Returns one number for a shorter side, two for a height and a width; None where the config says neither."""
    if isinstance(size, int):
        return [size]
    if isinstance(size, dict) and isinstance(size.get("shortest_edge"), int):
        return [size["shortest_edge"]]
    if isinstance(size, dict) and all(isinstance(size.get(side), int) for side in ("height", "width")):
        return [size["height"], size["width"]]
    return None


def _read_sides(text: str) -> tuple[int, int] | None:
    sides = [int(side) for side in text.split(",") if side]
    return (sides[0], sides[-1]) if sides else None


def _listed(values: Any) -> str:
    return ",".join(map(str, values)) if isinstance(values, list | tuple) else str(values)
