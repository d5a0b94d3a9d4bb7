"""The fields of a file of `c2b latent`: a generator, a classifier, the target, and how directions are searched for and
judged.

`read_latent_config` reads a file; all else here is fields and their limits.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from c2b_ray.config.named import (
    CaptionerSpec,
    ClassifierSpec,
    LatentGeneratorSpec,
    Name,
    Names,
    SpecText,
    StrictModel,
    distinct,
)
from c2b_ray.config.reading import ConfigFile
from c2b_ray.storage.manifest import FileOrFields

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
BASELINES: tuple[Method, ...] = ("axes", "hessian", "random")
LEAST_ACCURACY = 0.9
"""The least accuracy of a hyperplane on held-out latents (Li & Xu 2021, App. A.3); others are left out, and counted."""


Output = Annotated[
    Name | None, Field(description="The classifier's output to study. Default: the second of two outputs.")
]
Target = Annotated[Name | None, Field(description="The attribute that the output should predict.")]
Biased = Annotated[
    Name | None,
    Field(
        description="The attribute that is known to bias it; used only to judge the results. pseudo: of those that are "
        "neither target nor known by name, the one that moves the answers most."
    ),
]
Known = Annotated[
    Literal["none", "rest"] | list[Name],
    Field(
        description="The attributes that directions must avoid. none; rest: all but target and biased; or their names."
    ),
]
References = Annotated[
    list[Name],
    Field(max_length=16, description="Classifiers of the same target, whose answers tell how far an image shows it."),
]


class Problem(StrictModel):
    """One search: whether `target` alone changes an output of the classifier."""

    name: Name | None = Field(None, description="The problem's name.")
    generator: Name | None = Field(None, description="The generator, by its name. Default: the only one.")
    classifier: Name | None = Field(None, description="The classifier, by its name. Default: the only one.")
    label: Output = None
    target: Target = None
    biased: Biased = None
    known: Known = "none"
    references: References = Field(default_factory=list)

    @model_validator(mode="after")
    def _attributes_differ(self) -> Problem:
        names = [name for name in (self.target, self.biased) if name is not None]
        if isinstance(self.known, list):
            names += self.known
        distinct(names, "attribute")
        return self


class Search(StrictModel):
    """The settings of a search for directions."""

    iterations: int = Field(60, ge=1, le=100_000, description="The most steps of a search.")
    batch: int = Field(32, ge=2, le=4096, description="Latents per step.")
    walk: int = Field(5, ge=2, le=101, description="Positions along a direction.")
    reach: float | None = Field(
        None,
        gt=0,
        le=20,
        description="How far positions lie to either side, in standard deviations of the prior. Default: 2, as in Li "
        "& Xu's code, and 0.5 for `consistent`: far from the data, answers depend on things that no image shows.",
    )
    starts: int = Field(2, ge=1, le=50, description="Searches from different starting points; the best one is kept.")
    rate: float = Field(0.05, gt=0, le=10, description="The learning rate.")
    penalty: float = Field(10.0, ge=0, le=1e6, description="The weight of the orthogonality penalty, Li & Xu's λ.")
    patience: int = Field(
        3,
        ge=1,
        le=1000,
        description="A search ends after this many checks in a row without improvement; there is a check every ten "
        "steps.",
    )


class EvidenceConfig(StrictModel):
    """The settings of the test whether a direction changes P(label)."""

    latents: int = Field(
        2000,
        ge=50,
        le=1_000_000,
        description="Held-out latents that decide whether a direction has an effect. If an effect of twice the margin "
        "could go unseen with them, the result is open.",
    )
    margin: float = Field(0.05, ge=0, lt=1, description="The change of P(label) that matters.")
    level: float = Field(
        0.05, gt=0, lt=0.5, description="The probability that a direction without such an effect is said to have one."
    )


class Strips(StrictModel):
    """Images along each direction, all from the same latents."""

    latents: int = Field(
        3, ge=0, le=64, description="Latents from which images along each direction start; 0: no images."
    )
    positions: int = Field(7, ge=2, le=41, description="Images along each direction.")
    reach: float = Field(
        2.0, gt=0, le=20, description="How far they extend to either side, in standard deviations of the prior."
    )
    named_by: int = Field(24, ge=6, le=1000, description="Latents whose two ends the captioner describes.")


def _default_methods() -> list[Method]:
    return ["consistent"]


class LatentConfig(StrictModel):
    """A search for directions of a generator's latent space that change a classifier's answer."""

    classifier: ClassifierSpec | dict[Name, ClassifierSpec] = Field(description="A model spec, or name → spec.")
    generator: LatentGeneratorSpec | dict[Name, LatentGeneratorSpec] = Field(
        description="A generator's spec, or name → spec."
    )
    latents: Annotated[SpecText, Names.VALUES] | None = Field(
        None,
        description="A table of labelled latents to train hyperplanes on; a value is empty if an image does not show "
        "the attribute.",
    )
    hyperplanes: Annotated[SpecText, Names.VALUES] | None = Field(None, description="A table of known hyperplanes.")
    label: Output = None
    target: Target = None
    biased: Biased = None
    known: Known = "none"
    references: References = Field(default_factory=list)
    problems: list[Problem] = Field(
        default_factory=list,
        max_length=20_000,
        description="The problems of a grid. Without them, the fields `label` to `references` describe the only "
        "problem.",
    )
    methods: list[Method] = Field(default_factory=_default_methods, min_length=1, description="The search methods.")
    directions: int = Field(
        1,
        ge=1,
        le=32,
        description="The most directions of each problem, mutually orthogonal; the search ends at the first one "
        "without an effect.",
    )
    search: Search = Field(Search(), description="How directions are searched for.")
    evidence: EvidenceConfig = Field(EvidenceConfig(), description="How directions are judged.")
    strips: Strips = Field(Strips(), description="Images along the directions.")
    captioner: CaptionerSpec | None = Field(None, description="The spec of a captioner that names the directions.")
    seed: int = Field(0, ge=0, lt=2**31, description="The seed of all random draws.")

    @model_validator(mode="after")
    def _whole(self) -> LatentConfig:
        single = ("label", "target", "biased", "references")
        if self.problems and (set_fields := [name for name in single if getattr(self, name)]):
            raise ValueError(
                f"problems and {set_fields[0]} exclude each other; with problems, {set_fields[0]} is a field of each"
            )
        distinct([str(method) for method in self.methods], "method")
        for problem in self.each():
            self._check(problem)
        return self

    def _check(self, problem: Problem) -> None:
        for noun, names, choices in (
            ("generator", [problem.generator], self.generators),
            ("classifier", [problem.classifier, *problem.references], self.classifiers),
        ):
            for name in names:
                if name is None and len(choices) > 1:
                    raise ValueError(
                        f"there are {len(choices)} {noun}s; every problem must name one: {', '.join(choices)}"
                    )
                if name is not None and name not in choices:
                    raise ValueError(f"a problem names the {noun} {name!r}, which is none of {', '.join(choices)}")

    @property
    def classifiers(self) -> dict[str, str]:
        return {"classifier": self.classifier} if isinstance(self.classifier, str) else dict(self.classifier)

    @property
    def generators(self) -> dict[str, str]:
        return {"generator": self.generator} if isinstance(self.generator, str) else dict(self.generator)

    def each(self) -> list[Problem]:
        """Returns every problem, with omitted names filled in."""
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


def _only(choices: dict[str, str]) -> str | None:
    return next(iter(choices)) if len(choices) == 1 else None


# Reads and checks a file of `c2b latent` once, at the edge; its paths become absolute, relative to that file.


_FILE = ConfigFile(LatentConfig, "c2b latent")


def read_latent_config(source: FileOrFields | LatentConfig, classifier: dict[str, str] | None = None) -> LatentConfig:
    """Returns the config of a run; see `ConfigFile.read`."""
    if isinstance(source, LatentConfig):  # its problems are checked again: they may name another classifier
        source = source.model_dump(exclude_unset=True)
    return _FILE.read(source, classifier)
