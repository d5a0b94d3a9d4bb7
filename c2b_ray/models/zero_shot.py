"""A text-image encoder as a classifier that chooses the label whose captions are nearest to the image.

    open_clip:ViT-B-32/laion2b_s34b_b79k?labels=names.txt
    open_clip:local-dir:PATH?labels=bus,boat&template=a photo of a {}.|a drawing of a {}.

Options: labels (a file of names, or names with commas between), template (with {} for the label; several with |
between, whose embeddings are averaged: Radford et al. 2021, section 3.1.4), temperature (by default the encoder's own
`logit_scale`, 100 for most CLIP models), and those of the encoder.

The probability of a label is the softmax, over the labels, of temperature × cosine, as in CLIP. Models trained with a
sigmoid (SigLIP) add one bias to all logits, which cancels in the softmax; their scale does not.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from c2b_ray.errors import SpecError
from c2b_ray.models import open_clip_encoder
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import numbers, read_labels
from c2b_ray.models.spec_tables import label_fact
from c2b_ray.models.torch_runtime import of_device, with_precision
from c2b_ray.names import repeated_names, without_invisible
from c2b_ray.roles import Blocks, Description, Floats, ModelFact, Pixels, Shape, ShapedEncoder, TextImageEncoder
from c2b_ray.tables import content_id

TEMPLATE = "a photo of a {}."
TEMPERATURE = 100.0
_ROUNDING = 0.1
_ZERO_SHOT_OPTIONS = ("labels", "template", "temperature")


class ZeroShotClassifier:
    """Cosine similarities to each label's mean embedding, times `temperature`; implements `roles.Classifier`."""

    def __init__(
        self,
        encoder: TextImageEncoder,
        labels: Sequence[str],
        templates: Sequence[str],
        temperature: float,
        facts: tuple[ModelFact, ...] = (),
    ) -> None:
        self.facts = facts
        self._encoder, self.labels, self._temperature = encoder, tuple(labels), temperature
        self.revision = _revision(encoder.revision, labels, templates, temperature)
        texts = encoder.encode_texts([template.format(label) for label in labels for template in templates])
        means = texts.reshape(len(self.labels), len(templates), -1).mean(axis=1)
        self._anchors: Floats = means.astype(np.float32) / np.linalg.norm(means, axis=1, keepdims=True)

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Returns logits, float32 (images, labels). `keys` are ignored."""
        similarities = self._encoder.encode_images(images) @ self._anchors.T
        return (self._temperature * similarities).astype(np.float32)

    @property
    def shape(self) -> Shape | None:
        """The encoder's."""
        return self._encoder.shape if isinstance(self._encoder, ShapedEncoder) else None

    def logits_of_shaped(self, images: Blocks) -> Floats:
        """Returns `logits` of pictures prepared by `shape`, uint8 (images, height, width, 3)."""
        assert isinstance(self._encoder, ShapedEncoder)
        similarities = self._encoder.embeddings_of_shaped(images) @ self._anchors.T
        return (self._temperature * similarities).astype(np.float32)


def load(spec: Spec) -> ZeroShotClassifier:
    """Loads the classifier of an encoder's spec with `labels`. Raises SpecError for no labels, one label, or a template
    without {}."""
    settings, inner = _settings(spec)
    encoder = open_clip_encoder.load(inner)
    temperature = _temperature(settings, encoder.logit_scale)
    facts = _facts(spec, settings, temperature, encoder.facts)
    return ZeroShotClassifier(encoder, settings.labels, settings.templates, temperature, facts)


def describe(spec: Spec) -> Description:
    """Returns the description from the encoder's files."""
    settings, inner = _settings(spec)
    encoder, scale = open_clip_encoder.describe_scaled(inner)
    temperature = _temperature(settings, scale)
    revision = _revision(encoder.revision, settings.labels, settings.templates, temperature)
    facts = _facts(spec, settings, temperature, encoder.facts)
    return Description(revision, settings.labels, of_device=of_device(spec), shape=encoder.shape, facts=facts)


@dataclass(frozen=True)
class _Settings:
    """Settings of a spec; `temperature` None stands for the encoder's own."""

    labels: tuple[str, ...]
    templates: list[str]
    temperature: float | None


def _temperature(settings: _Settings, scale: float) -> float:
    """Returns the factor on cosines: the spec's, else the encoder's, of which 100 is stored with a rounding error."""
    if settings.temperature is not None:
        return settings.temperature
    return TEMPERATURE if abs(scale - TEMPERATURE) < _ROUNDING else scale


def _facts(
    spec: Spec, settings: _Settings, temperature: float, encoder: tuple[ModelFact, ...]
) -> tuple[ModelFact, ...]:
    source = (
        f"?temperature={spec.options['temperature']}" if "temperature" in spec.options else "the model's logit_scale"
    )
    templates = "; ".join(repr(template) for template in settings.templates)
    template_source = "?template=" if "template" in spec.options else "default"
    return (
        *encoder,
        label_fact(spec, settings.labels, None),
        ModelFact("prompts", templates, template_source, option="template"),
        ModelFact("temperature", f"{temperature:.6g}", source, option="temperature"),
    )


def _revision(encoder: str, labels: Sequence[str], templates: Sequence[str], temperature: float) -> str:
    return content_id("zero_shot", encoder, list(labels), list(templates), temperature)


def _settings(spec: Spec) -> tuple[_Settings, Spec]:
    """Returns the spec's settings of labels and templates, and the encoder's spec."""
    options = {name: spec.options[name] for name in _ZERO_SHOT_OPTIONS if name in spec.options}
    labels = _labels(spec, options.get("labels"))
    templates = options.get("template", TEMPLATE).split("|")
    for template in templates:
        if template.count("{}") != 1 or template.replace("{}", "").count("{") + template.replace("{}", "").count("}"):
            raise SpecError(f"{spec.text}: template={template!r} must hold {{}} once, where the label goes")
    temperatures = numbers(spec, "temperature")
    temperature = temperatures[0] if temperatures else None
    if temperature is not None and temperature <= 0:
        raise SpecError(f"{spec.text}: temperature={temperature} is not above 0")
    inner = replace(spec, options={k: v for k, v in spec.options.items() if k not in _ZERO_SHOT_OPTIONS})
    return _Settings(labels, templates, temperature), with_precision(inner)


def _labels(spec: Spec, option: str | None) -> tuple[str, ...]:
    if not option:
        raise SpecError(f"{spec.text}: an encoder classifies among labels=NAMES.txt or labels=bus,boat; give them")
    labels = read_labels(option) if Path(option).is_file() else tuple(name.strip() for name in option.split(","))
    labels = tuple(unicodedata.normalize("NFC", without_invisible(label)) for label in labels)
    if not all(labels):
        empty = f"name {labels.index('') + 1} of {len(labels)} is empty"
        raise SpecError(f"{spec.text}: labels={option!r}: {empty}; remove it")
    if len(labels) < 2:
        raise SpecError(f"{spec.text}: labels={option!r} is one name; give two or more")
    if repeated := repeated_names(labels):
        numbers_of = (" and ".join(str(i + 1) for i in places) for places in repeated)
        same = [f"{labels[places[0]]!r} ({number})" for places, number in zip(repeated, numbers_of, strict=True)]
        raise SpecError(
            f"{spec.text}: labels={option!r} has a name more than once: {', '.join(same[:5])}. Their captions are one, "
            "so that nothing tells their images apart; give each a name of its own, such as 'crane bird', 'crane truck'"
        )
    return labels
