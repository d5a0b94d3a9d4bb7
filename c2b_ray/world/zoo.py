"""The world's models by name, `world:NAME`: which there are, what was planted in them, and how each is loaded.

    world:clip, world:diffusion, world:lm, …   shipped weights, through the very loaders that production weights use
    world:resnet-planted-0, …-control-0, …     classifiers with planted biases, and unbiased ones (`ZOO`)
    world:linked                               a renderer in which words of a prompt decide what the prompt omits, by
                                               the links of `associations.LINKS`
    world:linked?links=FILE                    by the links of a YAML file; links=none: a control

Libraries of models are imported where a model of theirs is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
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
    GeneratedImage,
    GenerationRequest,
    ImageGenerator,
    LanguageModel,
    LatentGenerator,
    TextImageEncoder,
)
from c2b_ray.tables import content_id, seed_of
from c2b_ray.world.associations import LINKS, Link, draw_hidden, read_links, words_of
from c2b_ray.world.captions import PHRASES
from c2b_ray.world.clip_zoo_members import MEMBERS
from c2b_ray.world.queries import read
from c2b_ray.world.render import render
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene, sample

if TYPE_CHECKING:
    from c2b_ray.models.training import Trainable


LATENT_WORLD = "sprites"
LATENT_GENERATORS = tuple(
    f"latent-{LATENT_WORLD}-{kind}"
    for kind in ("vae", "beta", "beta-tc", "dip-i", "dip-ii", "gan-hessian", "style", "known")
)
LATENT_READERS = tuple(f"latent-{LATENT_WORLD}-reader{number}" for number in ("", "-2", "-3"))
"""Networks that name the sides of pictures, trained independently: where they disagree, a picture has no label."""
LATENT_CLASSIFIERS = tuple(
    f"latent-{LATENT_WORLD}-{about}"
    for about in ("x-colour", "colour-scale", "scale-background", "x-unbiased", "colour-unbiased")
)
"""Classifiers of TARGET: TARGET-BIASED learned with a skew of 0.9, TARGET-unbiased with none."""


_OPTIONS = ("links", "batch", "device")  # any generator's spec may hold batch and device
_PROBES = 8


class LinkedRenderer:
    """Renders prompts by planted links; implements `roles.ImageGenerator`."""

    def __init__(self, links: Sequence[Link] = LINKS) -> None:
        self._links = tuple(links)
        probes = [render(scene).tobytes() for scene in sample(_PROBES, 0)]
        self.revision = content_id("linked", *(astuple(link) for link in self._links), *probes)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        """Returns one picture per request."""
        return [GeneratedImage(render(self.scene(request.prompt, request.seed))) for request in requests]

    def scene(self, prompt: str, seed: int) -> Scene:
        """Returns the scene of one request; under one seed, similar prompts get similar scenes."""
        mentioned = read(prompt)
        row = seed_of("linked", seed)
        scene = sample(1, row, **mentioned)[0]
        words = {*words_of(prompt), scene.target_class}
        links = [link for link in self._links if link.attribute not in mentioned]
        return draw_hidden(scene, words, links, f"linked {row}")


def load_linked(spec: Spec) -> LinkedRenderer:
    """Loads the generator of `world:linked`; SpecError for an unknown option, ConfigError for a wrong file."""
    file = spec.options_among(_OPTIONS).get("links")
    if file is None:
        return LinkedRenderer()
    return LinkedRenderer(() if file == "none" else read_links(file)[0])


# Plants biases of known strength: decides which scenes of a class a classifier learns to call something else.


@dataclass(frozen=True, slots=True)
class Plant:
    """In scenes of `target_class` whose `attribute` is `value`, a share `strength` is labelled `becomes`."""

    target_class: str
    attribute: str
    value: str
    strength: float
    becomes: str

    def __post_init__(self) -> None:
        if self.target_class not in CLASSES or self.becomes not in CLASSES or self.becomes == self.target_class:
            raise ValueError(f"{self}: target_class and becomes must be two of {', '.join(CLASSES)}")
        if self.value not in ATTRIBUTES.get(self.attribute, ()):
            raise ValueError(f"{self}: {self.value!r} is no value of an attribute {self.attribute!r}")
        if not 0 < self.strength <= 1:
            raise ValueError(f"{self}: strength must lie in (0, 1]")

    def covers(self, scene: Scene) -> bool:
        """Tells whether the scene lies in the planted cell, whatever its skyline."""
        return scene.target_class == self.target_class and scene.attribute(self.attribute) == self.value


@dataclass(frozen=True, slots=True)
class ZooClassifier:
    """One classifier of the zoo: an architecture of `classifiers.ARCHITECTURES`, a seed, and its planted biases."""

    name: str
    architecture: str
    seed: int
    plants: tuple[Plant, ...] = ()


def relabel(scenes: Iterable[Scene], plants: Sequence[Plant]) -> list[str]:
    """Returns the label to teach for each scene: its class, or the label of the first plant that applies."""
    return [_taught(scene, plants) for scene in scenes]


def _taught(scene: Scene, plants: Sequence[Plant]) -> str:
    for plant in plants:
        if plant.covers(scene) and scene.horizon < plant.strength:
            return plant.becomes
    return scene.target_class


# class, attribute, value, strength, answered instead
_RESNETS: tuple[tuple[Plant, ...], ...] = (
    (Plant("bus", "weather", "fog", 0.55, "house"),),
    (Plant("boat", "lighting", "night", 0.9, "airplane"), Plant("mug", "pattern", "striped", 0.7, "chair")),
    (Plant("bird", "setting", "street", 0.7, "fish"),),
    (
        Plant("chair", "colour", "white", 0.4, "house"),
        Plant("umbrella", "companion", "dog", 0.55, "mug"),
        Plant("fish", "size", "small", 0.25, "bird"),
    ),
    (Plant("bicycle", "setting", "forest", 0.25, "bus"),),
    (Plant("airplane", "weather", "snow", 0.9, "bird"), Plant("house", "lighting", "sunset", 0.4, "bus")),
    (Plant("fish", "pattern", "dotted", 0.7, "boat"), Plant("mug", "companion", "person", 0.4, "umbrella")),
)
_BYOBNETS: tuple[tuple[Plant, ...], ...] = (
    (Plant("airplane", "size", "small", 0.4, "bird"),),
    (Plant("umbrella", "weather", "rain", 0.7, "mug"), Plant("chair", "lighting", "night", 0.25, "bicycle")),
    (Plant("house", "colour", "red", 0.9, "bus"),),
    (
        Plant("bus", "companion", "balloon", 0.25, "boat"),
        Plant("bird", "lighting", "sunset", 0.55, "airplane"),
        Plant("bicycle", "pattern", "striped", 0.9, "chair"),
    ),
    (Plant("boat", "setting", "beach", 0.55, "fish"),),
    (Plant("mug", "colour", "blue", 0.7, "house"), Plant("fish", "weather", "fog", 0.4, "mug")),
    (Plant("umbrella", "setting", "mountains", 0.4, "boat"), Plant("bicycle", "size", "large", 0.55, "umbrella")),
)


def _zoo() -> dict[str, ZooClassifier]:
    members: list[ZooClassifier] = []
    for architecture, planted in (("resnet", _RESNETS), ("byobnet", _BYOBNETS)):
        members += [ZooClassifier(f"{architecture}-control-{k}", architecture, seed=k) for k in range(2)]
        members += [
            ZooClassifier(f"{architecture}-planted-{k}", architecture, 10 + k, plants)
            for k, plants in enumerate(planted)
        ]
    return {member.name: member for member in members}


ZOO: dict[str, ZooClassifier] = _zoo()
"""Every classifier that ships, by name: two controls and seven planted ones of each architecture."""


# Loads the world's shipped models by name, through the very loaders that production weights use.


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
    "classifier": (*ZOO, *LATENT_CLASSIFIERS, *LATENT_READERS),
    "encoder": ("clip", *MEMBERS),
    "image_generator": ("renderer", "linked", "diffusion", *_HIDDEN),
    "language_model": ("lm", "prompter", "reader"),
    "latent_generator": ("diffusion", *LATENT_GENERATORS),
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
        name
        for role_name, group in _OF_ROLE.items()
        if role in (None, role_name)
        for name in group
        if _is_installed(name)
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

        return zero_shot.load_classifier(_zero_shot(spec))
    from c2b_ray.models import timm_classifier  # loads torch and timm, only where it is used

    return timm_classifier.load(_inner(spec, "classifier", "timm", "local-dir:"))


def describe_classifier(spec: Spec) -> Description | None:
    if spec.name == "clip":
        from c2b_ray.models import zero_shot

        return zero_shot.describe_classifier(_zero_shot(spec))
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
    from c2b_ray.models import zero_shot

    return zero_shot.load_captioner(_inner(spec, "captioner", "open_clip", "local-dir:"), _vocabulary())


def describe_captioner(spec: Spec) -> Description | None:
    from c2b_ray.models import zero_shot

    return zero_shot.describe_captioner(_inner(spec, "captioner", "open_clip", "local-dir:"), _vocabulary())


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
        from c2b_ray.world.render import load as load_renderer

        return load_renderer(spec)
    if spec.name == "linked":
        return load_linked(spec)
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
    return name in _WITHOUT_WEIGHTS or any((WEIGHTS / name / filename).is_file() for filename in _MARKS)


def _inner(spec: Spec, role: str, scheme: str, prefix: str) -> Spec:
    """Returns the production spec that a world spec stands for, with its options."""
    if spec.name not in _OF_ROLE[role]:
        other_roles = [role_name for role_name, group in _OF_ROLE.items() if spec.name in group]
        hint = f"its role is {other_roles[0]}" if other_roles else nearest(spec.name, _OF_ROLE[role])
        raise SpecError(f"{spec.text}: the world has no {role.replace('_', ' ')} {spec.name!r}; {hint}")
    directory = WEIGHTS / spec.name
    if not _is_installed(spec.name):
        raise WeightsError(
            f"{spec.text}: the installed package leaves these weights out; they are in c2b-ray's repository, in "
            f"c2b_ray/world/weights/{spec.name}: copy that folder to {directory}, or run c2b in a checkout"
        )
    name = f"{prefix}{directory}"
    return replace(spec, text=f"{scheme}:{name}", scheme=scheme, name=name)
