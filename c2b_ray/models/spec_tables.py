"""Facts about models that several loaders state in the same words. It knows no library of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from c2b_ray.models.catalog import Spec
from c2b_ray.roles import ModelFact


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


def normalisation(mean: Sequence[float], std: Sequence[float]) -> str:
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

TABLES: dict[tuple[str, str], SchemeOptions] = {
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
TABLES["classifier", "https"] = TABLES["classifier", "http"]


def options_of(role: str, scheme: str) -> dict[str, str]:
    """Returns the options of a scheme's specs: name → meaning."""
    return TABLES[role, scheme].options
