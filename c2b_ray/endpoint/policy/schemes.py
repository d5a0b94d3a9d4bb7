"""What a submitted model spec may contain, by role, scheme and option.

A scheme or option that is not in these tables is refused, also an installed third party's, whatever the policy lists. A
spec is parsed like in the catalogue, and rebuilt from its checked parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from urllib.parse import parse_qsl, quote

from c2b_ray.config.endpoint import Policy, Role
from c2b_ray.endpoint.policy.paths import looks_like_path
from c2b_ray.errors import ConfigError, SpecError, nearest
from c2b_ray.models.catalog import parse
from c2b_ray.models.url_guard import UrlPolicy, check_url
from c2b_ray.storage.confined import LOCAL_DIR
from c2b_ray.world import zoo

Locate = Callable[[str, tuple[str, ...]], str]
"""Maps a name, and the kinds of uploads that fit, to a path; raises if the name is not allowed."""


class Part(Enum):
    """The type of a name or an option's value."""

    WORD = "letters, digits and any of . _ - +"
    NUMBERS = "numbers with commas between"
    DEVICE = "cpu, cuda or cuda:N"
    TEXT = "words that are shown to a model"
    LABELS = "names with commas between, or a file of names"
    FILE = "a file"
    LINKS = "none, or a file of links"
    TENSORS = "a safetensors file"
    WEIGHTS = "a safetensors file, or the name of published weights"
    GRAPH = "an ONNX file"
    TABLE = "a table"
    FOLDER = "a folder"
    MODEL = "a name on a hub of models, or a folder"
    LOCAL = "local-dir: and a folder"
    URL = "a URL"
    SERVED = "a URL and, after a #, a model's name"


@dataclass(frozen=True)
class Grammar:
    """What the specs of a scheme contain. `name`: the type of the model's name. `hub`: the prefix that a plain name
    gets before it is compared with the policy's hub names."""

    name: Part
    options: Mapping[str, Part]
    hub: str = ""


_RUNTIME = {"device": Part.DEVICE, "batch": Part.NUMBERS, "precision": Part.WORD}
_WEIGHTS_OPTIONS = {"weights": Part.WEIGHTS, "labels": Part.LABELS, **_RUNTIME}
_ZERO_SHOT = {"labels": Part.LABELS, "template": Part.TEXT, "temperature": Part.NUMBERS}
_SHAPE = dict.fromkeys(("mean", "std", "size", "resize", "scale", "crop"), Part.NUMBERS)
_DIFFUSION = {
    "steps": Part.NUMBERS, "guidance": Part.NUMBERS, "size": Part.WORD, "batch": Part.NUMBERS, "device": Part.DEVICE,
    "dtype": Part.WORD, "scheduler": Part.WORD, "compile": Part.WORD, "mislabel": Part.NUMBERS, "lora": Part.FOLDER,
    "debias": Part.TENSORS,
}  # fmt: skip
_NOISE = {**_DIFFUSION, "prompt": Part.TEXT}
_BERT = {"device": Part.DEVICE, **dict.fromkeys(("epochs", "rate", "batch"), Part.NUMBERS)}
_HF = {"revision": Part.WORD, "dtype": Part.WORD, "device": Part.DEVICE, "batch": Part.NUMBERS}
_VLLM = {
    "revision": Part.WORD, "dtype": Part.WORD, "enforce_eager": Part.WORD, **dict.fromkeys(
        ("max_model_len", "max_num_seqs", "gpu_memory_utilization", "kv_cache_memory_bytes", "tensor_parallel_size"),
        Part.NUMBERS,
    ),
}  # fmt: skip
_ONNX = {
    **_SHAPE, **dict.fromkeys(("preprocess", "squash", "interpolation", "channels", "layout"), Part.WORD),
    "labels": Part.LABELS, **dict.fromkeys(("input", "output", "output_name"), Part.TEXT),
    "threads": Part.NUMBERS, "batch": Part.NUMBERS, "device": Part.DEVICE,
}  # fmt: skip
_WORDS = {"template": Part.TEXT, "vocabulary": Part.FILE, "temperature": Part.NUMBERS}
_CLIP = {"weights": Part.WEIGHTS, **_RUNTIME}
_TABLE = {"labels": Part.LABELS, **dict.fromkeys(("file", "prediction", "probability", "ignore"), Part.TEXT)}
_URL, _SERVED = Grammar(Part.URL, {}), Grammar(Part.SERVED, {})

SCHEMES: dict[tuple[str, str], Grammar | None] = {
    ("classifier", "world"): Grammar(Part.WORD, {**_ZERO_SHOT, **_RUNTIME}),
    ("classifier", "onnx"): Grammar(Part.GRAPH, _ONNX),
    ("classifier", "timm"): Grammar(Part.MODEL, _WEIGHTS_OPTIONS, "timm/"),
    ("classifier", "torchvision"): Grammar(Part.MODEL, {**_WEIGHTS_OPTIONS, **_SHAPE}, "torchvision/"),
    ("classifier", "hf"): Grammar(Part.MODEL, {"revision": Part.WORD, "labels": Part.LABELS, **_RUNTIME}),
    ("classifier", "open_clip"): Grammar(Part.MODEL, {**_CLIP, **_ZERO_SHOT}, "open_clip/"),
    ("classifier", "http"): _URL,
    ("classifier", "https"): _URL,
    ("classifier", "table"): Grammar(Part.TABLE, _TABLE),
    ("classifier", "in-memory"): None,  # a model of the program that calls the library
    ("language_model", "hf"): Grammar(Part.MODEL, {"dtype": Part.WORD, "device": Part.DEVICE, "revision": Part.WORD}),
    ("language_model", "openai"): _SERVED,
    ("language_model", "scripted"): Grammar(Part.FILE, {}),
    ("language_model", "vllm"): Grammar(Part.MODEL, _VLLM),
    ("language_model", "world"): Grammar(Part.WORD, {"dtype": Part.WORD, "device": Part.DEVICE}),
    ("encoder", "open_clip"): Grammar(Part.MODEL, _CLIP, "open_clip/"),
    ("encoder", "world"): Grammar(Part.WORD, _RUNTIME),
    ("image_generator", "diffusers"): Grammar(Part.MODEL, _DIFFUSION),
    ("image_generator", "world"): Grammar(Part.WORD, {**_DIFFUSION, "links": Part.LINKS}),
    ("captioner", "open_clip"): Grammar(Part.MODEL, {**_CLIP, **_WORDS}, "open_clip/"),
    ("captioner", "hf-vlm"): Grammar(Part.MODEL, _HF),
    ("captioner", "openai"): _SERVED,
    ("captioner", "vllm"): Grammar(Part.MODEL, _VLLM),
    ("captioner", "scripted"): Grammar(Part.FILE, {}),
    ("captioner", "world"): Grammar(Part.WORD, {**_WORDS, **_RUNTIME}),
    ("index", "faiss"): Grammar(
        Part.FOLDER, {"probes": Part.NUMBERS, "shortlist": Part.NUMBERS, "device": Part.DEVICE}
    ),
    ("latent_generator", "diffusers"): Grammar(Part.MODEL, _NOISE),
    ("latent_generator", "world"): Grammar(Part.WORD, _NOISE),
    **{("latent_generator", kind): Grammar(Part.LOCAL, {"device": Part.DEVICE}) for kind in ("gan", "style", "vae")},
    ("group_guesser", "bert"): Grammar(Part.MODEL, _BERT),
    # Only packaged ones: a word cannot be a path.
    ("sentence_encoder", "sentence-transformers"): Grammar(Part.WORD, {"device": Part.DEVICE, "batch": Part.NUMBERS}),
}
"""(Role, scheme) → what its specs contain; None: refused in submitted configs."""

_PATTERNS = {
    Part.WORD: re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}"),
    Part.NUMBERS: re.compile(r"[0-9.,eE+-]{1,100}"),
    Part.DEVICE: re.compile(r"auto|cpu|cuda(:\d{1,3})?"),
    Part.TEXT: re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,300}"),
}
NO_LINKS = "none"
_NAMES = re.compile(r"[^/\\~$\x00-\x1f\x7f]+")
_PUBLISHED = re.compile(r"[A-Z][A-Z0-9_]{1,60}")
_HUB = re.compile(
    r"(?:hf-hub:)?([A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?)(?:@[\w.-]{1,100})?"
)
_SERVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+ -]{0,199}")
_UPLOADS = {
    Part.GRAPH: ("onnx",), Part.WEIGHTS: ("safetensors",), Part.TABLE: ("table", "csv"), Part.FOLDER: (),
    Part.MODEL: (), Part.FILE: (), Part.LABELS: ("text",), Part.LINKS: (), Part.TENSORS: ("safetensors",),
}  # fmt: skip


def checked_spec(text: str, role: Role, field: str, policy: Policy, locate: Locate) -> str:
    """Returns the spec with its paths resolved. ConfigError names the `field` and the part of the spec that is
    refused."""
    if role == "index" and not text.startswith("faiss:"):
        return locate(text, ())
    try:
        spec = parse(text)
    except (SpecError, ValueError) as error:
        raise ConfigError(field, str(error)[:300]) from error
    grammar = SCHEMES.get((role, spec.scheme))
    allowed = [scheme for scheme in policy.schemes_of(role) if SCHEMES.get((role, scheme)) is not None]
    if grammar is None or spec.scheme not in allowed:
        raise ConfigError(
            field,
            f"{spec.scheme[:60]!r} is not a scheme that this endpoint accepts here; {nearest(spec.scheme, allowed)}",
        )
    if grammar.name in (Part.URL, Part.SERVED):
        return _service(text, spec.name, grammar.name, field, policy)
    name, _, query = text.removeprefix(f"{spec.scheme}:").partition("?")
    if spec.scheme == "world" and not zoo.has(name):
        raise ConfigError(field, f"the world has no model {name[:60]!r}; {nearest(name, zoo.names())}")
    head = f"{spec.scheme}:{_name(name, grammar, field, policy, locate)}"
    options = [_option(key, value, grammar, field, locate) for key, value in _pairs(query, field)]
    return f"{head}?{'&'.join(options)}" if options else head


def url_policy(policy: Policy) -> UrlPolicy:
    """Returns the rules for URLs that a job's models may call."""
    return UrlPolicy(tuple(policy.urls), tuple(policy.networks), policy.answer_bytes, policy.answer_seconds)


def _service(text: str, name: str, part: Part, field: str, policy: Policy) -> str:
    url, separator, model = name.partition("#") if part is Part.SERVED else (text, "", "")
    if separator and not _SERVED_NAME.fullmatch(model):
        raise ConfigError(field, f"{model[:100]!a} is not the name of a served model")
    check_url(url, url_policy(policy))
    return text


def _name(name: str, grammar: Grammar, field: str, policy: Policy, locate: Locate) -> str:
    if grammar.name is Part.WORD:
        return _fitting(name, Part.WORD, "name", field)
    if grammar.name is Part.LOCAL and not name.startswith(LOCAL_DIR):
        raise ConfigError(field, f"{name[:100]!r}: expected {Part.LOCAL.value}")
    if grammar.name not in (Part.MODEL, Part.LOCAL):
        return locate(name, _UPLOADS[grammar.name])
    folder = name.removeprefix(LOCAL_DIR)
    if folder != name or looks_like_path(folder):
        if not policy.local_models:
            raise ConfigError(field, f"{name[:100]!r}: this endpoint reads no models from folders; upload its weights")
        # Keep the prefix only where there was one: some loaders would take it as part of a folder's name.
        return name[: len(name) - len(folder)] + locate(folder, ())
    match = _HUB.fullmatch(name)
    if match is None or ".." in name:
        raise ConfigError(
            field, f"{name[:100]!r} is not the name of a model: expected name, org/name or a path below data/"
        )
    # The library decides where a plain name (`resnet50.a1_in1k`, `ViT-B-32/laion2b`) is downloaded from.
    full_name = match[1] if not grammar.hub or name.startswith("hf-hub:") else f"{grammar.hub}{match[1]}"
    if not any(fnmatchcase(full_name, pattern) for pattern in policy.hub):
        raise ConfigError(
            field, f"{full_name!r} is not among the models that this endpoint accepts: {', '.join(policy.hub)}"
        )
    return name


def _pairs(query: str, field: str) -> list[tuple[str, str]]:
    pairs = parse_qsl(query, keep_blank_values=True)
    names = [name for name, _ in pairs]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(field, f"the option {repeated[:60]!r} is given twice")
    return pairs


def _option(key: str, value: str, grammar: Grammar, field: str, locate: Locate) -> str:
    part = grammar.options.get(key)
    if part is None:
        raise ConfigError(field, f"unknown option {key[:60]!r}; {nearest(key, grammar.options)}")
    if part in _PATTERNS:
        value = _fitting(value, part, key, field)
    elif not _is_no_file(value, part):
        value = locate(value, _UPLOADS[part])
    return f"{key}={quote(value, safe='/:,')}"


def _is_no_file(value: str, part: Part) -> bool:
    """Returns whether the value of an option that may be a path is one of its other allowed values."""
    if part is Part.LABELS:
        return "," in value and _NAMES.fullmatch(value) is not None
    if part is Part.WEIGHTS:
        return _PUBLISHED.fullmatch(value) is not None
    return part is Part.LINKS and value == NO_LINKS


def _fitting(value: str, part: Part, option: str, field: str) -> str:
    if not _PATTERNS[part].fullmatch(value):
        raise ConfigError(field, f"{option}={value[:100]!a}: expected {part.value}")
    return value
