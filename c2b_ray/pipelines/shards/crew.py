"""Loads the models of a dataset in the worker that uses them, from factories that can be sent there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from c2b_ray.config.failure_rule import FailureRule
from c2b_ray.roles import Captioner, Classifier, ImageGenerator, ImageIndex, TextEncoder
from c2b_ray.steps.dataset.shard import Crew, Judge, LabelCheck
from c2b_ray.steps.dataset.sources import DrawSource, FromTable, Generated, Nearest
from c2b_ray.steps.discovery.rules import Truth
from c2b_ray.steps.draw import ImageSource
from c2b_ray.steps.predict import check_revision


@dataclass(frozen=True)
class GeneratorThere:
    name: str
    revision: str
    load: Callable[[], ImageGenerator]

    def source(self) -> DrawSource:
        generator = self.load()
        check_revision(self.name, generator.revision, self.revision)
        return Generated(self.name, generator)


@dataclass(frozen=True)
class IndexThere:
    name: str
    revision: str
    index: Callable[[], ImageIndex]
    encoder: Callable[[], TextEncoder]
    most: int

    def source(self) -> DrawSource:
        index = self.index()
        check_revision(self.name, index.revision, self.revision)
        return Nearest(self.name, self.encoder(), index, self.most)


@dataclass(frozen=True)
class TableThere:
    name: str
    revision: str
    table: Callable[[], ImageSource]

    def source(self) -> DrawSource:
        table = self.table()
        check_revision(self.name, table.revision, self.revision)
        return FromTable(self.name, table)


@dataclass(frozen=True)
class JudgeThere:
    """`truths`: for each label of the dataset, the classifier's labels that count as right."""

    name: str
    revision: str
    names: tuple[str, ...]
    truths: dict[str, Truth]
    load: Callable[[], Classifier]

    def judge(self) -> Judge:
        classifier = self.load()
        check_revision(self.name, classifier.revision, self.revision)
        return Judge(self.name, self.revision, self.names, self.truths, classifier)


@dataclass(frozen=True)
class VerifierThere:
    name: str
    revision: str
    labels: tuple[str, ...]
    load: Callable[[], Captioner]

    def check(self) -> LabelCheck:
        captioner = self.load()
        check_revision(self.name, captioner.revision, self.revision)
        return LabelCheck(captioner, self.labels)


@dataclass(frozen=True)
class CrewThere:
    """All models of a dataset, and what counts as a failure. `load` loads them."""

    sources: tuple[GeneratorThere | IndexThere | TableThere, ...]
    judges: tuple[JudgeThere, ...]
    verifier: VerifierThere | None
    rule: FailureRule
    confidence: float
    true_below: float = 1.0

    def load(self) -> Crew:
        return Crew(
            tuple(there.source() for there in self.sources),
            tuple(there.judge() for there in self.judges),
            None if self.verifier is None else self.verifier.check(),
            self.rule,
            self.confidence,
            self.true_below,
        )

    def revisions(self) -> dict[str, str]:
        """Returns the revision of each model, by its task and its name."""
        result = {f"images {there.name}": there.revision for there in self.sources}
        result |= {f"classifier {there.name}": there.revision for there in self.judges}
        return result if self.verifier is None else {**result, f"verifier {self.verifier.name}": self.verifier.revision}

    def named(self, names: Sequence[str]) -> CrewThere:
        """Returns the same models under other names, in the order of `revisions`."""
        rest = iter(names)
        return replace(
            self,
            sources=tuple(replace(there, name=next(rest)) for there in self.sources),
            judges=tuple(replace(there, name=next(rest)) for there in self.judges),
            verifier=None if self.verifier is None else replace(self.verifier, name=next(rest)),
        )
