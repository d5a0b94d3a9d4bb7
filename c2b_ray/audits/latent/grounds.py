"""The data that a run rests on: the hyperplanes of attributes, trained or known, and the held-out latents that decide.

It composes tables, metrics and models, and knows no formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config.latent import LEAST_ACCURACY, LatentConfig, Problem
from c2b_ray.errors import ConfigError
from c2b_ray.metrics.hyperplanes import Hyperplane, curved_scores, fit_hyperplane
from c2b_ray.pipelines.latent import SEARCH, Specs, labelled_by_references
from c2b_ray.roles import Description, Floats
from c2b_ray.schemas import seed_of
from c2b_ray.schemas.latent import HYPERPLANES
from c2b_ray.steps.latent_labels import Labelled, known_hyperplanes, labelled_latents
from c2b_ray.store import files

_HELD_OUT = 0.4
"""The largest share of labelled latents that decide; the others train hyperplanes."""
_BY_REFERENCES = 5000
"""The number of latents that references label where no table labels the target."""
FROM_TABLE, LABELS, REFERENCES = "given", "labels", "references"


@dataclass
class Grounds:
    """(generator, attribute) → its hyperplane, how it was obtained, and why one is left out."""

    config: LatentConfig
    generators: Mapping[str, Description]
    labelled: Mapping[str, Labelled]
    planes: dict[tuple[str, str], Hyperplane] = field(default_factory=dict)
    trained_on: dict[tuple[str, str], str] = field(default_factory=dict)
    excluded: dict[tuple[str, str], str] = field(default_factory=dict)
    _scores: dict[tuple[str, str], NDArray[np.float64] | None] = field(default_factory=dict)
    _held_out: dict[tuple[str, str], tuple[Floats, NDArray[np.bool_]]] = field(default_factory=dict)

    def plane(self, generator: str, attribute: str) -> Hyperplane | None:
        """Returns the hyperplane; None where it is left out."""
        key = (generator, attribute)
        return None if key in self.excluded else self.planes.get(key)

    def attributes(self, generator: str) -> list[str]:
        return [name for of, name in self.planes if of == generator]

    def held_out(self, generator: str, attribute: str) -> tuple[Floats, NDArray[np.bool_]] | None:
        """Returns latents that no hyperplane was trained on, with the attribute's values; None where none are
        labelled."""
        labelled = self.labelled.get(generator)
        if labelled is None or attribute not in labelled.attributes:
            return None
        key = (generator, attribute)
        if key not in self._held_out:  # one copy for all problems, which travel to workers together
            rows, values = labelled.two_valued(attribute)
            mask = np.isin(rows, self._split(labelled, generator)[1])
            self._held_out[key] = labelled.latents[rows[mask]], values[mask]
        return self._held_out[key]

    def unlabelled(self, generator: str, attribute: str) -> float:
        """Returns the share of the table's latents without a label of the attribute; 0 where it has no such column."""
        labelled = self.labelled.get(generator)
        if labelled is None or attribute not in labelled.attributes:
            return 0.0
        return 1 - len(labelled.two_valued(attribute)[0]) / len(labelled.latents)

    def scores(self, generator: str, attribute: str) -> NDArray[np.float64] | None:
        """Returns scores of the latents of `held_out`, by a curved fit to all others; None where there are too few."""
        key = (generator, attribute)
        held_out = self.held_out(generator, attribute)
        if held_out is not None and key not in self._scores:
            labelled = self.labelled[generator]
            rows, values = labelled.two_valued(attribute)
            mask = np.isin(rows, self._split(labelled, generator)[0])
            self._scores[key] = curved_scores(labelled.latents[rows[mask]], values[mask], held_out[0])
        return self._scores.get(key)

    def train(self) -> None:
        """Trains a hyperplane for every labelled attribute that has none."""
        for generator, labelled in self.labelled.items():
            for attribute in labelled.attributes:
                if (generator, attribute) not in self.planes:
                    self._train(generator, attribute, labelled)

    def add(self, key: tuple[str, str], latents: Floats, values: NDArray[np.bool_], trained_on: str) -> None:
        try:
            plane = fit_hyperplane(latents, values, seed_of("hyperplane", self.config.seed, *key))
        except ValueError as error:
            self.excluded[key] = str(error)
            return
        self.planes[key], self.trained_on[key] = plane, trained_on
        self.check(key)

    def check(self, key: tuple[str, str]) -> None:
        if self.planes[key].accuracy < LEAST_ACCURACY:
            accuracy = self.planes[key].accuracy
            self.excluded[key] = f"held-out accuracy {accuracy:.3f}, below {LEAST_ACCURACY}: no hyperplane separates it"

    def table(self) -> pa.Table:
        """Returns the rows of `schemas.latent.HYPERPLANES`."""
        rows = []
        for key in dict.fromkeys([*self.planes, *self.excluded]):
            about = {"generator": key[0], "attribute": key[1], "trained_on": self.trained_on.get(key)}
            plane = vars(self.planes[key]) if key in self.planes else {}
            rows.append({**about, **plane, "excluded": self.excluded.get(key)})
        return pa.Table.from_pylist(rows, HYPERPLANES)

    def _train(self, generator: str, attribute: str, labelled: Labelled) -> None:
        try:
            rows, values = labelled.two_valued(attribute)
        except ConfigError as error:
            if attribute in _named(self.config) and len(self.generators) == 1:
                raise  # of several generators one may never show the attribute's other value
            self.excluded[generator, attribute] = str(error)
            return
        mask = np.isin(rows, self._split(labelled, generator)[0])
        self.add((generator, attribute), labelled.latents[rows[mask]], values[mask], LABELS)

    def _split(self, labelled: Labelled, generator: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Returns the rows that train, and the rows that decide."""
        count = len(labelled.latents)
        order = np.random.default_rng(seed_of("split", self.config.seed, generator)).permutation(count)
        decide = min(self.config.evidence.latents, int(count * _HELD_OUT))
        return order[decide:], order[:decide]


def grounds(config: LatentConfig, generators: Mapping[str, Description]) -> Grounds:
    """Returns the hyperplanes of all attributes that a table labels or lists. Raises ConfigError for tables that do not
    fit."""
    names = {name: [name, about.revision, config.generators[name]] for name, about in generators.items()}
    dimensions = {name: about.dimension for name, about in generators.items()}
    labelled: dict[str, Labelled] = {}
    if config.latents is not None:
        labelled = labelled_latents(files.read_table(config.latents), names, dimensions)
    result = Grounds(config, generators, labelled)
    if config.hyperplanes is not None:
        for key, plane in known_hyperplanes(files.read_table(config.hyperplanes), names, dimensions).items():
            result.planes[key], result.trained_on[key] = plane, FROM_TABLE
            result.check(key)
    result.train()
    return result


def learn_from_references(result: Grounds, problem: Problem, specs: Specs, models: Backend) -> None:
    """Trains the target's hyperplane from its references' answers about generated images, where no table labels the
    target."""
    key = (str(problem.generator), str(problem.target))
    if key in result.planes or key in result.excluded or not problem.references:
        return
    seed = seed_of("references", result.config.seed)
    read: Any = partial(labelled_by_references, result.config, specs, _BY_REFERENCES, seed)
    latents, values = models.runner.call(read, SEARCH)
    result.add(key, latents, values, REFERENCES)


def _named(config: LatentConfig) -> set[str]:
    """Returns the attributes that problems name."""
    names: set[str] = set()
    for problem in config.each():
        names |= {name for name in (problem.target, problem.biased) if name is not None}
        names |= set(problem.known) if isinstance(problem.known, list) else set()
    return names
