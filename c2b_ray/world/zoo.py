"""Loads the world's shipped models by name, through the very loaders that production weights use.

    world:clip              an encoder; also a captioner, which describes a picture as the world's captions do
    world:clip-09           an encoder with a planted bias, or without one (`clip_zoo_members`)
    world:lm                the language model
    world:renderer          the image generator that is always right: it reads a prompt and renders it
    world:diffusion         the trained image generator
    world:linked            the generator with planted associations, without a model (`linked`)
    world:hidden            a diffusion model with hidden associations; world:hidden-control is trained without
    world:hidden-lora       world:hidden, debiased by an adapter
    world:prompter          the language model that writes prompts; world:reader judges how natural a prompt is
    world:resnet-planted-3  a classifier; `names("classifier")` lists them all
    world:latent-sprites-vae, world:latent-sprites-x-colour  a small generator, and a classifier of its pictures

The wheel has the weights that README, guides and commands name; the repository has all of them. Knows where weights
lie; does not know how a model is built, trained or run. Options of a spec (device, batch) are passed on to the loader.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.extras import needed_by
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import (
    Captioner,
    Classifier,
    Description,
    ImageGenerator,
    LanguageModel,
    LatentGenerator,
    TextImageEncoder,
)
from c2b_ray.world import latent_names as latent
from c2b_ray.world.captions import PHRASES
from c2b_ray.world.clip_zoo_members import MEMBERS
from c2b_ray.world.planting import ZOO, ZooClassifier
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES

if TYPE_CHECKING:
    from c2b_ray.models.training import Trainable

__all__ = [
    "GENERATION",
    "HIDDEN_GENERATION",
    "WEIGHTS",
    "ZOO",
    "ZooClassifier",
    "load_captioner",
    "load_classifier",
    "load_encoder",
    "load_image_generator",
    "load_language_model",
    "load_latent_generator",
    "names",
]

WEIGHTS = Path(__file__).parent / "weights"

GENERATION = "steps=25&guidance=3"
"""The default settings of world:diffusion."""
HIDDEN_GENERATION = "steps=12&guidance=1"
"""The default settings of generators with hidden associations: guidance would exaggerate what they have learned."""
DIFFERENTIATED = "steps=6&guidance=3"
"""The default settings where the noise is a latent space: gradients pass through every step."""

_HIDDEN = ("hidden", "hidden-control", "hidden-lora")
_ADAPTED = {"hidden-lora": "hidden"}
"""Names of adapters, each with the name of the generator that it adapts."""
_OF_ROLE: dict[str, tuple[str, ...]] = {
    "captioner": ("clip",),
    "classifier": (*ZOO, *latent.CLASSIFIERS, *latent.READERS),
    "encoder": ("clip", *MEMBERS),
    "image_generator": ("renderer", "linked", "diffusion", *_HIDDEN),
    "language_model": ("lm", "prompter", "reader"),
    "latent_generator": ("diffusion", *latent.GENERATORS),
}
_WITHOUT_WEIGHTS = ("renderer", "linked")
_MARKS = (
    "config.json",
    "open_clip_config.json",
    "model_index.json",
    "adapter_config.json",
)  # every model's directory holds one of them


def names(role: str | None = None) -> list[str]:
    """Lists the names after `world:` that can be loaded, of one role (`classifier`, `image_generator`, …), or
    of all."""
    result = (
        name for known, group in _OF_ROLE.items() if role in (None, known) for name in group if _is_installed(name)
    )
    return list(dict.fromkeys(result))


def has(name: str) -> bool:
    """Tells whether the name is one of `names()`, without reading every other model's directory."""
    return any(name in group for group in _OF_ROLE.values()) and _is_installed(name)


def load_classifier(spec: Spec) -> Classifier:
    """Loads the classifier of `world:NAME`; `world:clip` classifies zero-shot, among the world's classes or the spec's
    `labels`.

    SpecError for an unknown name.
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
    """Returns a classifier of the zoo in a form that can be trained; SpecError for any other."""
    from c2b_ray.models import timm_classifier

    return timm_classifier.trainable(_inner(spec, "classifier", "timm", "local-dir:"))


def _zero_shot(spec: Spec) -> Spec:
    inner = _inner(spec, "encoder", "open_clip", "local-dir:")
    # A fixed temperature: runs of the world's encoder, whose own scale is 20, resume with the numbers they began with.
    return replace(inner, options={"labels": ",".join(CLASSES), "temperature": "100", **inner.options})


def load_captioner(spec: Spec) -> Captioner:
    """Loads the captioner of `world:clip`, which names the world's attributes; SpecError for another name."""
    from c2b_ray.models import clip_captioner

    return clip_captioner.load(_inner(spec, "captioner", "open_clip", "local-dir:"), _vocabulary())


def describe_captioner(spec: Spec) -> Description | None:
    from c2b_ray.models import clip_captioner

    return clip_captioner.describe(_inner(spec, "captioner", "open_clip", "local-dir:"), _vocabulary())


def _vocabulary() -> dict[str, list[str]]:
    return {name: [PHRASES[name][value][0] for value in values] for name, values in ATTRIBUTES.items()}


def load_encoder(spec: Spec) -> TextImageEncoder:
    """Loads the encoder of `world:clip` or of a model of its zoo; SpecError for another name."""
    from c2b_ray.models import open_clip_encoder

    return open_clip_encoder.load(_inner(spec, "encoder", "open_clip", "local-dir:"))


def describe_encoder(spec: Spec) -> Description:
    from c2b_ray.models import open_clip_encoder

    return open_clip_encoder.describe(_inner(spec, "encoder", "open_clip", "local-dir:"))


def load_language_model(spec: Spec) -> LanguageModel:
    """Loads the language model of `world:lm`, `world:prompter` or `world:reader`; SpecError for another name."""
    from c2b_ray.models import transformers_lm

    return transformers_lm.load(_inner(spec, "language_model", "hf", ""))


def describe_language_model(spec: Spec) -> Description | None:
    from c2b_ray.models import transformers_lm

    return transformers_lm.describe(_inner(spec, "language_model", "hf", ""))


def load_image_generator(spec: Spec) -> ImageGenerator:
    """Loads the generator of `world:renderer`, `world:linked` or a diffusion model; SpecError for another name."""
    if (drawing := _without_weights(spec)) is not None:
        return drawing
    with needed_by(spec.text, SpecError):
        from c2b_ray.models import diffusers_generator
    return diffusers_generator.load(_diffusion(spec))


def describe_image_generator(spec: Spec) -> Description:
    if (drawing := _without_weights(spec)) is not None:
        return Description(drawing.revision)
    with needed_by(spec.text, SpecError):
        from c2b_ray.models import diffusers_generator
    return diffusers_generator.describe(_diffusion(spec))


def _without_weights(spec: Spec) -> ImageGenerator | None:
    """Returns a generator without weights; None where the name has weights."""
    if spec.name == "renderer":
        from c2b_ray.world import renderer

        return renderer.load(spec)
    if spec.name == "linked":
        from c2b_ray.world import linked

        return linked.load(spec)
    return None


def load_latent_generator(spec: Spec) -> LatentGenerator:
    """Loads a latent space: the noise of `world:diffusion?prompt=…`, or that of one of the world's small generators."""
    if spec.name == "diffusion":
        from c2b_ray.models import diffusers_latents

        return diffusers_latents.load(_diffusion_latents(spec))
    from c2b_ray.models import latent_generators

    return latent_generators.load(_inner(spec, "latent_generator", "world", "local-dir:"))


def describe_latent_generator(spec: Spec) -> Description | None:
    if spec.name == "diffusion":
        from c2b_ray.models import diffusers_latents

        return diffusers_latents.describe(_diffusion_latents(spec))
    from c2b_ray.models import latent_generators

    return latent_generators.describe(_inner(spec, "latent_generator", "world", "local-dir:"))


def _diffusion_latents(spec: Spec) -> Spec:
    inner = _inner(spec, "latent_generator", "diffusers", "local-dir:")
    return replace(inner, options={**dict(parse_qsl(DIFFERENTIATED)), **inner.options})


def _diffusion(spec: Spec) -> Spec:
    adapter = _inner(spec, "image_generator", "diffusers", "local-dir:")
    settings = dict(parse_qsl(HIDDEN_GENERATION if spec.name in _HIDDEN else GENERATION))
    base = _ADAPTED.get(spec.name)
    if base is None:
        return replace(adapter, options={**settings, **adapter.options})
    inner = _inner(replace(spec, name=base), "image_generator", "diffusers", "local-dir:")
    return replace(inner, options={**settings, "lora": str(WEIGHTS / spec.name), **adapter.options})


def _is_installed(name: str) -> bool:
    return name in _WITHOUT_WEIGHTS or any((WEIGHTS / name / mark).is_file() for mark in _MARKS)


def _inner(spec: Spec, role: str, scheme: str, prefix: str) -> Spec:
    """Returns the production spec that a world spec stands for, with its options."""
    if spec.name not in _OF_ROLE[role]:
        elsewhere = [known for known, group in _OF_ROLE.items() if spec.name in group]
        hint = f"its role is {elsewhere[0]}" if elsewhere else nearest(spec.name, _OF_ROLE[role])
        raise SpecError(f"{spec.text}: the world has no {role.replace('_', ' ')} {spec.name!r}; {hint}")
    directory = WEIGHTS / spec.name
    if not _is_installed(spec.name):
        raise WeightsError(
            f"{spec.text}: the installed package leaves these weights out; they are in c2b-ray's repository, in "
            f"c2b_ray/world/weights/{spec.name}: copy that folder to {directory}, or run c2b in a checkout"
        )
    name = f"{prefix}{directory}"
    return replace(spec, text=f"{scheme}:{name}", scheme=scheme, name=name)
