"""Checks a search before any model loads: that specs and tables exist, and that classifiers have gradients.

`check_gradients` reads no file and imports no library of models, so that the endpoint can call it when a config is
submitted. A label is checked here where the classifier's labels are known without loading it, otherwise when the run
begins.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path

from c2b_ray.audits.kit.specs import check_specs, named_models
from c2b_ray.config.latent import LatentConfig, Method
from c2b_ray.errors import ConfigError, SpecError
from c2b_ray.models import catalog
from c2b_ray.models.gradient_schemes import chosen_label, refuse_without_gradients
from c2b_ray.storage import files, is_remote


def check(config: LatentConfig, via: str) -> None:
    """Raises ConfigError and SpecError for a config that cannot be searched."""
    if via == "serve":
        raise ConfigError("via", "serve: gradients pass through no handle; say here or actors")
    check_gradients(config)
    check_specs(config)
    for field, path in (("latents", config.latents), ("hyperplanes", config.hyperplanes)):
        if path is not None and not (files.exists(path) if is_remote(path) else Path(path).exists()):
            raise ConfigError(field, f"no such file or directory: {path}")
    check_labels(config)


def check_gradients(config: LatentConfig) -> None:
    """Raises ConfigError where a classifier's spec alone shows that it has no gradients; it names the classifier and
    the reason."""
    for field, role, spec in named_models(config):
        if role == "classifier":
            try:
                refuse_without_gradients(spec)
            except SpecError as error:
                raise ConfigError(field, str(error)) from error


def check_labels(config: LatentConfig) -> None:
    """Checks that every problem's label is one of its classifier's, and of its references', where these are known
    without loading."""
    known = {name: catalog.describe("classifier", spec) for name, spec in config.classifiers.items()}
    for problem in config.each():
        about = known[str(problem.classifier)]
        if about is None:
            continue
        label = chosen_label(about.labels, problem.label)
        for name in problem.references:
            reference = known[name]
            if reference is not None and label not in reference.labels:
                shown = ", ".join(reference.labels[:8])
                raise SpecError(f"the reference {name!r} has no label {label!r}; it has {shown}")


# Computes how many images a search of latent directions may generate, from its config alone. It loads no model.


PLAIN: tuple[Method, ...] = ("consistent", "total-variation", "signed-penalty", "no-penalty")
"""Methods whose images follow from the config: others look along each axis, or have further settings."""
_LOOK_EVERY = 10
_GRADIENT = 256


def most_images(config: LatentConfig) -> int | None:
    """Returns an upper limit over all problems; None where it depends on a generator's dimension or on a table."""
    if not set(config.methods) <= set(PLAIN) or config.latents is not None:
        return None
    if any(problem.biased == "pseudo" for problem in config.each()):
        return None
    search, strips = config.search, config.strips
    walks = search.batch * search.walk
    looks = 1 + ceil(search.iterations / _LOOK_EVERY)
    of_direction = search.starts * (_GRADIENT + walks * (search.iterations + 2 * looks)) + walks
    of_direction += strips.latents * strips.positions + (2 * strips.named_by if config.captioner else 0)
    of_search = config.directions * of_direction + config.evidence.latents
    return len(config.each()) * len(config.methods) * of_search
