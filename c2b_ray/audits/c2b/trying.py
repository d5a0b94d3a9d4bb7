"""Says which preprocessing an ONNX file probably needs, where nothing states it and the audit's images are labelled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from c2b_ray.config import AuditConfig
from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
from c2b_ray.models.spec_options import WORDS, UnstatedPreprocessingError
from c2b_ray.roles import Classifier
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.labels import TARGET
from c2b_ray.steps.predict import Classification, LabelMap, classification
from c2b_ray.steps.preprocessings import Tried, far_best, try_preprocessings
from c2b_ray.store.labelled import LabelledTable

IMAGES = 60
"""So many labelled images are tried, as evenly over the classes as they allow."""


def with_trial(error: UnstatedPreprocessingError, name: str, spec: str, config: AuditConfig) -> SpecError:
    """Returns the error with what the usual preprocessings give on the audit's labelled images, where it has any."""
    if config.images.table is None:
        return error
    table = LabelledTable(config.images.table, columns=config.images.renamed, root=config.images.root)
    targets = table.labels[TARGET].to_pylist()
    rows = _rows(targets, config.classes)
    fetched = table.fetch(rows)
    pixels, _ = decode_batch(fetched["bytes"].to_pylist())
    good = [(image, targets[row]) for image, row in zip(pixels, rows, strict=True) if image is not None]
    if not good:
        return error
    label_map = config.label_map if isinstance(config.label_map, dict) else None

    def load(word: str) -> Classifier:
        return catalog.classifier(f"{spec}{'&' if '?' in spec else '?'}preprocess={word}")

    classify = partial(_classify, name=name, config=config, label_map=label_map)
    tried = try_preprocessings(list(WORDS), load, classify, [image for image, _ in good], [text for _, text in good])
    if all(one.error is not None for one in tried):
        return SpecError(f"{error} (no preprocessing could be tried on the labelled images: {tried[0].error})")
    return SpecError(f"{error}. {_in_words(tried)}")


def _classify(classifier: Classifier, name: str, config: AuditConfig, label_map: LabelMap | None) -> Classification:
    return classification(name, classifier, config.classes, label_map, config.right)


def _rows(targets: Sequence[str | None], classes: Sequence[str]) -> list[int]:
    """Returns rows of the classes in turn, at random within each."""
    order = np.random.default_rng(0).permutation(len(targets)).tolist()
    groups = {name: [row for row in order if targets[row] == name] for name in classes}
    each = max(map(len, groups.values()), default=0)
    turns = [group[turn] for turn in range(each) for group in groups.values() if turn < len(group)]
    return sorted(turns[:IMAGES])


def _in_words(tried: Sequence[Tried]) -> str:
    counts = ", ".join(f"{one.word} {one.right}" for one in tried if one.error is None)
    best = far_best(tried)
    if best is None:
        return f"Right of {tried[0].images} labelled images: {counts}: none is right far more often than the others"
    return f"Right of {best.images} labelled images: {counts}: it is probably ?preprocess={best.word}"
