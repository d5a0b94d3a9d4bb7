"""Facts about models that several loaders state in the same words. It knows no library of models."""

from __future__ import annotations

from collections.abc import Sequence

from c2b_ray.models.catalog import Spec
from c2b_ray.roles import ModelFact


def label_fact(spec: Spec | None, labels: Sequence[str], source: str | None, assumed: bool = False) -> ModelFact:
    """Returns the fact of a classifier's label names. `spec`: None where no spec can state them. `source`: what names
    them where `labels=` does not; None where nothing does, so that they are numbers."""
    shown = ", ".join(list(labels[:3])) + (", …" if len(labels) > 3 else "")
    value = f"{len(labels)}: {shown}"
    if spec is None:
        return ModelFact("label names", value, source or "", assumed)
    if "labels" in spec.options:
        return ModelFact("label names", value, f"?labels={spec.options['labels']}")
    if source is None:
        return ModelFact("label names", value, "numbered: no file names them", True, "labels")
    return ModelFact("label names", value, source, assumed, "labels")


def normalisation(mean: Sequence[float], std: Sequence[float]) -> str:
    """Returns mean and standard deviation of the three colours, each as one number where all three are the same."""
    return f"mean {_three(mean)}, std {_three(std)}"


def _three(values: Sequence[float]) -> str:
    different = dict.fromkeys(f"{value:.4g}" for value in values)
    return " ".join(different) if len(different) == 1 else " ".join(f"{value:.4g}" for value in values)
