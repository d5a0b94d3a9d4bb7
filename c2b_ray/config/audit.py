"""The fields of an audit file; checks each one, and combinations of them.

It knows fields and their limits, not what an audit does with them, nor files.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from c2b_ray.config.classifiers import Classifiers, LabelMap, specs_by_name
from c2b_ray.config.images import GivenPerturbations, Images, Perturb, read_perturb
from c2b_ray.config.named import (
    NAMES_OR_ALL,
    EncoderSpec,
    LanguageModelSpec,
    Name,
    Names,
    StrictModel,
    Verification,
    distinct,
    names_or_all,
)
from c2b_ray.errors import nearest
from c2b_ray.names import normalise

Right = Literal["top1", "among_classes", "top5"]
"""The rules by which an answer is right: see `AuditConfig.right`."""

METRICS = ("accuracy", "recall", "precision", "f1", "balanced_accuracy", "confidence", "auroc", "calibration")
Metric = Annotated[Name, WithJsonSchema({"type": "string", "enum": list(METRICS)})]
"""The metric that cells are compared by: see `AuditConfig.metric`."""
OWN_METRIC = "python:"
"""How the name of a metric begins that is a function of one's own, passed to `audit` in Python."""
OF_CLASS = ("accuracy", "recall", "confidence")
"""The metrics of a class's images alone; the others look at images of all classes."""

Probability = Annotated[float, Field(gt=0, lt=1)]

IMAGES_PER_CAPTION = 40
"""The default number of drawn images; of labelled images all are used."""


class Budget(StrictModel):
    """A limit on the images: they are drawn until every verdict is settled or the limit is reached."""

    images: int = Field(ge=1, le=100_000_000, description="The most images to draw in the whole audit.")
    first: int = Field(
        25,
        ge=2,
        le=100_000,
        description="Images of each caption for the first evaluation, which takes at most a fifth of the budget unless "
        "that is less than ten images of each cell; each further one doubles the number at most.",
    )
    none: bool = Field(
        True,
        description="Whether images are spent on showing that a value makes no difference (`none`). If false, they are "
        "spent on findings alone; `none` is still said where images that were drawn for these show it.",
    )

    @model_serializer(mode="wrap")
    def _without_default(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out `none` where it was not given up: runs of releases without the field are resumed."""
        fields: dict[str, Any] = serialise(self)
        if fields.get("none") is True:
            del fields["none"]
        return fields


SCREENING_IMAGES = 100
"""The default number of a cell's images in the first of two stages: with 60, hardly any cell could be `none`."""
FRESH_IMAGES: Final = "fresh"
ALL_IMAGES: Final = "all"
"""Which images the second of two stages tests."""
RETRIEVED_BESIDES = 400
"""The default number of further images of a cell where images are retrieved: with 600, a φ of .15 is found in 19 of 20
audits of a thousand cells, with 200 in one of three."""
_NOT_IN_CLUSTERS = {
    "budget": "takes images as independent",
    "intersections": "takes images as independent",
    "verification": "corrects answers as if images were independent",
    "confirm": "takes fresh images as independent of the earlier ones",
    "screening": "takes fresh images as independent of the earlier ones",
}
"""What cannot be combined with `images.cluster`, and why."""


class Screening(StrictModel):
    """Two stages: `images_per_caption` images of every caption; then further ones of the attributes whose φ looks
    large."""

    least: float = Field(
        0.08,
        gt=0,
        lt=1,
        description="The |φ| of any value, for any classifier, from which an attribute of a class is "
        "examined on further images.",
    )
    fresh: int = Field(300, ge=2, le=100_000, description="Further images of each cell of such an attribute.")
    tested: Literal["fresh", "all"] = Field(
        FRESH_IMAGES,
        description="The images that such an attribute is tested on. `fresh`: the further ones alone, in a family of "
        "tests of their own. `all`: those of both stages, in one family with all other cells; for sources that hold "
        "few further images.",
    )

    @model_serializer(mode="wrap")
    def _without_default(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out `tested` where it is `fresh`: runs of releases without the field are resumed."""
        fields: dict[str, Any] = serialise(self)
        if fields.get("tested") == FRESH_IMAGES:
            del fields["tested"]
        return fields

    @property
    def tests_all(self) -> bool:
        return self.tested == ALL_IMAGES


class LabelErrors(StrictModel):
    """How images are found whose label may be wrong."""

    encoder: EncoderSpec | None = Field(
        None,
        description="The spec of a text-image encoder, which never saw the labels: an image is listed where most of "
        "its ten nearest images there are labelled as the classifier answered. Without it the answers alone decide.",
    )


class AuditConfig(StrictModel):
    """An audit: a classifier, a sentence about its task, and the source of its images."""

    task: Name = Field(description="The task of the classifier, in one sentence.")
    classes: Annotated[list[Name], WithJsonSchema(NAMES_OR_ALL)] = Field(
        description="The task's classes, in the words of captions. `all`: the classes of `label_map`, or without one "
        "the labels of the classifier.",
    )
    classifier: Classifiers = Field(
        description="A model spec; or several, audited on the same images: a list of specs, or a mapping of short "
        "names → specs. Tables, pages and options use these names.",
    )
    images: Images
    verification: Verification | None = Field(
        None,
        description="Checks whether images show what their captions say, and corrects the scores for images that do "
        "not.",
    )
    language_model: LanguageModelSpec | None = Field(
        None,
        description="The spec of the language model that proposes attributes and writes captions. Without it, "
        "`attributes` is required.",
    )
    attributes: dict[Name, list[Name]] | None = Field(
        None,
        description="Your hypotheses: attribute → values. They are added to those of the language model, or replace "
        "them if `language_model` is null. Labelled images take the columns of their table, and with `images.read` "
        "also attributes that are no column of it.",
    )
    templates: dict[Name, Annotated[str, Names.NOTHING]] = Field(
        default_factory=dict,
        description="Attribute → the wording of its captions, with the placeholders [CLASS] and [VALUE], such as "
        'lighting: "a photo of a [CLASS] in [VALUE] light". The language model, or rules, word the captions of other '
        "attributes.",
    )
    budget: Budget | None = Field(
        None,
        description="Draws images only until every verdict is settled, most of them where evidence is weakest. "
        "`images_per_caption` then limits the images of each caption.",
    )
    screening: Screening | None = Field(
        None,
        description="Examines every cell on a few images, and on further ones where these show a large |φ|. "
        f"`images_per_caption` is then the size of the first stage, by default {SCREENING_IMAGES} images of each cell, "
        f"with `tested: all` {IMAGES_PER_CAPTION} of each caption. The default where neither `images_per_caption`, "
        "`budget`, `confirm` nor `intersections` is set and images are generated, or retrieved and verified: then with "
        f"`tested: all`, and {RETRIEVED_BESIDES} further images of each cell.",
    )
    perturb: Perturb | None = Field(
        None,
        description="Answers the same labelled images once more perturbed: blurred, noisy, dark, and so on. `true`: by "
        "all perturbations; a list of names: by these; a mapping: at these levels, such as {blur: [1, 3, 5]}. An audit "
        "with it needs no attributes.",
    )
    label_errors: LabelErrors | None = Field(
        None,
        description="Lists the labelled images whose label, rather than the model, may be wrong: answers that "
        "contradict the label with confidence. `{encoder: SPEC}`: those that the neighbours share; `true`: without an "
        "encoder.",
    )
    intersections: list[tuple[Name, Name]] = Field(
        default_factory=list,
        description="Pairs of attributes to study together: each combination of their values is a cell, compared with "
        "what the two attributes explain separately.",
    )
    images_per_caption: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description=f"Images of each caption. Default: {IMAGES_PER_CAPTION} of drawn images, or where `screening` "
        f"tests fresh images {SCREENING_IMAGES} of each cell; of labelled images, which have one caption for each "
        "value, all. The paper uses 20.",
    )
    captions_per_cell: int = Field(
        5,
        ge=1,
        le=100,
        description="Captions per class, attribute and value. Accuracy varies between captions, and only several "
        "captions show by how much.",
    )
    confirm: bool = Field(
        False,
        description="Measures each finding again, on as many images that had no part in it: generated with other "
        "seeds, or accepted by the verifier among those of the pool that were not drawn.",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="The seed of all random draws.")
    tau: float = Field(0.05, ge=0, lt=1, description="The smallest |φ| that counts as a bias.")
    alpha: float = Field(0.05, gt=0, lt=1, description="False discovery rate; intervals have confidence 1 − alpha.")
    right: Right = Field(
        "top1",
        description="Which answers are right. top1: the most probable of all the classifier's labels belongs to the "
        "class. top5: one of the five most probable does. among_classes: the class is more probable than the audit's "
        "other classes, whatever other labels are more probable.",
    )
    metric: Metric = Field(
        "accuracy",
        description="What cells are compared by. accuracy, recall: the share of the class's images that are right, by "
        "either name. confidence: the mean probability of the class on its images. Of images of all classes with the "
        "value, of which labelled ones tell their class: precision: the share of the answers with the class that are "
        "right; f1: its harmonic mean with recall; balanced_accuracy: the mean of the shares of the class's images and "
        "of the others that are right; auroc: how well the probability of the class tells it from the others; "
        "calibration: 1 minus the expected calibration error of this probability. Another metric is a function "
        "that Python passes.",
    )
    threshold: Probability | dict[Name, Probability] | None = Field(
        None,
        description="The probability from which a label is given, of classifiers whose labels are each on their own "
        "(multi-label, ?head=sigmoid): one for all classes, or class → probability; default 0.5. Of a classifier of "
        "two labels, such as one sigmoid, the probability from which the second is the answer, or {class: "
        "probability} for either; without it the likelier one is.",
    )
    keep_images: bool = Field(
        False,
        description="Copies the bytes of all images into the run. Otherwise the run holds them of generated images and "
        "of those that its report shows; others are read where they lie, and checked against their hashes, so they "
        "must stay there until the audit has finished.",
    )
    label_map: LabelMap | None = Field(
        None,
        description="Class → labels of the classifier (indices or names), or the path of a JSON file with this "
        "mapping. An answer with any of the labels counts as the class; with right: among_classes, the probability of "
        "a class is the mean over its labels. Without it each class must be a label.",
    )

    check: bool = Field(
        True,
        description="Answers a few hundred labelled images of all classes first, and stops where these answers show "
        "that the classifier is set up wrongly: its label names are in another order than its outputs, for example. "
        "`false`: goes on anyway.",
    )

    @field_validator("classes", mode="before")
    @classmethod
    def _some_classes(cls, classes: Any) -> Any:
        return names_or_all(classes, "class")

    @field_validator("classes")
    @classmethod
    def _distinct_classes(cls, classes: list[str]) -> list[str]:
        distinct(classes, "class")
        return classes

    @field_validator("metric")
    @classmethod
    def _known_metric(cls, metric: str) -> str:
        if metric not in METRICS and not metric.startswith(OWN_METRIC):
            raise ValueError(f"there is no metric {metric!r}; {nearest(metric, METRICS)}")
        return metric

    @field_validator("perturb", mode="before", json_schema_input_type=Perturb | GivenPerturbations)
    @classmethod
    def _perturbations(cls, perturb: Any) -> Any:
        return read_perturb(perturb)

    @field_validator("label_errors", mode="before", json_schema_input_type=bool | LabelErrors | None)
    @classmethod
    def _label_errors(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @field_validator("attributes")
    @classmethod
    def _values_to_compare(cls, attributes: dict[str, list[str]] | None) -> dict[str, list[str]] | None:
        distinct(list(attributes or {}), "attribute")
        for name, values in (attributes or {}).items():
            distinct(values, f"value of {name!r}")
            if len(values) < 2:
                raise ValueError(f"{name!r} has {len(values)} value(s); φ compares at least two")
        return attributes

    @field_validator("templates")
    @classmethod
    def _with_both_placeholders(cls, templates: dict[str, str]) -> dict[str, str]:
        distinct(list(templates), "attribute")
        for name, template in templates.items():
            for placeholder in ("[CLASS]", "[VALUE]"):
                if template.count(placeholder) != 1:
                    raise ValueError(f"{name}: {template!r} must hold {placeholder} once")
        return templates

    @field_validator("intersections")
    @classmethod
    def _pairs_of_two(cls, intersections: list[tuple[str, str]]) -> list[tuple[str, str]]:
        for a, b in intersections:
            if normalise(a) == normalise(b):
                raise ValueError(f"{a!r} is paired with itself; name two attributes")
        distinct([" × ".join(sorted(map(normalise, pair))) for pair in intersections], "pair")
        return intersections

    @model_validator(mode="after")
    def _some_hypotheses(self) -> AuditConfig:
        labelled = self.images.sources == ("labelled",)
        if self.verification is not None and labelled:
            raise ValueError(
                "`verification` is for images that were drawn by a caption; the attributes of labelled ones are known"
            )
        if self.images.read is not None:
            self._check_reading()
        for name in ("words", "slices"):
            if getattr(self.images, name) and self.budget:
                raise ValueError(
                    f"`budget` decides from the answers which images are drawn, and images.{name} needs the answers to "
                    "half of all images: leave one of them out"
                )
        if self.perturb is not None and not labelled:
            raise ValueError("perturb: the class of each image must be known, so it needs images of a labelled table")
        if self.label_errors is not None and not labelled:
            raise ValueError("label_errors: only images of a labelled table have labels that may be wrong")
        if self.label_errors is not None and len(self.classes) == 1:
            raise ValueError(
                "label_errors: an image of the only class can have no other label; name two classes or more"
            )
        if not labelled and self.language_model is None and not self.attributes:
            raise ValueError("give `language_model`, `attributes`, or both: without them there is nothing to test")
        normalised = {normalise(name) for name in self.attributes or {}}
        for name in self.templates:
            if labelled and self.images.read is None:
                raise ValueError("`templates` are for captions; labelled images have none")
            if self.language_model is None and normalise(name) not in normalised:
                raise ValueError(f"templates: there is no attribute {name!r}; {nearest(name, self.attributes or {})}")
        for name, reason in _NOT_IN_CLUSTERS.items():
            if self.images.cluster is not None and getattr(self, name):
                raise ValueError(f"`{name}` {reason}, and images.cluster says that they are not: leave one of them out")
        self._check_metric(labelled)
        for name in ("budget", "confirm", "intersections"):
            if self.screening is not None and getattr(self, name):
                raise ValueError(
                    f"screening: it decides itself which cells get further images; leave out `{name}`, or `screening`"
                )
        if labelled and self.budget and self.intersections and self.images_per_caption is None:
            raise ValueError(
                "`budget` and `intersections` of labelled images need `images_per_caption`: each combination of values "
                "draws that many at once, and without it all of its rows, which no budget limits"
            )
        if self.right == "among_classes" and len(self.classes) == 1:
            raise ValueError("right: among_classes needs two classes or more; with one, every answer would be right")
        if isinstance(self.label_map, dict) and self.classes:
            normalised = set(map(normalise, self.classes))
            for name in self.label_map:
                if normalise(name) not in normalised:
                    raise ValueError(f"label_map has {name!r}, not in `classes`; {nearest(name, self.classes)}")
        return self

    def _check_metric(self, labelled: bool) -> None:
        """Raises ValueError where the metric cannot be computed, or tested, from what the audit has."""
        metric = self.metric
        if metric in ("accuracy", "recall"):
            return
        if not labelled:
            raise ValueError(
                f"metric: {metric} needs images whose class and attributes are known, those of a labelled table: what "
                "retrieved and generated images show is estimated, and the estimate corrects accuracies alone. Use "
                "accuracy, or source: labelled"
            )
        if self.right == "top5":
            raise ValueError(f"metric: {metric} needs one answer for each image, and right: top5 counts five; use top1")
        for name in ("budget", "intersections"):
            if getattr(self, name):
                raise ValueError(f"`{name}` is settled by right and wrong answers; leave it out, or metric: {metric}")
        if self.images.cluster is not None:
            raise ValueError(
                f"metric: {metric} takes images as independent, and images.cluster says that they are not; leave one "
                "of them out"
            )

    def _check_reading(self) -> None:
        """Raises ValueError where values are to be read off images, and there is no question or no valid test."""
        if self.language_model is None and not self.attributes:
            raise ValueError(
                "images.read: name in `attributes` what is read off the images, or a `language_model` that proposes it"
            )
        reasons = {
            "budget": (self.budget, "takes the values of images as known"),
            "intersections": (self.intersections, "take the values of images as known"),
            "images.cluster": (self.images.cluster, "is not taken into account where scores are corrected"),
        }
        if self.metric not in ("accuracy", "recall"):
            raise ValueError(
                f"metric: {self.metric} takes the values of images as known, and the model of images.read may err: "
                "leave one of them out"
            )
        for name, (is_given, reason) in reasons.items():
            if is_given:
                raise ValueError(f"`{name}` {reason}, and the model of images.read may err: leave one of them out")

    @model_serializer(mode="wrap")
    def _without_default(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out `keep_images`, `label_errors`, `metric`, `perturb`, `screening` and `threshold` where they are not
        set: a run's id is made from these fields, and runs of releases without the fields are resumed."""
        fields: dict[str, Any] = serialise(self)
        for name in ("keep_images", "label_errors", "perturb", "screening", "threshold"):
            if name == "label_errors" and fields.get(name) is not None:
                continue  # without an encoder its fields are none
            if not fields.get(name):
                fields.pop(name, None)
        if fields.get("metric") == "accuracy":
            del fields["metric"]
        return fields

    @property
    def slots(self) -> int:
        """The number of captions of each cell: one for labelled images."""
        return 1 if self.images.sources == ("labelled",) else self.captions_per_cell

    @property
    def images_per_cell(self) -> int | None:
        """The number of distinct images of each cell from each source; None: all."""
        return None if self.images_per_caption is None else self.images_per_caption * self.slots

    @property
    def most_per_cell(self) -> int | None:
        """The most distinct images of each cell from each source, those of a second stage included; None: all."""
        first = self.images_per_cell
        if first is None:
            return None
        if self.screening is not None:
            return first + self.screening.fresh
        return 2 * first if self.confirm else first

    @property
    def keeps_probabilities(self) -> bool:
        """Whether the probabilities of all classes are kept of each answer."""
        return (
            self.label_errors is not None
            or self.metric in ("confidence", "auroc", "calibration")
            or self.metric.startswith(OWN_METRIC)
        )

    @property
    def of_all_classes(self) -> bool:
        """Whether the label map or the classifier has yet to name the classes."""
        return not self.classes

    @property
    def classifiers(self) -> tuple[str, ...]:
        """The classifiers' names in tables, pages and options: those in the config, else the specs."""
        return tuple(self.specs)

    @property
    def specs(self) -> dict[str, str]:
        """The spec of each classifier by its name."""
        return specs_by_name(self.classifier)
