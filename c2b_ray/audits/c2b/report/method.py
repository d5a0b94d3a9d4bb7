"""The method section of a C2B run: its settings, its metric, and what derived values mean, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
from c2b_ray.report.method import Method, Row, mapping, method_of, times
from c2b_ray.report.redact import clean

# The metric that a run compares cells by, in words. It knows names of metrics and numbers; nothing of pages.


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


def metric_named(metric: str) -> str:
    """Returns a metric's name for people."""
    return clean(metric.removeprefix(_OWN)) if metric.startswith(_OWN) else _NAMES.get(metric, metric)


def titled(metric: str) -> str:
    """Returns the name as a heading."""
    name = metric_named(metric)
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
    meaning = _MEANING.get(metric, f"{metric_named(metric)}, a function of one’s own, of each class against the rest")
    tested = "" if metric == "recall" else " ".join(["", _LIMITS.get(metric, _BOOTSTRAPPED), _PERMUTED])
    return f"Cells are compared by {meaning}.{tested}"


# What the values of derived attributes are, in words: "Here dark means: mean luma (0 to 255) below 61."


ORIGINS = {
    "property": "measured on the images",
    "number": "cut from columns of numbers",
    "date": "cut from columns of dates",
    "read": "read off the images by a model",
    "word": "words of captions, found on the half of the images that is not tested",
    "slice": "clusters of embeddings, found on the half of the images that is not tested",
}


class DerivedValues:
    """The derived attributes of a run, by its manifest."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self._attributes = {
            clean(str(attribute.get("attribute"))): attribute
            for attribute in manifest.get("derived") or []
            if isinstance(attribute, Mapping)
        }

    def range_of(self, target_class: str, attribute: str, value: str) -> str:
        """Returns the range of a value, such as "below 61"; empty where it has none, or is called so."""
        ranges = mapping(self._attributes.get(attribute, {}).get("ranges"))
        of_class = mapping(ranges.get(target_class) or ranges.get(""))
        range_text = clean(str(of_class.get(value, "")))
        return "" if range_text == value else range_text

    def explained(self, target_class: str, attribute: str, value: str) -> str:
        """Returns a sentence that says what a value means; empty for an attribute that was not derived."""
        if attribute not in self._attributes:
            return ""
        measure = clean(str(self._attributes[attribute].get("measure", "")))
        range_text = self.range_of(target_class, attribute, value)
        return f"Here {value} means: {measure} {range_text}." if range_text else f"Here {attribute} is {measure}."

    def setting(self) -> str:
        """Returns which attributes were derived from what, in a line; empty where none was."""
        parts = []
        for origin, source in ORIGINS.items():
            names = [name for name, attribute in self._attributes.items() if attribute.get("origin") == origin]
            if names:
                parts.append(f"{words.listed(names)} ({source})")
        return "; ".join(parts)


_RIGHT = {
    "top1": "the likeliest of all the classifier's labels stands for the class (right: top1)",
    "top5": "one of the five likeliest of all its labels stands for the class (right: top5)",
    "among_classes": "the class is the likeliest of the audit's classes alone, whatever other labels are likelier "
    "(right: among_classes)",
}
_COUNTS = {
    "proposals": "Attributes proposed",
    "rejected": "Replies rejected",
    "captions": "Captions",
    "draws": "Draws",
    "images": "Images",
    "image_errors": "Images that could not be read or made",
    "predictions": "Predictions",
    "prediction_errors": "Predictions that failed",
}


def method(manifest: Mapping[str, Any]) -> Method:
    config = mapping(manifest.get("config"))
    settings = tuple(_settings(manifest, {name: value for name, value in config.items() if value is not None}))
    return method_of(manifest, settings, _COUNTS, "c2b audit audit.yaml --out RUN")


def right_line(config: AuditConfig, rule: str | None = None) -> str:
    """Returns a sentence that tells when an answer counts as right. `rule`: the run's own, which follows from its
    classifiers (`C2BManifest.rule`)."""
    return f"An answer is right when {rule or _RIGHT[config.right]}."


def _settings(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Row]:
    source = mapping(config.get("images")).get("source")
    kinds = {
        "retrieve": "retrieved by caption from an index",
        "generate": "made from each caption",
        "labelled": "labelled, from a table",
    }
    named_source = " and ".join(kinds.get(str(kind), str(kind)) for kind in _several(source))
    settings = {
        "Task": config.get("task"),
        "Cells are compared by": metric_named(str(config["metric"])) if config.get("metric") else None,
        "An answer is right when": manifest.get("rule") or _RIGHT.get(str(config.get("right"))),
        "Images": named_source or None,
        "Independent samples": mapping(config.get("images")).get("cluster"),
        "Attributes that nobody annotated": DerivedValues(manifest).setting() or None,
        "Images per caption": config.get("images_per_caption"),
        "Captions per cell": config.get("captions_per_cell"),
        "Seed": config.get("seed"),
        "τ, smallest |φ| that counts": config.get("tau"),
        "α, false discovery rate": config.get("alpha"),
        "Run": manifest.get("run_id"),
    }
    for name, value in settings.items():
        if value is not None:
            yield name, clean(words.decimal(value) if isinstance(value, float) else str(value))
    yield from times(manifest)


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
