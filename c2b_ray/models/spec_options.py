"""What specs of models may say: options that several models share, read and checked; label names; `SCHEMES`, what is
read from where for each scheme; facts that loaders state in the same words.

It knows no library of models, so a loader that needs no PyTorch does not import it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from c2b_ray.errors import InputError, SpecError, WeightsError
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import ModelFact, Pixels
from c2b_ray.storage.manifest import parse_json, read_json, read_yaml

BATCH = 64
"""Rows that go through a model at once, where the spec's `batch=` does not say otherwise."""
GPU_BATCH = 256
"""The default batch on a GPU, which smaller batches leave idle."""

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
WORDS: Mapping[str, Mapping[str, str]] = {
    "imagenet": {"mean": ",".join(map(str, MEAN)), "std": ",".join(map(str, STD)), "scale": str(1 / 255)},
    "unit": {"mean": "0", "std": "1", "scale": str(1 / 255)},
    "minus-one-one": {"mean": "0.5", "std": "0.5", "scale": str(1 / 255)},
    "none": {"mean": "0", "std": "1", "scale": "1"},
}
"""The settings by `preprocess=` word: pixels become numbers normalised as for ImageNet, from 0 to 1, from −1 to 1, or
stay from 0 to 255."""


TO_ONNX = (
    "export the model to ONNX (PyTorch: torch.onnx.export; Keras: model.export(FILE, format='onnx'), or tf2onnx) and "
    "write onnx:FILE"
)
"""What to do with models of other libraries."""


class UnstatedPreprocessingError(SpecError):
    """Nothing states how pictures become a graph's input."""


def positive(spec: Spec, option: str, default: int) -> int:
    """Returns a whole number above 0 from a spec's options."""
    text = spec.options.get(option, str(default))
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise SpecError(f"{spec.text}: {option}={text!r} is not a whole number above 0")
    return int(text)


def numbers(spec: Spec, option: str) -> list[float] | None:
    """Returns one finite number, or three separated by commas, as three; None where the option is absent.

    `mean` and `std` are of pixels from 0 to 1: those of pixels from 0 to 255 are refused (`normalisation` reads both).
    """
    values = _numbers(spec, option)
    if values is not None and option in ("mean", "std"):
        _check_pixels(spec, option, values, 1.0)
    return values


def normalisation(spec: Spec, scale: float) -> tuple[list[float], list[float]]:
    """Returns `mean` and `std` of pixels that are multiplied by `scale` before; both must be there."""
    pairs = [(option, _numbers(spec, option) or []) for option in ("mean", "std")]
    for option, values in pairs:
        _check_pixels(spec, option, values, scale * 255)
    return pairs[0][1], pairs[1][1]


def _check_pixels(spec: Spec, option: str, values: list[float], white: float) -> None:
    """Raises SpecError for a mean or std of pixels from 0 to 255 where pixels reach from 0 to 1, or the reverse.

    `white`: the number of a white pixel.
    """
    text = spec.options[option]
    if white <= 1.01 and max(map(abs, values)) > 1:
        scaled = ",".join(f"{value / 255:.4g}" for value in dict.fromkeys(values))
        raise SpecError(
            f"{spec.text}: {option}={text} is of pixels from 0 to 255, but here they are from 0 to 1 before it; give "
            f"{option}={scaled}, which is divided by 255"
        )
    trivial = values == [0.0] * 3 if option == "mean" else values == [1.0] * 3
    if white >= 254 and not trivial and max(map(abs, values)) <= 1:
        scaled = ",".join(f"{value * 255:.4g}" for value in dict.fromkeys(values))
        raise SpecError(
            f"{spec.text}: {option}={text} is of pixels from 0 to 1, but scale= leaves them from 0 to 255 before it; "
            f"leave scale= out, or give {option}={scaled}"
        )


def height_and_width(spec: Spec, option: str) -> tuple[int, int] | None:
    """Returns a height and a width from one whole number, or from two with a comma between; None where the option is
    absent."""
    if option not in spec.options:
        return None
    parts = [part.strip() for part in spec.options[option].split(",")]
    if len(parts) > 2 or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise SpecError(
            f"{spec.text}: {option}={spec.options[option]!r} is neither a whole number above 0 nor two (height,width)"
        )
    return int(parts[0]), int(parts[-1])


def switch(spec: Spec, option: str) -> bool:
    """Returns whether an option is `true`; SpecError where it is neither that nor `false`."""
    text = spec.options.get(option, "false").casefold()
    if text not in ("true", "false"):
        raise SpecError(f"{spec.text}: {option}={spec.options[option]!r}; true or false")
    return text == "true"


def _numbers(spec: Spec, option: str) -> list[float] | None:
    if option not in spec.options:
        return None
    try:
        values = [float(part) for part in spec.options[option].split(",")]
    except ValueError:
        values = []
    if len(values) not in (1, 3) or not np.isfinite(values).all():
        raise SpecError(
            f"{spec.text}: {option}={spec.options[option]!r} is neither a number nor three (red,green,blue)"
        )
    if option == "std" and min(values) <= 0:
        raise SpecError(f"{spec.text}: std={spec.options[option]}: a standard deviation is above 0")
    return values * 3 if len(values) == 1 else values


def truth(spec: Spec, option: str, default: bool) -> bool:
    """Returns an option that is true or false. Raises SpecError for any other text."""
    text = spec.options.get(option, str(default).lower())
    if text not in ("true", "false"):
        raise SpecError(f"{spec.text}: {option}={text!r} is neither true nor false")
    return text == "true"


def read_labels(path: str | Path) -> tuple[str, ...]:
    """Reads label names from a file: one name a line, which may have its number before it (an empty last line is
    ignored); or, in JSON or YAML, a list, or a mapping from numbers to names or from names to numbers, also under
    `id2label` or `names`.

    Raises SpecError where it cannot be read.
    """
    suffix = Path(path).suffix.lower()
    try:
        if suffix not in (".json", ".yaml", ".yml"):
            text = Path(path).read_text(encoding="utf-8-sig")
            lines = tuple(line.strip() for line in text.strip("\r\n").splitlines())
            return _plain(path, lines, has_header=suffix in (".csv", ".tsv"))
        names = read_json(path) if suffix == ".json" else read_yaml(path)
        if isinstance(names, dict):
            names = next(
                (names[key] for key in ("id2label", "names") if isinstance(names.get(key), dict | list)), names
            )
        if isinstance(names, dict):
            return tuple(by_number({key: _last(value) for key, value in names.items()}, "it"))
    except (OSError, ValueError, InputError) as error:
        raise SpecError(f"labels {path}: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpecError(
            f"labels {path}: expected a list of strings in the order of the outputs, or a mapping from numbers to "
            "names or from names to numbers"
        )
    return tuple(names)


def _last(value: Any) -> Any:
    """Returns the last of a list of texts: Keras names ImageNet's classes by synset and name."""
    return value[-1] if isinstance(value, list) and value and all(isinstance(one, str) for one in value) else value


_NUMBERED_LINE = re.compile(r"(\d{1,9})(?:\s*[:,;]\s*|\s+)(\S.*)")


def _plain(path: str | Path, lines: tuple[str, ...], has_header: bool) -> tuple[str, ...]:
    """Returns the lines, or their names in the order of the numbers before them, where these count from 0 or 1 and the
    names differ without them: "1 finger" and "2 fingers" are names.

    Raises SpecError where each line is quoted, so that the quotes would be part of the names, or where numbers that are
    part of the names are in another order than the lines.
    """
    if lines and all(re.fullmatch(r"""(["']).*\1\s*,?""", line) for line in lines):
        raise SpecError(f"every line is quoted, such as {lines[0]}; write the names alone, one a line")
    if (
        has_header
        and lines
        and not _NUMBERED_LINE.fullmatch(lines[0])
        and all(map(_NUMBERED_LINE.fullmatch, lines[1:]))
    ):
        lines = lines[1:]
    found = [match for line in lines if (match := _NUMBERED_LINE.fullmatch(line))]
    numbers = [int(match[1]) for match in found]
    if not lines or sorted(numbers) not in ([*range(len(lines))], [*range(1, len(lines) + 1)]):
        return lines
    name_of = {int(match[1]): match[2].strip() for match in found}
    if len({re.sub(r"e?s\b", "", name.casefold()) for name in name_of.values()}) == len(lines):
        return tuple(name_of[number] for number in sorted(name_of))
    if numbers != sorted(numbers):
        raise SpecError(
            f"its lines are numbered, and not in the order of the numbers: the first is {lines[0]!r}; write the names "
            "alone, one a line, in the order of the outputs"
        )
    return lines


def label_names(spec: Spec, count: int, default_names: Sequence[str] | None) -> tuple[str, ...]:
    """Returns `labels=` of the spec, else the model's own names (`default_names`), else label_0, label_1, …; always
    `count` names."""
    path = spec.options.get("labels")
    names = read_labels(path) if path else tuple(default_names or (f"label_{i}" for i in range(count)))
    if len(names) != count:
        if not path:
            raise SpecError(f"{spec.text}: {len(names)} label names for {count} outputs; give them with ?labels=PATH")
        raise SpecError(
            f"{spec.text}: {len(names)} label names for {count} outputs; {path} has {_short(', '.join(names))}, and "
            "should have one name a line (or a JSON list) and nothing else, in the order of the outputs"
        )
    return names


def batches(rows: Any, size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def to_pil(image: Pixels) -> Image.Image:
    """Converts a picture to the input of the libraries' preprocessing."""
    return Image.fromarray(np.ascontiguousarray(image))


# Label names as files write them: a JSON or Python list, or a mapping from numbers to names or from names to
# numbers.


KEYS = ("labels", "names", "classes", "class_names", "label_names", "id2label", "categories", "class_to_idx")
"""The keys under which exporters put label names into a file's metadata."""
LONGEST = 4 * 2**20
"""The most characters that are parsed; the names of 21,841 labels take one million."""
REMEDY = "give the names with ?labels=PATH"


def names_in(metadata: Mapping[str, str], source: str) -> tuple[list[str] | None, str]:
    """Returns the label names of a file's metadata, and their key; (None, "") where no key of `KEYS` has any.

    Raises WeightsError where names cannot be read, or where two keys name the labels differently.
    """
    entry_of_key = {key.casefold(): (key, value) for key, value in metadata.items() if value.strip()}
    named_labels = [
        (entry_of_key[key][0], names_of(entry_of_key[key][1], f"{source}: its `{entry_of_key[key][0]}`"))
        for key in KEYS
        if key in entry_of_key
    ]
    if not named_labels:
        return None, ""
    first, names = named_labels[0]
    for key, other_names in named_labels[1:]:
        if other_names != names:
            raise WeightsError(
                f"{source}: its metadata names labels twice, differently: `{first}` and `{key}`; {REMEDY}"
            )
    return names, first


def names_of(text: str, source: str) -> list[str]:
    """Parses names from a text. Raises WeightsError where it is neither a list nor a mapping of names."""
    if len(text) > LONGEST:
        raise WeightsError(f"{source} has {len(text)} characters; {REMEDY}")
    value: Any = text
    if text.lstrip()[:1] in "[{(":
        try:
            value = parse_json(text)
        except ValueError:
            try:
                value = ast.literal_eval(text.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
                raise WeightsError(
                    f"{source} is neither JSON nor a Python list or dict: {_short(text)}; {REMEDY}"
                ) from error
    if isinstance(value, str):
        value = value.strip().splitlines() if "\n" in value.strip() else value.split(",")
    if isinstance(value, Mapping):
        return by_number(value, source)
    if isinstance(value, list | tuple) and value and all(isinstance(name, str | int) for name in value):
        return [str(name).strip() for name in value]
    raise WeightsError(
        f"{source} is neither a list of names nor a mapping from numbers to names: {_short(text)}; {REMEDY}"
    )


def by_number(mapping: Mapping[Any, Any], source: str) -> list[str]:
    """Returns the names in a mapping from numbers to names, or from names to numbers, in the order of numbers.

    Raises WeightsError where the numbers are not 0, 1, 2, … without a gap.
    """
    keys, values = ([_number(part) for part in parts] for parts in (mapping.keys(), mapping.values()))
    if None not in keys:
        numbered = dict(zip(keys, (str(value).strip() for value in mapping.values()), strict=True))
    else:  # class_to_idx: the names come first
        numbered = dict(zip(values, (str(key).strip() for key in mapping), strict=True))
    if not mapping or None in numbered or len(numbered) < len(mapping):
        raise WeightsError(f"{source} is no mapping from numbers to names: {_short(str(dict(mapping)))}; {REMEDY}")
    if None not in keys and keys != values and set(keys) == set(values):
        raise WeightsError(f"{source} maps numbers to numbers, in two ways: {_short(str(dict(mapping)))}; {REMEDY}")
    numbers = sorted(number for number in numbered if number is not None)
    if numbers != list(range(len(numbers))):
        missing = next(i for i in range(len(numbers) + 1) if i not in numbered)
        begins = f"begins at {numbers[0]}" if numbers[0] else f"has no number {missing}"
        raise WeightsError(
            f"{source} {begins}, and names {len(numbers)} labels up to number {numbers[-1]}; the model's outputs are "
            f"numbered from 0 without a gap: {REMEDY}, a name a line, in the order of the outputs"
        )
    return [numbered[number] for number in numbers]


def _number(key: Any) -> int | None:
    text = str(key).strip()
    return int(text) if not isinstance(key, bool) and text.isdecimal() and text.isascii() and len(text) < 10 else None


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"


# Facts about models that several loaders state in the same words.


def label_fact(spec: Spec | None, labels: Sequence[str], source: str | None, assumed: bool = False) -> ModelFact:
    """Returns the fact of a classifier's label names. `spec`: None where no spec can state them. `source`: what names
    them where `labels=` does not; None where nothing does, and the names are numbers."""
    first_names = ", ".join(list(labels[:3])) + (", …" if len(labels) > 3 else "")
    value = f"{len(labels)}: {first_names}"
    if spec is None:
        return ModelFact("label names", value, source or "", assumed)
    if "labels" in spec.options:
        return ModelFact("label names", value, f"?labels={spec.options['labels']}")
    if source is None:
        return ModelFact("label names", value, "numbered: no file names them", True, "labels")
    return ModelFact("label names", value, source, assumed, "labels")


def normalisation_words(mean: Sequence[float], std: Sequence[float]) -> str:
    """Returns mean and standard deviation of the three colours, each as one number where all three are the same."""
    return f"mean {_three(mean)}, std {_three(std)}"


def _three(values: Sequence[float]) -> str:
    different = dict.fromkeys(f"{value:.4g}" for value in values)
    return " ".join(different) if len(different) == 1 else " ".join(f"{value:.4g}" for value in values)


# What is read from where for each scheme of model specs: one table, from which loaders know their options, and
# which `c2b models SCHEME` prints.


_SHARED = {
    "weights": "a safetensors file of your own weights",
    "labels": "a file of label names in the order of the outputs: one a line, or a JSON list",
    "head": "softmax (labels exclude each other) or sigmoid (each label on its own); one output is one sigmoid",
    "revision": "the branch, tag or commit of a repository of the model hub",
    "device": "cpu, cuda or cuda:N; default: a GPU where the process has one",
    "batch": "how many images or texts go through the model at once",
    "precision": "the numbers it computes in: fp32, tf32 (GPUs alone), bf16 or fp16",
    "dtype": "the numbers it computes in, such as float32 or bfloat16",
    "compile": "whether PyTorch compiles it: true or false",
    "tensors": "of a file with two copies of the weights, the beginning of the names of those to read; or unprefixed",
    "unused": "the beginning of the names of tensors in the file that are not read",
    "mean": "the mean of each colour: one number or three; of pixels from 0 to 1",
    "std": "the standard deviation of each colour: one number or three; of pixels from 0 to 1",
    "size": "the size of the input in pixels: one number, or HEIGHT,WIDTH where both may differ",
    "resize": "the shorter side to resize pictures to, before the centre is cut out",
    "interpolation": "the filter that resizes: bilinear, bicubic, …",
    "template": "the sentence for a label, such as “a photo of a [CLASS]”",
    "temperature": "the scale of cosines before the softmax; default: the model's own",
}


@dataclass(frozen=True)
class SchemeOptions:
    """`options`: name → meaning. `reads`: (setting, where it is read from, in this order; what happens if nothing
    states it). `refuses`: in words."""

    options: dict[str, str]
    reads: tuple[tuple[str, str, str], ...] = ()
    refuses: tuple[str, ...] = ()


def _options(*names: str, **own_options: str) -> dict[str, str]:
    return {**{name: _SHARED[name] for name in names}, **own_options}


_PICKLES = "pickled weights (.pt, .pth, .bin): safetensors alone"
_TENSORS = "a file that lacks a tensor of the model, or has one that the model does not use"
_TORCH = ("device", "batch", "precision", "compile")
_CLIP = {
    "quickgelu": "whether the activation is QuickGELU: true or false",
    "pretrained_cfg": "the published tag whose settings hold for weights of your own",
    "resize_mode": "how pictures are fitted: shortest, longest or squash",
}
_CLIP_READS = (
    ("preprocessing", "the spec; the published weights of the architecture, where all agree", "asked"),
    ("activation", "quickgelu=; the published weights, where all agree", "asked"),
)

SCHEMES: dict[tuple[str, str], SchemeOptions] = {
    ("classifier", "timm"): SchemeOptions(
        _options(
            "weights",
            "labels",
            "head",
            *_TORCH,
            "tensors",
            "unused",
            "mean",
            "std",
            "size",
            "interpolation",
            crop_pct="the share of the resized picture that is cut out",
            crop_mode="center, squash or border",
            use_train_size="true: the size of training, as timm's validate.py --use-train-size",
        ),
        (
            ("architecture, weights", "timm's registry; config.json of a folder; weights=", "refused"),
            ("label names", "labels=; the config's label_names; ImageNet's for 1,000 outputs", "label_0, …: assumed"),
            ("preprocessing", "the spec; the config; the tag's settings", "the architecture's default tag: assumed"),
        ),
        (_PICKLES, _TENSORS),
    ),
    ("classifier", "torchvision"): SchemeOptions(
        _options(
            "weights",
            "labels",
            "head",
            *_TORCH,
            "tensors",
            "unused",
            "mean",
            "std",
            "size",
            "resize",
            crop="the side of the centre that is cut out",
        ),
        (
            ("weights", "weights=, a file or the name of published weights; the DEFAULT ones", "refused"),
            ("label names", "labels=; the categories of the weights; ImageNet's for 1,000", "label_0, …: assumed"),
            ("preprocessing", "the spec; the weights' transforms", "that of the DEFAULT weights: assumed"),
        ),
        (_PICKLES, _TENSORS),
    ),
    ("classifier", "hf"): SchemeOptions(
        _options("revision", "labels", "head", *_TORCH, "tensors", "unused"),
        (
            ("architecture", "config.json", "refused"),
            ("label names", "labels=; id2label of config.json", "label_0, …: assumed"),
            ("head", "head=; problem_type of config.json; one output is one sigmoid", "softmax"),
            ("preprocessing", "preprocessor_config.json", "refused"),
        ),
        (_PICKLES, _TENSORS, "id2label that begins at 1 or has a gap"),
    ),
    ("classifier", "open_clip"): SchemeOptions(
        _options(
            "labels",
            "template",
            "temperature",
            "weights",
            *_TORCH,
            "tensors",
            "unused",
            "mean",
            "std",
            "interpolation",
            **_CLIP,
        ),
        (
            ("labels", "labels=, names separated by commas or a file", "refused"),
            ("scale", "temperature=; the model's logit_scale", "refused"),
            *_CLIP_READS,
        ),
        (_PICKLES, _TENSORS),
    ),
    ("classifier", "onnx"): SchemeOptions(
        _options(
            "mean",
            "std",
            "size",
            "resize",
            "interpolation",
            "labels",
            "head",
            "batch",
            "device",
            preprocess="imagenet, unit (pixels / 255), minus-one-one (pixels / 127.5 − 1) or none (0 to 255)",
            scale="1: mean and std are of pixels from 0 to 255",
            squash="true: resize without regard to the shape",
            channels="rgb or bgr",
            layout="nchw or nhwc",
            input="the name of the graph's input for pictures",
            output="what its numbers are: logits, probabilities, log-probabilities or percent",
            output_name="the name of the graph's output",
            threads="how many threads compute",
        ),
        (
            (
                "normalisation",
                "preprocess=, or mean= and std=; the metadata (mean and std, Ultralytics, "
                "Image.NominalPixelRange); preprocessor_config.json or timm's config.json beside it; a uint8 input; "
                "the nodes at the graph's start",
                "asked",
            ),
            ("size", "the input's shape; size=; size or imgsz of the metadata; the config beside it", "asked"),
            ("resize and crop", "the spec; the metadata; the config beside it", "the shorter side: assumed"),
            ("label names", "labels=; the metadata; config.json beside it", "label_0, …: assumed"),
            ("output", "the only one that can be labels; output_name=", "asked"),
            ("what its numbers are", "output=; what it gives on fourteen fixed pictures", "asked"),
            ("head", "head=; a Sigmoid as the last node; one output is one sigmoid", "softmax"),
        ),
        ("ZipMap outputs (export with zipmap: False)",),
    ),
    ("classifier", "table"): SchemeOptions(
        _options(
            "labels",
            "head",
            file="the column that names the image",
            prediction="the column of the classifier's answers",
            probability="the column of the answer's probability",
            ignore="columns that are no labels, separated by commas",
        ),
        (
            ("image", "file=; a column of a usual name", "refused"),
            ("answers", "prediction=; columns of a usual name; a column for each label", "refused"),
        ),
        ("a table whose columns may be the truth or the answer",),
    ),
    ("classifier", "http"): SchemeOptions(
        {},
        (
            ("labels, revision", "the service's answer to GET", "refused"),
            ("answers", "logits or probabilities, as the service calls them", "refused"),
        ),
        ("rows called logits that are probabilities",),
    ),
    ("encoder", "open_clip"): SchemeOptions(
        _options("weights", *_TORCH, "tensors", "unused", "mean", "std", "interpolation", **_CLIP),
        _CLIP_READS,
        (_PICKLES, _TENSORS),
    ),
    ("captioner", "hf-vlm"): SchemeOptions(
        _options("revision", "dtype", "device", "batch", "unused"), refuses=(_PICKLES, _TENSORS)
    ),
    ("language_model", "hf"): SchemeOptions(
        _options("revision", "dtype", "device", "unused"), refuses=(_PICKLES, _TENSORS)
    ),
}
SCHEMES["classifier", "https"] = SCHEMES["classifier", "http"]


def options_of(role: str, scheme: str) -> dict[str, str]:
    """Returns the options of a scheme's specs: name → meaning."""
    return SCHEMES[role, scheme].options
