"""The fields of a file of `c2b latent`: a generator, a classifier, the target, and how the space is searched and
judged.

It knows fields and their limits, not files; `latent_file` reads one.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, model_validator

from c2b_ray.config.strict import Name, SpecText, Strict, distinct

Method = Literal[
    "consistent",
    "total-variation",
    "paper",
    "signed-penalty",
    "no-penalty",
    "hessian-penalty",
    "no-penalty+hessian",
    "axes",
    "hessian",
    "random",
]
METHODS: tuple[Method, ...] = get_args(Method)
BASELINES: tuple[Method, ...] = ("axes", "hessian", "random")
LEAST_ACCURACY = 0.9
"""The least accuracy of a hyperplane on held-out latents (Li & Xu 2021, App. A.3); others are left out, and counted."""


class Problem(Strict):
    """One search. `label`: the classifier's output that is studied; by default the second of two outputs. `target`: the
    attribute that it should predict. `biased`: the attribute that is known to bias it, used only to judge results.
    `known`: attributes that directions must avoid: none, rest (all but target and biased), or their names.
    `references`: classifiers of the same target whose answers tell how far an image shows it."""

    name: Name | None = None
    generator: Name | None = None
    classifier: Name | None = None
    label: Name | None = None
    target: Name | None = None
    biased: Name | None = None
    known: Literal["none", "rest"] | list[Name] = "none"
    references: list[Name] = Field(default_factory=list, max_length=16)

    @model_validator(mode="after")
    def _attributes_differ(self) -> Problem:
        names = [name for name in (self.target, self.biased) if name is not None]
        if isinstance(self.known, list):
            names += self.known
        distinct(names, "attribute")
        return self


class Search(Strict):
    """`walk`: positions along a direction, `reach` standard deviations of the prior to either side; by default 2 as in
    Li & Xu's code, and 0.5 for `consistent`, because far from the data answers depend on things that no image shows.
    `starts`: searches from different beginnings, the best of which is kept. `penalty`: the weight of the orthogonality
    penalty, Li & Xu's λ. A search ends where `patience` checks in a row, ten steps apart, bring no improvement."""

    iterations: int = Field(60, ge=1, le=100_000)
    batch: int = Field(32, ge=2, le=4096)
    walk: int = Field(5, ge=2, le=101)
    reach: float | None = Field(None, gt=0, le=20)
    starts: int = Field(2, ge=1, le=50)
    rate: float = Field(0.05, gt=0, le=10)
    penalty: float = Field(10.0, ge=0, le=1e6)
    patience: int = Field(3, ge=1, le=1000)


class EvidenceConfig(Strict):
    """`latents`: the number of held-out latents that decide. `margin`: the change of P(label) that matters. `level`:
    the probability that a direction without such an effect is called one. Latents with which an effect of twice the
    margin would go unseen decide nothing."""

    latents: int = Field(2000, ge=50, le=1_000_000)
    margin: float = Field(0.05, ge=0, lt=1)
    level: float = Field(0.05, gt=0, lt=0.5)


class Strips(Strict):
    """Images along each direction, from the same `latents`; 0 latents draw none. `named_by`: the number of latents
    whose two ends the captioner describes. `reach`: standard deviations of the prior to either side."""

    latents: int = Field(3, ge=0, le=64)
    positions: int = Field(7, ge=2, le=41)
    reach: float = Field(2.0, gt=0, le=20)
    named_by: int = Field(24, ge=6, le=1000)


def _default_methods() -> list[Method]:
    return ["consistent"]


class LatentConfig(Strict):
    """`generator`, `classifier`: a spec, or name → spec. `latents`: a table of labelled latents, from which hyperplanes
    are trained, empty where an image does not show the attribute; `hyperplanes`: a table of known hyperplanes.
    `problems`: for a grid; otherwise the fields `label` to `references` describe the only problem. `directions`: the
    most of each problem, mutually orthogonal; the search ends at the first that is not one."""

    classifier: SpecText | dict[Name, SpecText]
    generator: SpecText | dict[Name, SpecText]
    latents: SpecText | None = None
    hyperplanes: SpecText | None = None
    label: Name | None = None
    target: Name | None = None
    biased: Name | None = None
    known: Literal["none", "rest"] | list[Name] = "none"
    references: list[Name] = Field(default_factory=list, max_length=16)
    problems: list[Problem] = Field(default_factory=list, max_length=20_000)
    methods: list[Method] = Field(default_factory=_default_methods, min_length=1)
    directions: int = Field(1, ge=1, le=32)
    search: Search = Search()
    evidence: EvidenceConfig = EvidenceConfig()
    strips: Strips = Strips()
    captioner: SpecText | None = None
    seed: int = Field(0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _whole(self) -> LatentConfig:
        single = ("label", "target", "biased", "references")
        if self.problems and (named := [name for name in single if getattr(self, name)]):
            raise ValueError(f"problems and {named[0]} are both given; with problems, {named[0]} is a field of each")
        distinct([str(method) for method in self.methods], "method")
        for problem in self.each():
            self._check(problem)
        return self

    def _check(self, problem: Problem) -> None:
        for what, names, held in (
            ("generator", [problem.generator], self.generators),
            ("classifier", [problem.classifier, *problem.references], self.classifiers),
        ):
            for name in names:
                if name is None and len(held) > 1:
                    raise ValueError(f"there are {len(held)} of {what}; every problem says which: {', '.join(held)}")
                if name is not None and name not in held:
                    raise ValueError(f"a problem names the {what} {name!r}, which is none of {', '.join(held)}")

    @property
    def classifiers(self) -> dict[str, str]:
        return {"classifier": self.classifier} if isinstance(self.classifier, str) else dict(self.classifier)

    @property
    def generators(self) -> dict[str, str]:
        return {"generator": self.generator} if isinstance(self.generator, str) else dict(self.generator)

    def each(self) -> list[Problem]:
        """Returns every problem, with the names that it leaves out filled in."""
        only_problem = Problem(
            label=self.label, target=self.target, biased=self.biased, known=self.known, references=self.references
        )
        filled = []
        for problem in self.problems or [only_problem]:
            changes = {
                "generator": problem.generator or _only(self.generators),
                "classifier": problem.classifier or _only(self.classifiers),
            }
            filled.append(problem.model_copy(update=changes))
        return filled


def _only(held: dict[str, str]) -> str | None:
    return next(iter(held)) if len(held) == 1 else None
