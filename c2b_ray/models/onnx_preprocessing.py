"""From what is stated about an ONNX graph's input to the preprocessing of pictures, and to facts for a person."""

from __future__ import annotations

import math

from c2b_ray.errors import SpecError, nearest
from c2b_ray.models.catalog import Spec
from c2b_ray.models.onnx_graph import Graph
from c2b_ray.models.onnx_settings import Settings
from c2b_ray.models.pixels.filters import Filter
from c2b_ray.models.pixels.tensor import Preprocessing
from c2b_ray.models.spec_options import height_and_width, normalisation, positive, switch
from c2b_ray.roles import ModelFact

_FILTERS: tuple[Filter, ...] = ("bilinear", "bicubic")


def preprocessing(given: Spec, settings: Settings, graph: Graph) -> Preprocessing:
    """Returns the preprocessing of an input. Raises SpecError for settings that do not fit it, or a free size that
    nothing states."""
    spec = settings.spec(given)
    height, width = _size(spec, graph, settings)
    squash, resize = switch(spec, "squash"), positive(spec, "resize", min(height, width))
    if squash and "resize" in spec.options:
        raise SpecError(f"{spec.text}: squash=true takes pictures to the input's size at once; leave resize= out")
    if resize < min(height, width):
        raise SpecError(f"{spec.text}: resize={resize} is smaller than the {height} × {width} that the graph takes")
    scale = _scale(spec)
    mean, std = normalisation(spec, scale)
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


def facts_of(prepare: Preprocessing, settings: Settings, graph: Graph) -> tuple[ModelFact, ...]:
    """Returns the input size, the way of resizing and the normalisation, each with its source."""
    size = f"{prepare.height} × {prepare.width}"
    source = "the graph's input" if None not in graph.sides else settings.sources.get("size", "")
    if prepare.squash:
        method, stated_by = f"squashed to {size}", settings.sources.get("squash")
    else:
        method, stated_by = f"shorter side to {prepare.resize}, then the centre {size}", settings.sources.get("resize")
    method += f", {prepare.interpolation}"
    return (
        ModelFact("input size", size, source, option="" if None not in graph.sides else "size"),
        ModelFact("resize and crop", method, stated_by or "nothing states it", stated_by is None, "resize"),
        ModelFact("normalisation", _in_words(prepare), settings.sources["mean"], option="preprocess"),
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
