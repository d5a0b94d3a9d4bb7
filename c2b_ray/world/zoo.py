"""The shipped models of the world by name, through the very loaders that production weights use.

    world:clip              the encoder, and the captioner: it says of a picture what the world's captions would
    world:lm                the language model
    world:renderer          the image generator that is always right: it reads a prompt and renders it
    world:diffusion         the image generator that has learned to
    world:resnet-planted-3  a classifier; `names("classifier")` lists them all

Knows where shipped weights lie; does not know how a model is built, trained or run. Options of a spec (device, batch)
are passed on to the loader.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.extras import needed_by
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import Captioner, Classifier, Description, ImageGenerator, LanguageModel, TextImageEncoder
from c2b_ray.world.captions import PHRASES
from c2b_ray.world.planting import ZOO, Member
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES

if TYPE_CHECKING:
    from c2b_ray.models.trainable import Trainable

__all__ = [
    "GENERATION",
    "WEIGHTS",
    "ZOO",
    "Member",
    "load_captioner",
    "load_classifier",
    "load_encoder",
    "load_image_generator",
    "load_language_model",
    "names",
]

WEIGHTS = Path(__file__).parent / "weights"

GENERATION = "steps=25&guidance=3"
"""The settings that world:diffusion has where a spec says nothing else."""

_OF_ROLE: dict[str, tuple[str, ...]] = {
    "captioner": ("clip",),
    "classifier": tuple(ZOO),
    "encoder": ("clip",),
    "image_generator": ("renderer", "diffusion"),
    "language_model": ("lm",),
}
_WITHOUT_WEIGHTS = ("renderer",)
_MARKS = ("config.json", "open_clip_config.json", "model_index.json")  # one of them lies in every model's directory


def names(role: str | None = None) -> list[str]:
    """The names after `world:` that can be loaded, of one role (`classifier`, `image_generator`, …), or of all."""
    result = (name for known, group in _OF_ROLE.items() if role in (None, known) for name in group if _at_hand(name))
    return list(dict.fromkeys(result))


def load_classifier(spec: Spec) -> Classifier:
    """The classifier of `world:NAME`; `world:clip` answers zero-shot, among the world's classes or the spec's `labels`.

    SpecError where none has the name.
    """
    if spec.name == "clip":
        from c2b_ray.models import zero_shot

        return zero_shot.load(_zero_shot(spec))
    from c2b_ray.models import timm_classifier  # loads torch and timm, only where it is used

    return timm_classifier.load(_inner(spec, "classifier", "timm", "local-dir:"))


def describe_classifier(spec: Spec) -> Description | None:
    if spec.name == "clip":
        from c2b_ray.models import zero_shot

        return zero_shot.describe(_zero_shot(spec))
    from c2b_ray.models import timm_classifier

    return timm_classifier.describe(_inner(spec, "classifier", "timm", "local-dir:"))


def trainable(spec: Spec) -> Trainable:
    """A classifier of the zoo, for training; SpecError for one that is none of its own."""
    from c2b_ray.models import timm_classifier

    return timm_classifier.trainable(_inner(spec, "classifier", "timm", "local-dir:"))


def _zero_shot(spec: Spec) -> Spec:
    inner = _inner(spec, "encoder", "open_clip", "local-dir:")
    return replace(inner, options={"labels": ",".join(CLASSES), **inner.options})


def load_captioner(spec: Spec) -> Captioner:
    """The captioner of `world:clip`, which speaks of the world's attributes; SpecError for another name."""
    from c2b_ray.models import clip_captioner

    return clip_captioner.load(_inner(spec, "captioner", "open_clip", "local-dir:"), _vocabulary())


def describe_captioner(spec: Spec) -> Description | None:
    from c2b_ray.models import clip_captioner

    return clip_captioner.describe(_inner(spec, "captioner", "open_clip", "local-dir:"), _vocabulary())


def _vocabulary() -> dict[str, list[str]]:
    return {name: [PHRASES[name][value][0] for value in values] for name, values in ATTRIBUTES.items()}


def load_encoder(spec: Spec) -> TextImageEncoder:
    """The encoder of `world:clip`; SpecError for another name."""
    from c2b_ray.models import open_clip_encoder

    return open_clip_encoder.load(_inner(spec, "encoder", "open_clip", "local-dir:"))


def describe_encoder(spec: Spec) -> Description:
    from c2b_ray.models import open_clip_encoder

    return open_clip_encoder.describe(_inner(spec, "encoder", "open_clip", "local-dir:"))


def load_language_model(spec: Spec) -> LanguageModel:
    """The language model of `world:lm`; SpecError for another name."""
    from c2b_ray.models import transformers_lm

    return transformers_lm.load(_inner(spec, "language_model", "hf", ""))


def load_image_generator(spec: Spec) -> ImageGenerator:
    """The generator of `world:renderer` or `world:diffusion`; SpecError for another name."""
    if spec.name == "renderer":
        from c2b_ray.world import renderer

        return renderer.load(spec)
    with needed_by(spec.text, SpecError):
        from c2b_ray.models import diffusers_generator
    return diffusers_generator.load(_diffusion(spec))


def describe_image_generator(spec: Spec) -> Description:
    if spec.name == "renderer":
        from c2b_ray.world import renderer

        return Description(renderer.load(spec).revision)
    with needed_by(spec.text, SpecError):
        from c2b_ray.models import diffusers_generator
    return diffusers_generator.describe(_diffusion(spec))


def _diffusion(spec: Spec) -> Spec:
    inner = _inner(spec, "image_generator", "diffusers", "local-dir:")
    return replace(inner, options={**dict(parse_qsl(GENERATION)), **inner.options})


def _at_hand(name: str) -> bool:
    return name in _WITHOUT_WEIGHTS or any((WEIGHTS / name / mark).is_file() for mark in _MARKS)


def _inner(spec: Spec, role: str, scheme: str, prefix: str) -> Spec:
    """The production spec that a world spec stands for, with its options."""
    if spec.name not in _OF_ROLE[role]:
        elsewhere = [known for known, group in _OF_ROLE.items() if spec.name in group]
        hint = f"its role is {elsewhere[0]}" if elsewhere else nearest(spec.name, _OF_ROLE[role])
        raise SpecError(f"{spec.text}: the world has no {role.replace('_', ' ')} {spec.name!r}; {hint}")
    directory = WEIGHTS / spec.name
    if not _at_hand(spec.name):
        raise WeightsError(f"{spec.text}: no weights in {directory}; train them: c2b world train --out {WEIGHTS}")
    name = f"{prefix}{directory}"
    return replace(spec, text=f"{scheme}:{name}", scheme=scheme, name=name)
