"""The shipped models of the world by name, through the very loaders that production weights use.

    world:clip              the encoder
    world:lm                the language model
    world:resnet-planted-3  a classifier; `names("classifier")` lists them all

Knows where shipped weights lie; does not know how a model is built, trained or run. Options of a spec (device, batch)
are passed on to the loader.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import Classifier, LanguageModel, TextImageEncoder
from c2b_ray.world.planting import ZOO, Member
from c2b_ray.world.scenes import CLASSES

__all__ = ["WEIGHTS", "ZOO", "Member", "load_classifier", "load_encoder", "load_language_model", "names"]

WEIGHTS = Path(__file__).parent / "weights"

_OF_ROLE: dict[str, tuple[str, ...]] = {"classifier": tuple(ZOO), "encoder": ("clip",), "language_model": ("lm",)}


def names(role: str | None = None) -> list[str]:
    """The names after `world:` of one role (`classifier`, `encoder`, `language_model`), or of all."""
    return [name for known, group in _OF_ROLE.items() if role in (None, known) for name in group]


def load_classifier(spec: Spec) -> Classifier:
    """The classifier of `world:NAME`; `world:clip` answers zero-shot, among the world's classes or the spec's `labels`.

    SpecError where none has the name.
    """
    if spec.name == "clip":
        from c2b_ray.models import zero_shot

        inner = _inner(spec, "encoder", "open_clip", "local-dir:")
        return zero_shot.load(replace(inner, options={"labels": ",".join(CLASSES), **inner.options}))
    from c2b_ray.models import timm_classifier  # loads torch and timm, only when asked

    return timm_classifier.load(_inner(spec, "classifier", "timm", "local-dir:"))


def load_encoder(spec: Spec) -> TextImageEncoder:
    """The encoder of `world:clip`; SpecError for another name."""
    from c2b_ray.models import open_clip_encoder

    return open_clip_encoder.load(_inner(spec, "encoder", "open_clip", "local-dir:"))


def load_language_model(spec: Spec) -> LanguageModel:
    """The language model of `world:lm`; SpecError for another name."""
    from c2b_ray.models import transformers_lm

    return transformers_lm.load(_inner(spec, "language_model", "hf", ""))


def _inner(spec: Spec, role: str, scheme: str, prefix: str) -> Spec:
    """The production spec that a world spec stands for, with its options."""
    if spec.name not in _OF_ROLE[role]:
        elsewhere = [known for known, group in _OF_ROLE.items() if spec.name in group]
        hint = f"its role is {elsewhere[0]}" if elsewhere else nearest(spec.name, _OF_ROLE[role])
        raise SpecError(f"{spec.text}: the world has no {role.replace('_', ' ')} {spec.name!r}; {hint}")
    directory = WEIGHTS / spec.name
    if not (directory / "config.json").is_file() and not (directory / "open_clip_config.json").is_file():
        raise WeightsError(f"{spec.text}: no weights in {directory}; train them: c2b world train --out {WEIGHTS}")
    name = f"{prefix}{directory}"
    return replace(spec, text=f"{scheme}:{name}", scheme=scheme, name=name)
