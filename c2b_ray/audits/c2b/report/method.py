"""The method section of a C2B run: its settings, its metric, and what derived values mean, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from c2b_ray.audits.c2b.scoring.findings import MARGIN
from c2b_ray.audits.c2b.verification.verified import LEAST_OF_CLASS, LEAST_SHOWN, LEAST_SKILL
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
from c2b_ray.report.blocks import Terms
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
    "confidence": "Limits are Wilson’s, with the sample variance, and allow for mistakes that so few images may hide.",
    "precision": "Limits are Wilson’s, given the answers with the class.",
    "f1": "Limits are Wilson’s, with the delta method’s variance.",
    "balanced_accuracy": "Limits are Wilson’s, for the number of answers that would tell as much as MOVER’s limits.",
    "auroc": "Limits are Wilson’s, with DeLong’s variance, and allow for mistakes that so few images may hide.",
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


# What the page's words mean.


_DOUBTED = (
    f"less than {words.percent(LEAST_OF_CLASS)} of its images show the class, less than {words.percent(LEAST_SHOWN)} "
    "its value, the verifier hardly tells value or class from the others (sensitivity + specificity − 1 below "
    f"{words.decimal(LEAST_SKILL)}), or the difference is gone among images alike in another attribute (Mantel and "
    "Haenszel’s risk difference)"
)
"""Where a cell is in doubt."""


def terms(tau: float, alpha: float, present: Collection[str]) -> Terms:
    """Returns the rules by which numbers and verdicts came about. `present`: ids of the page's parts (pooled,
    intersections, shown, sources, spent, looks), each of which has a rule of its own."""
    level, interval = words.decimal(alpha), f"{words.percent(1 - alpha)} interval"
    families = "; values over all classes and cells of two values are families of their own"
    paragraphs = [
        "**φ.** The bias score φ of a value is the classifier’s accuracy on the class’s images that show it, minus the "
        "mean of its accuracies on the attribute’s other values (Classifier-to-Bias, CVPR 2025, Eq.\u00a01); it lies "
        "between −1 and 1 and sums to 0 over an attribute’s values.",
        f"**Verdict.** *For* or *against* where |φ| exceeds τ\u00a0=\u00a0{words.decimal(tau)} and q, the p-value "
        "adjusted for the false discovery rate over all cells of all classifiers of this audit (Benjamini & Hochberg "
        f"1995), is at most α\u00a0=\u00a0{level}: of these findings, no more than that share is expected to be false"
        f"{families if not {'pooled', 'intersections'}.isdisjoint(present) else ''}. *Clear* (`none` in tables and "
        "gates) where the claim that |φ| is at most τ is established at the same rate over all cells, on images of "
        "which it is known that they differ; else *undetermined*.",
        f"**Intervals.** Of cells without a finding, {interval}s of φ (Zou & Donner 2008). Findings were chosen for "
        "being large, so theirs are wider: false-coverage-rate limits at confidence 1\u00a0−\u00a0α·R/m for R findings "
        "of m tests (Benjamini & Yekutieli 2005), of which a share of α at most is expected to miss.",
        "**Groups.** Findings of one classifier and class that say the same are one group, told by its strongest. "
        "*Mirror*: φ sums to 0 over an attribute’s values, so one bad value makes the others look good; a finding "
        "whose φ falls within ±τ once the values that stand by themselves are left out mirrors them. *Complement*: the "
        "other value of an attribute of two. *Says the same*: a value of another attribute whose images are mostly the "
        "same images, or of which no images tell it apart.",
    ]
    if "pooled" in present:
        paragraphs.append(
            "**Over all classes.** The mean of the classes’ φ of one value, each class compared within itself, with a "
            "false discovery rate of its own over all values of all classifiers."
        )
    if "intersections" in present:
        paragraphs.append(
            "**Interaction.** The accuracy of a cell of two values minus what the additive model of the two "
            "attributes, fitted to the pair’s other cells by least squares, predicts for it, within 0 and 100 %; with "
            "two values each, the difference of differences. It is the interaction of the two-way layout (Scheffé "
            "1959) with the cell left out of its own prediction, as φ leaves it out; its verdict follows the same "
            "rule, with q over all cells of all pairs of all classifiers. One bad cell bends the predictions of all "
            "others: the strongest finding of a pair is set aside and the rest is fitted again, until all that is left "
            "is explained; what was odd before and is not any more is a shadow of the cell set aside."
        )
    if "shown" in present:
        paragraphs.append(
            "**Correction.** The accuracies on an attribute’s values, which values its images show and how the "
            "verifier errs are estimated together by maximum likelihood, from the verifier’s answers, the "
            "classifier’s, and what is known of the verifier; the intervals carry the doubt about all three. With two "
            "values the share that shows a value is Rogan & Gladen’s (1978) estimate; the whole is a latent-class "
            f"model (Hui & Walter 1980). A cell is in doubt, and without a verdict, where {_DOUBTED}."
        )
    if "sources" in present:
        fixed = " This takes the numbers of images as fixed beforehand." if "spent" in present else ""
        paragraphs.append(
            "**Agreement.** Two sources are *different* in a cell where their φ differ by more than τ and the "
            "difference is not 0 at the false discovery rate α over a classifier’s cells; the *same* where the whole "
            f"{interval} of the difference (Zou & Donner 2008) lies within ±{words.decimal(MARGIN * tau)}; else "
            f"*undetermined*.{fixed}"
        )
    if "spent" in present:
        shows = (
            " An image counts there for the value that the verifier says it shows; the verifier’s own errors are "
            "corrected in φ alone."
        )
        paragraphs.append(
            "**Looking on the way.** Verdicts hold under continuous peeking, at whatever look the run stopped: they "
            "rest on e-values of bets against each claim (Waudby-Smith & Ramdas 2024), found at the false discovery "
            "rate α by e-BH (Wang & Ramdas 2022), where p is 1/e; the interval of φ covers the confidence sequence."
            f"{shows if 'shown' in present else ''}"
        )
    if "looks" in present:
        paragraphs.append(
            "**Looks.** Texture, colours and background are described by numbers without a model: local binary "
            "patterns and gradients at four scales, a histogram of colours, and both of the outer 15\u00a0% of each "
            "side. An answer follows the class where it is right, or what most images of the class are called. Of the "
            "others, one follows a look where it is the commonest answer to the ten images of other classes that are "
            "nearest in that look and do not follow their class either: so that classes that are merely mistaken for "
            "each other are no evidence. Chance permutes these answers within each class. It is said that answers "
            "follow a look rather than the class where that is no chance at α over all looks and classifiers "
            "(Bonferroni), and where at the lower limits (robust to clusters, by class and by answer; Liang & Zeger "
            "1986) they are more than a tenth of all answers and more than those that follow the class."
        )
    paragraphs.append(
        "**The paper’s verdict** is |φ| > τ alone (C2B, section 4), however few the images; it stands beside ours, and "
        "≠ marks where the two disagree."
    )
    return Terms(paragraphs)
