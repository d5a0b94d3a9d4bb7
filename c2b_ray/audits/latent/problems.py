"""Turns problems into orders: each with the normals and held-out latents that its search and its verdict need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from c2b_ray.audits.latent.inputs import LABELS, REFERENCES, AttributeHyperplanes
from c2b_ray.audits.latent.search import SearchTask
from c2b_ray.audits.latent.stage import Specs
from c2b_ray.config.latent import LatentConfig, Problem
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.tables import content_id
from c2b_ray.tables.latent_rows import ProblemRow

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


def order_of(stated: LatentProblem, grounds: AttributeHyperplanes) -> SearchTask | OmittedProblem:
    """Returns the order of a problem, or why it is left out. Raises ConfigError where the problem names an unknown
    attribute."""
    problem, generator = stated.problem, str(stated.problem.generator)
    if left_out := _left_out(stated, grounds):
        return left_out
    target = None if problem.target is None else grounds.plane(generator, problem.target)
    held_out = None if problem.target is None else grounds.held_out(generator, problem.target)
    bias = None if problem.biased in (None, PSEUDO) else grounds.plane(generator, str(problem.biased))
    known = _known(problem, grounds)
    return SearchTask(
        problem=stated.name,
        generator=generator,
        classifier=str(problem.classifier),
        label=stated.label,
        target_name=problem.target,
        target=None if target is None else target.normal,
        angle=0.0 if target is None else target.angle,
        known={name: known[name].normal for name in sorted(known)},
        biased=problem.biased,
        bias=None if bias is None else bias.normal,
        references=len(problem.references),
        known_by=_known_by(problem, held_out is not None, target is not None),
        latents=None if held_out is None else held_out[0],
        labels=None if held_out is None else held_out[1],
        scores=None if problem.target is None else grounds.scores(generator, problem.target),
        attributes=_attributes(generator, grounds),
        pseudo=problem.biased == PSEUDO,
        rest=problem.known == "rest",
    )


def _left_out(stated: LatentProblem, grounds: AttributeHyperplanes) -> OmittedProblem | None:
    problem, generator = stated.problem, str(stated.problem.generator)
    for attribute in _wanted(problem):
        key = (generator, attribute)
        if key not in grounds.planes and key not in grounds.excluded:
            there = grounds.attributes(generator)
            others = [name for name in grounds.labelled if name != generator]
            none = f"there are none of {generator}" + (
                f"; latents are labelled of {', '.join(others)}" if others else ""
            )
            raise ConfigError(
                "problems",
                f"{stated.name}: no hyperplane of {attribute!r} in {generator}: give latents with labels, hyperplanes, "
                f"or for a target references; {nearest(attribute, there) if there else none}",
            )
        if key in grounds.excluded and attribute in (problem.target, problem.biased):
            return OmittedProblem(stated, f"{attribute}: {grounds.excluded[key]}")
    return None


def search_id(order: SearchTask, stated: LatentProblem, method: str, config: LatentConfig) -> str:
    """Returns an id that changes with everything that a search's answer depends on, and with nothing else."""
    specs = stated.specs
    models = [specs.revisions[spec] for spec in (specs.generator, specs.classifier, *specs.references)]
    named = (order.target, order.bias, *order.known.values(), *(order.attributes.values() if order.pseudo else ()))
    normals = [order.angle, *(vector.tolist() for vector in named if vector is not None)]
    normals += ["rest"] if order.pseudo and order.rest else []
    settings = config.model_dump(
        mode="json", include={"search", "evidence", "strips", "directions", "seed", "captioner"}
    )
    arrays = (order.latents, order.labels, order.scores)
    held_out = "" if order.latents is None else content_id(*(a.tobytes() for a in arrays if a is not None))
    return content_id("latent search", order.problem, method, order.label, models, normals, held_out, settings)


def reservation(stated: LatentProblem, grounds: AttributeHyperplanes) -> str | None:
    """Returns which named known attributes have no hyperplane, so that directions may be these after all; whether
    no attribute is left to be the pseudo-ground truth; and whether most images show no target, so that directions may
    lead to such images; None where nothing is so."""
    problem, generator = stated.problem, str(stated.problem.generator)
    named = problem.known if isinstance(problem.known, list) else []
    left_out = [name for name in named if grounds.plane(generator, name) is None]
    said = (
        ["not kept out: " + "; ".join(f"{n}: {grounds.excluded[generator, n]}" for n in left_out)] if left_out else []
    )
    if problem.biased == PSEUDO and not set(_attributes(generator, grounds)) - {problem.target, *named}:
        said.append("no pseudo-ground truth: all attributes with a hyperplane are the target or known; name fewer")
    if problem.target is not None and (blank := grounds.unlabelled(generator, problem.target)) > MOST_BLANK:
        said.append(
            f"{100 * blank:.0f} % of the latents have no label of {problem.target}: where their images do not show it, "
            "answers say nothing of it, and a direction may be found that only leads to such images; look at the strips"
        )
    return ". ".join(said) or None


def row_of(stated: LatentProblem, known: list[str], reason: str | None, searched: bool = True) -> ProblemRow:
    """Returns the problem's row of the table of problems."""
    problem = stated.problem
    return {
        "problem": stated.name,
        "generator": problem.generator,
        "classifier": problem.classifier,
        "label": stated.label,
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
        names.append(next(one for one in numbered if one not in names))
    return names


def _wanted(problem: Problem) -> list[str]:
    named = [problem.target, None if problem.biased == PSEUDO else problem.biased]
    named += problem.known if isinstance(problem.known, list) else []
    return [name for name in named if name is not None]


def _known(problem: Problem, grounds: AttributeHyperplanes) -> Mapping[str, Any]:
    """Returns name → hyperplane of the attributes that directions must avoid; attributes without a hyperplane do not
    constrain them."""
    generator = str(problem.generator)
    names = problem.known if isinstance(problem.known, list) else []
    if problem.known == "rest":
        names = [name for name in grounds.attributes(generator) if name not in (problem.target, problem.biased)]
    planes = {name: grounds.plane(generator, name) for name in names}
    return {name: plane for name, plane in planes.items() if plane is not None}


def _attributes(generator: str, grounds: AttributeHyperplanes) -> Mapping[str, Any]:
    planes = {name: grounds.plane(generator, name) for name in grounds.attributes(generator)}
    return {name: plane.normal for name, plane in planes.items() if plane is not None}


def _known_by(problem: Problem, labelled: bool, plane: bool) -> str:
    parts = [LABELS] if labelled else []
    parts += [REFERENCES] if problem.references else []
    if parts:
        return " and ".join(parts)
    return "hyperplane" if plane else "every image"
