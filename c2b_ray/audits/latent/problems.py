"""The problems of a run: checked before any model loads, counted in images, and turned into the orders of searches.

`check_gradients` reads no file and imports no library of models, so that the endpoint can call it when a config is
submitted. A label is checked here where the classifier's labels are known without loading it, otherwise when the run
begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from math import ceil
from pathlib import Path
from typing import Any

from c2b_ray.audits.kit.models import check_specs, named_models
from c2b_ray.audits.latent.inputs import LABELS, REFERENCES, AttributeHyperplanes
from c2b_ray.audits.latent.search import SearchTask, Specs
from c2b_ray.config.latent import LatentConfig, Method, Problem
from c2b_ray.errors import ConfigError, SpecError, nearest
from c2b_ray.models import catalog
from c2b_ray.models.heads import chosen_label, refuse_independent_labels, refuse_without_gradients
from c2b_ray.storage import files, is_remote
from c2b_ray.tables import content_id
from c2b_ray.tables.latent import ProblemRow


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
    descriptions = {name: catalog.describe("classifier", spec) for name, spec in config.classifiers.items()}
    for problem in config.each():
        description = descriptions[str(problem.classifier)]
        if description is None:
            continue
        refuse_independent_labels(str(problem.classifier), description.head)
        label = chosen_label(description.labels, problem.label)
        for name in problem.references:
            reference = descriptions[name]
            if reference is not None and label not in reference.labels:
                labels_listed = ", ".join(reference.labels[:8])
                raise SpecError(f"the reference {name!r} has no label {label!r}; it has {labels_listed}")


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


# Turns problems into orders: each with the normals and held-out latents that its search and its verdict need.


PSEUDO = "pseudo"
"""A value of `biased`: the attribute that moves the answers most replaces the truth (Li & Xu 2021, section 5.2)."""
MOST_BLANK = 0.5
"""A larger share of latents without a label of the target is a reservation."""


@dataclass(frozen=True)
class LatentProblem:
    """A problem with its name, and the revisions of its models."""

    name: str
    problem: Problem
    specs: Specs
    label: str


@dataclass(frozen=True)
class OmittedProblem:
    """A problem that is not searched, and why."""

    stated: LatentProblem
    reason: str


def order_of(latent_problem: LatentProblem, hyperplanes: AttributeHyperplanes) -> SearchTask | OmittedProblem:
    """Returns the order of a problem, or why it is left out. Raises ConfigError where the problem names an unknown
    attribute."""
    problem, generator = latent_problem.problem, str(latent_problem.problem.generator)
    if left_out := _left_out(latent_problem, hyperplanes):
        return left_out
    target = None if problem.target is None else hyperplanes.plane(generator, problem.target)
    held_out = None if problem.target is None else hyperplanes.held_out(generator, problem.target)
    bias = None if problem.biased in (None, PSEUDO) else hyperplanes.plane(generator, str(problem.biased))
    known_planes = _known(problem, hyperplanes)
    return SearchTask(
        problem=latent_problem.name,
        generator=generator,
        classifier=str(problem.classifier),
        label=latent_problem.label,
        target_name=problem.target,
        target=None if target is None else target.normal,
        angle=0.0 if target is None else target.angle,
        known={name: known_planes[name].normal for name in sorted(known_planes)},
        biased=problem.biased,
        bias=None if bias is None else bias.normal,
        references=len(problem.references),
        known_by=_known_by(problem, held_out is not None, target is not None),
        latents=None if held_out is None else held_out[0],
        labels=None if held_out is None else held_out[1],
        scores=None if problem.target is None else hyperplanes.scores(generator, problem.target),
        attributes=_attributes(generator, hyperplanes),
        pseudo=problem.biased == PSEUDO,
        rest=problem.known == "rest",
    )


def _left_out(latent_problem: LatentProblem, hyperplanes: AttributeHyperplanes) -> OmittedProblem | None:
    problem, generator = latent_problem.problem, str(latent_problem.problem.generator)
    for attribute in _wanted(problem):
        key = (generator, attribute)
        if key not in hyperplanes.planes and key not in hyperplanes.excluded:
            available = hyperplanes.attributes(generator)
            other_generators = [name for name in hyperplanes.labelled if name != generator]
            none = f"there are none of {generator}" + (
                f"; latents are labelled of {', '.join(other_generators)}" if other_generators else ""
            )
            raise ConfigError(
                "problems",
                f"{latent_problem.name}: no hyperplane of {attribute!r} in {generator}: give latents with labels, "
                f"hyperplanes, or for a target references; {nearest(attribute, available) if available else none}",
            )
        if key in hyperplanes.excluded and attribute in (problem.target, problem.biased):
            return OmittedProblem(latent_problem, f"{attribute}: {hyperplanes.excluded[key]}")
    return None


def search_id(order: SearchTask, latent_problem: LatentProblem, method: str, config: LatentConfig) -> str:
    """Returns an id that changes with everything that a search's answer depends on, and with nothing else."""
    specs = latent_problem.specs
    models = [specs.revisions[spec] for spec in (specs.generator, specs.classifier, *specs.references)]
    vectors = (order.target, order.bias, *order.known.values(), *(order.attributes.values() if order.pseudo else ()))
    normals = [order.angle, *(vector.tolist() for vector in vectors if vector is not None)]
    normals += ["rest"] if order.pseudo and order.rest else []
    settings = config.model_dump(
        mode="json", include={"search", "evidence", "strips", "directions", "seed", "captioner"}
    )
    arrays = (order.latents, order.labels, order.scores)
    held_out = "" if order.latents is None else content_id(*(a.tobytes() for a in arrays if a is not None))
    return content_id("latent search", order.problem, method, order.label, models, normals, held_out, settings)


def reservation(latent_problem: LatentProblem, hyperplanes: AttributeHyperplanes) -> str | None:
    """Returns which named known attributes have no hyperplane, so that directions may be these after all; whether
    no attribute is left to be the pseudo-ground truth; and whether most images show no target, so that directions may
    lead to such images; None where none of this holds."""
    problem, generator = latent_problem.problem, str(latent_problem.problem.generator)
    known_names = problem.known if isinstance(problem.known, list) else []
    left_out = [name for name in known_names if hyperplanes.plane(generator, name) is None]
    sentences = (
        ["not kept out: " + "; ".join(f"{n}: {hyperplanes.excluded[generator, n]}" for n in left_out)]
        if left_out
        else []
    )
    if problem.biased == PSEUDO and not set(_attributes(generator, hyperplanes)) - {problem.target, *known_names}:
        sentences.append("no pseudo-ground truth: all attributes with a hyperplane are the target or known; name fewer")
    if problem.target is not None and (blank := hyperplanes.unlabelled(generator, problem.target)) > MOST_BLANK:
        sentences.append(
            f"{100 * blank:.0f} % of the latents have no label of {problem.target}: where their images do not show it, "
            "answers say nothing of it, and a direction may be found that only leads to such images; look at the strips"
        )
    return ". ".join(sentences) or None


def row_of(latent_problem: LatentProblem, known: list[str], reason: str | None, searched: bool = True) -> ProblemRow:
    """Returns the problem's row of the table of problems."""
    problem = latent_problem.problem
    return {
        "problem": latent_problem.name,
        "generator": problem.generator,
        "classifier": problem.classifier,
        "label": latent_problem.label,
        "target": problem.target,
        "biased": problem.biased,
        "known": known,
        "references": problem.references,
        "status": "searched" if searched else "excluded",
        "reason": reason,
    }


def names_of(problems: list[Problem]) -> list[str]:
    """Returns a name for each problem: the configured one, or one made of its parts; with a number where two
    are equal."""
    names: list[str] = []
    for problem in problems:
        parts = (problem.target, problem.biased, problem.classifier, problem.generator)
        name = problem.name or " · ".join(part for part in parts if part is not None)
        numbered = chain([name], (f"{name} #{number}" for number in count(2)))
        names.append(next(candidate for candidate in numbered if candidate not in names))
    return names


def _wanted(problem: Problem) -> list[str]:
    attributes = [problem.target, None if problem.biased == PSEUDO else problem.biased]
    attributes += problem.known if isinstance(problem.known, list) else []
    return [name for name in attributes if name is not None]


def _known(problem: Problem, hyperplanes: AttributeHyperplanes) -> Mapping[str, Any]:
    """Returns name → hyperplane of the attributes that directions must avoid; attributes without a hyperplane do not
    constrain them."""
    generator = str(problem.generator)
    names = problem.known if isinstance(problem.known, list) else []
    if problem.known == "rest":
        names = [name for name in hyperplanes.attributes(generator) if name not in (problem.target, problem.biased)]
    planes = {name: hyperplanes.plane(generator, name) for name in names}
    return {name: plane for name, plane in planes.items() if plane is not None}


def _attributes(generator: str, hyperplanes: AttributeHyperplanes) -> Mapping[str, Any]:
    planes = {name: hyperplanes.plane(generator, name) for name in hyperplanes.attributes(generator)}
    return {name: plane.normal for name, plane in planes.items() if plane is not None}


def _known_by(problem: Problem, labelled: bool, plane: bool) -> str:
    parts = [LABELS] if labelled else []
    parts += [REFERENCES] if problem.references else []
    if parts:
        return " and ".join(parts)
    return "hyperplane" if plane else "every image"
