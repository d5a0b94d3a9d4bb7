"""Finds a model by its spec string: one visible table with deferred imports.

    scheme:name[?option=value&...]

It knows which module serves a (role, scheme) and nothing of the libraries in those modules. Third parties add theirs
through the entry-point group `c2b_ray.models`: an entry named `role.scheme` that points at a loader.

A loader is a function of a `Spec` that returns the role; it must refuse options that it does not know
(`Spec.options_among`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import parse_qsl

from c2b_ray.errors import SpecError, nearest
from c2b_ray.extras import needed_by
from c2b_ray.roles import (
    Captioner,
    Classifier,
    Description,
    FileCaptioner,
    FileClassifier,
    FileEncoder,
    ImageGenerator,
    ImageIndex,
    LanguageModel,
    LatentGenerator,
    SentenceEncoder,
    TextImageEncoder,
)

ENTRY_POINTS = "c2b_ray.models"

CATALOG: dict[tuple[str, str], str] = {
    ("language_model", "hf"): "c2b_ray.models.transformers_lm:load",
    ("language_model", "openai"): "c2b_ray.models.openai_api:load_language_model",
    ("language_model", "scripted"): "c2b_ray.models.scripted:load_language_model",
    ("language_model", "vllm"): "c2b_ray.models.vllm_lm:load",
    ("language_model", "world"): "c2b_ray.world.zoo:load_language_model",
    ("encoder", "open_clip"): "c2b_ray.models.open_clip_encoder:load",
    ("encoder", "world"): "c2b_ray.world.zoo:load_encoder",
    ("image_generator", "diffusers"): "c2b_ray.models.diffusers_generator:load",
    ("image_generator", "world"): "c2b_ray.world.zoo:load_image_generator",
    ("captioner", "open_clip"): "c2b_ray.models.zero_shot:load_captioner",
    ("captioner", "hf-vlm"): "c2b_ray.models.hf_vlm:load",
    ("captioner", "openai"): "c2b_ray.models.openai_api:load_captioner",
    ("captioner", "vllm"): "c2b_ray.models.vllm_captioner:load",
    ("captioner", "scripted"): "c2b_ray.models.scripted:load_captioner",
    ("captioner", "world"): "c2b_ray.world.zoo:load_captioner",
    ("classifier", "timm"): "c2b_ray.models.timm_classifier:load",
    ("classifier", "torchvision"): "c2b_ray.models.torchvision_classifier:load",
    ("classifier", "hf"): "c2b_ray.models.hf_classifier:load",
    ("classifier", "open_clip"): "c2b_ray.models.zero_shot:load_classifier",
    ("classifier", "http"): "c2b_ray.models.http_classifier:load",
    ("classifier", "https"): "c2b_ray.models.http_classifier:load",
    ("classifier", "onnx"): "c2b_ray.models.onnx_classifier:load",
    ("classifier", "table"): "c2b_ray.models.table_classifier:load",
    ("classifier", "in-memory"): "c2b_ray.models.memory_classifier:load",
    ("classifier", "world"): "c2b_ray.world.zoo:load_classifier",
    ("index", "faiss"): "c2b_ray.models.index.faiss_index:load",
    ("latent_generator", "vae"): "c2b_ray.models.latent_generators:load",
    ("latent_generator", "gan"): "c2b_ray.models.latent_generators:load",
    ("latent_generator", "style"): "c2b_ray.models.latent_generators:load",
    ("latent_generator", "diffusers"): "c2b_ray.models.diffusers_latents:load",
    ("latent_generator", "world"): "c2b_ray.world.zoo:load_latent_generator",
    ("sentence_encoder", "sentence-transformers"): "c2b_ray.models.sentence_encoder:load",
}

DESCRIBERS: dict[tuple[str, str], str] = {
    ("language_model", "vllm"): "c2b_ray.models.vllm_revision:describe_language_model",
    ("captioner", "vllm"): "c2b_ray.models.vllm_revision:describe",
}
"""What describes a model whose module in `CATALOG` imports a library that takes seconds. All others are described by a
function beside the one that loads them: `describe` for `load`."""


_OF_THE_HUB = ("hf", "hf-vlm")
SAME_SCHEMES = {
    "huggingface": _OF_THE_HUB,
    "hugging_face": _OF_THE_HUB,
    "transformers": _OF_THE_HUB,
    "openclip": ("open_clip",),
}
"""What people write for a scheme → what it may be called here, by role."""


@dataclass(frozen=True)
class Spec:
    """`timm:resnet50.a1_in1k?labels=names.txt` has scheme `timm`, name `resnet50.a1_in1k` and one option."""

    text: str
    scheme: str
    name: str
    options: dict[str, str] = field(default_factory=dict)

    def options_among(self, known: Collection[str]) -> dict[str, str]:
        """Returns the options after checking that all are known; SpecError names the first unknown one."""
        for option in self.options:
            if option not in known:
                raise SpecError(f"{self.text}: unknown option {option!r}; {nearest(option, known)}")
        return dict(self.options)


def parse(text: str) -> Spec:
    """Parses a spec. Raises SpecError where `text` has no scheme or no name. A URL keeps its query: `openai:` and
    `http:` have no options."""
    scheme, colon, name_and_query = text.partition(":")
    if not colon or not scheme or not name_and_query:
        raise SpecError(f"{text!r} is no model spec: {_meant(text)}")
    if scheme in ("openai", "http", "https"):
        return Spec(text, scheme, name_and_query)
    name, _, query = name_and_query.partition("?")
    if not name:
        raise SpecError(f"{text!r} names no model after {scheme!r}:")
    # A plus is itself, as in names of files, and no space as in forms.
    return Spec(text, scheme, name, dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)))


def _meant(text: str) -> str:
    """Returns what to write for a text without a scheme: by its ending, where it is a file's name."""
    path = text.strip(":")
    ending = path.lower().rpartition(".")[2]
    if ending == "onnx":
        return f"write onnx:{path}"
    if ending in ("csv", "parquet"):
        return f"write table:{path} for a table of predictions"
    if ending == "safetensors":
        return f"write timm:ARCHITECTURE?weights={path}, or torchvision:ARCHITECTURE?weights={path}"
    if ending in ("pt", "pth", "ckpt", "bin", "pkl"):
        return (
            "pickles, which run code when read, are refused: save it as ONNX (onnx:PATH), or its weights as "
            "safetensors (timm:ARCHITECTURE?weights=PATH)"
        )
    return "expected scheme:name, such as timm:resnet50.a1_in1k, hf:org/name or onnx:PATH"


def loader(role: str, spec: Spec) -> Callable[[Spec], Any]:
    """Imports and returns the loader of a role's scheme. SpecError offers the nearest schemes, or says what to
    install."""
    target = CATALOG.get((role, spec.scheme)) or third_parties().get((role, spec.scheme))
    if target is None:
        known_schemes = schemes().get(role, [])
        intended = next(
            (scheme for scheme in SAME_SCHEMES.get(spec.scheme.lower(), ()) if scheme in known_schemes), None
        )
        hint = f"write {intended}:{spec.text.partition(':')[2]}" if intended else nearest(spec.scheme, known_schemes)
        raise SpecError(f"{spec.text}: no {role} has the scheme {spec.scheme!r}; {hint}")
    return _imported(target, spec)


def _imported(target: str, spec: Spec) -> Callable[[Spec], Any]:
    module, _, name = target.partition(":")
    with needed_by(spec.text, SpecError):
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


@cache
def third_parties() -> dict[tuple[str, str], str]:
    """Returns the models of other packages, as `CATALOG` lists ours. Read once, because it reads the
    entry points of all installed packages."""
    result = {}
    for entry in entry_points(group=ENTRY_POINTS):
        role, _, scheme = entry.name.partition(".")
        result[role, scheme] = entry.value
    return result


def language_model(text: str) -> LanguageModel:
    return load("language_model", text)  # type: ignore[no-any-return]


def encoder(text: str) -> TextImageEncoder:
    return load("encoder", text)  # type: ignore[no-any-return]


def image_generator(text: str) -> ImageGenerator:
    return load("image_generator", text)  # type: ignore[no-any-return]


def captioner(text: str) -> Captioner:
    return load("captioner", text)  # type: ignore[no-any-return]


def classifier(text: str) -> Classifier:
    return load("classifier", text)  # type: ignore[no-any-return]


def latent_generator(text: str) -> LatentGenerator:
    return load("latent_generator", text)  # type: ignore[no-any-return]


def sentence_encoder(text: str) -> SentenceEncoder:
    return load("sentence_encoder", text)  # type: ignore[no-any-return]


def index(path: str) -> ImageIndex:
    """Opens an index directory, local or on an object store; `faiss:PATH` is the long form of the path."""
    return load("index", path)  # type: ignore[no-any-return]


def describe(role: str, text: str) -> Description | None:
    """Returns a model's description from its files or its service; None where the model has to be loaded for that.

    Raises the errors of loading that occur on the way; weights that do not fit their architecture are found only when
    they are loaded.
    """
    return describe_spec(role, _spec_of(role, text))


def describer(role: str, scheme: str) -> str | None:
    """Returns where the function is that describes such models without loading their weights; None for models of other
    packages, which are loaded.

    It takes a `Spec` and returns a `Description` equal to that of the loaded model, or None where only that knows.
    """
    loads = CATALOG.get((role, scheme), "")
    if not loads.startswith("c2b_ray."):
        return None
    return DESCRIBERS.get((role, scheme)) or loads.replace(":load", ":describe")


def describe_spec(role: str, spec: Spec) -> Description | None:
    target = describer(role, spec.scheme)
    if target is None:
        loader(role, spec)  # raises where no such model can be loaded
        return None
    return _imported(target, spec)(spec)  # type: ignore[no-any-return]


def described(role: str, text: str) -> Description:
    """Returns a model's description; loads the model where there is no other way."""
    return describe(role, text) or description_of(load(role, text))


def load(role: str, text: str) -> Any:
    """Loads the model of any role."""
    spec = _spec_of(role, text)
    return loader(role, spec)(spec)


def description_of(model: Any) -> Description:
    """Returns the description of a loaded model."""
    return Description(
        revision=model.revision,
        labels=tuple(getattr(model, "labels", ())),
        dimension=getattr(model, "dimension", 0),
        encoder=getattr(model, "encoder", ""),
        encoder_revision=getattr(model, "encoder_revision", ""),
        count=getattr(model, "count", None),
        shape=getattr(model, "shape", None),
        takes_files=isinstance(model, FileClassifier | FileCaptioner | FileEncoder),
        head=getattr(model, "head", "softmax"),
        facts=tuple(getattr(model, "facts", ())),
    )


def _spec_of(role: str, text: str) -> Spec:
    """Parses a spec; an index may also be a plain path."""
    if role == "index" and not text.startswith("faiss:"):
        return Spec(text, "faiss", text)
    return parse(text)


def schemes() -> dict[str, list[str]]:
    """Returns the schemes of each role, including those of third parties."""
    pairs = {*CATALOG, *third_parties()}
    return {role: sorted(s for r, s in pairs if r == role) for role in dict.fromkeys(role for role, _ in CATALOG)}
