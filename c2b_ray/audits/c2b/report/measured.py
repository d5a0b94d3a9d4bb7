"""The metric that a run compares cells by, in words. It knows names of metrics and numbers; nothing of pages."""

from __future__ import annotations

from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
from c2b_ray.report.redact import clean

ACCURACY = "accuracy"
_OWN = "python:"
_NAMES = {
    "f1": "F1",
    "balanced_accuracy": "balanced accuracy",
    "auroc": "AUROC",
    "confidence": "mean probability",
    "calibration": "calibration",
}
_SHARES = ("accuracy", "recall", "precision", "f1", "balanced_accuracy", "confidence")
_MEANING = {
    "recall": "recall: the share of a class’s images that are right",
    "confidence": "the mean probability that the classifier gives the class on its images",
    "precision": "precision: among the images of all classes with a value, the share of the answers with the class "
    "that are right",
    "f1": "F1: among the images of all classes with a value, the harmonic mean of the class’s precision and recall",
    "balanced_accuracy": "balanced accuracy: among the images of all classes with a value, the mean of the share of "
    "the class’s images that are right and that of the others",
    "auroc": "AUROC: among the images of all classes with a value, how often the probability of the class is larger "
    "on an image of it than on another one",
    "calibration": "calibration: among the images of all classes with a value, 1 minus the expected calibration error "
    "of the probability of the class (15 bins)",
}
_LIMITS = {
    "confidence": "Limits are Wilson’s, with the sample variance.",
    "precision": "Limits are Wilson’s, given the answers with the class.",
    "f1": "Limits are Wilson’s, with the delta method’s variance.",
    "balanced_accuracy": "Limits are Wilson’s, for the number of answers that would tell as much as MOVER’s limits.",
    "auroc": "Limits are Wilson’s, with DeLong’s variance.",
}
_BOOTSTRAPPED = "Limits are of a bootstrap within each class, and nothing is called clear: no test shows that it is."
_PERMUTED = (
    "A finding must also hold where the values are permuted among the images of each class, so that classes that are "
    "more frequent with one value than with another make none."
)


def named(metric: str) -> str:
    """Returns a metric's name for people."""
    return clean(metric.removeprefix(_OWN)) if metric.startswith(_OWN) else _NAMES.get(metric, metric)


def titled(metric: str) -> str:
    """Returns the name as a heading."""
    name = named(metric)
    return name if metric.startswith(_OWN) else name[:1].upper() + name[1:]


def shown(metric: str, value: float) -> str:
    """Returns a value of a metric: shares in percent, others as a number."""
    return words.percent(value) if metric in _SHARES else words.decimal(round(value, 2))


def shown_range(metric: str, low: float, high: float) -> str:
    return words.percent_range(low, high) if metric in _SHARES else f"{shown(metric, low)}–{shown(metric, high)}"


def compared_by(config: AuditConfig) -> str:
    """Returns a sentence on the metric of a run's config; "" for accuracy."""
    metric = config.metric
    if metric == ACCURACY:
        return ""
    meaning = _MEANING.get(metric, f"{named(metric)}, a function of one’s own, of each class against the rest")
    tested = "" if metric == "recall" else " ".join(["", _LIMITS.get(metric, _BOOTSTRAPPED), _PERMUTED])
    return f"Cells are compared by {meaning}.{tested}"
