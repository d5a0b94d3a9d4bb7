"""The fields of an audit file, each checked by itself and together with related ones.

It knows fields and their limits, not what an audit does with them, nor files.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from c2b_ray.config.classifiers import Classifiers, LabelMap, specs_by_name
from c2b_ray.config.images import Images
from c2b_ray.config.strict import Name, SpecText, Strict, distinct
from c2b_ray.config.verification import Verification
from c2b_ray.errors import nearest
from c2b_ray.names import normalise

Right = Literal["top1", "among_classes", "top5"]
"""Which answers are right: see `AuditConfig.right`."""

ALL = "all"
_CLASSES = {"anyOf": [{"const": ALL}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
IMAGES_PER_CAPTION = 40
"""The default for images that are drawn; all labelled images are used."""


class Budget(Strict):
    """Images are drawn until every verdict is settled or the budget is spent."""

    images: int = Field(ge=1, le=100_000_000, description="Images to draw in all, over the whole audit.")
    first: int = Field(
        25, ge=2, le=100_000, description="Images per caption before the first look; twice as many before the next."
    )


class AuditConfig(Strict):
    """An audit: a classifier, a sentence about its task, and the source of its images."""

    task: Name = Field(description="What the classifier is for, in a sentence.")
    classes: Annotated[list[Name], WithJsonSchema(_CLASSES)] = Field(
        description="The task's classes, in the words of captions; `all`: the classes of `label_map`, or without one "
        "the classifier's labels.",
    )
    classifier: Classifiers = Field(
        description="A model spec, or several that are audited on the same images: a list, or short names of one's own "
        "→ specs, which every table, page and option then calls them by.",
    )
    images: Images
    verification: Verification | None = Field(
        None, description="Checks that images show what their captions say, and corrects scores for those that do not."
    )
    language_model: SpecText | None = Field(
        None, description="A model spec. Proposes attributes, writes captions; without it `attributes` must be given."
    )
    attributes: dict[Name, list[Name]] | None = Field(
        None,
        description="Hypotheses of one's own, name → values. They join the language model's, or replace them where "
        "`language_model` is null. A labelled table's columns stand in for both.",
    )
    templates: dict[Name, str] = Field(
        default_factory=dict,
        description="Attribute → how its captions are worded, with the places [CLASS] and [VALUE], such as lighting: "
        '"a photo of a [CLASS] in [VALUE] light". Other attributes are worded by the language model, or by rules.',
    )
    budget: Budget | None = Field(
        None,
        description="Draws images only until each verdict is settled, most where evidence is thin; "
        "`images_per_caption` is then the most for any caption.",
    )
    intersections: list[tuple[Name, Name]] = Field(
        default_factory=list,
        description="Pairs of attributes to look at together: each combination of their values gets a cell, and is "
        "held against what the two attributes, taken alone, explain.",
    )
    images_per_caption: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description=f"By default {IMAGES_PER_CAPTION} of images that are drawn; of labelled ones, which have one "
        "caption for each value, all. The paper's is 20.",
    )
    captions_per_cell: int = Field(
        5,
        ge=1,
        le=100,
        description="Captions per class, attribute and value. What is measured varies from caption to caption, and "
        "only several show by how much.",
    )
    confirm: bool = Field(
        False,
        description="Measures findings once more, on as many images that had no part in finding them: made with other "
        "seeds, or accepted by the verifier among those of the pool that were not drawn.",
    )
    seed: int = Field(0, ge=0, lt=2**31)
    tau: float = Field(0.05, ge=0, lt=1, description="Smallest |φ| that counts as a bias.")
    alpha: float = Field(0.05, gt=0, lt=1, description="False discovery rate; intervals have confidence 1 − alpha.")
    right: Right = Field(
        "top1",
        description="When an answer is right. top1: the likeliest of all the classifier's labels stands for the class; "
        "top5: one of the five likeliest does; among_classes: of the audit's classes alone, the class is the "
        "likeliest, whatever other labels are likelier.",
    )
    label_map: LabelMap | None = Field(
        None,
        description="Class → labels of the classifier (indices or names), or the path of a JSON file of that form. "
        "An answer with any of them is the class (by right: among_classes, its probability is the mean over them). "
        "Without it each class must be one of the labels.",
    )

    @field_validator("classes", mode="before")
    @classmethod
    def _some_classes(cls, classes: Any) -> Any:
        if classes == []:
            raise ValueError("name at least one class, or `all`")
        if isinstance(classes, str) and classes != ALL:
            raise ValueError(f"expected a list of names, or `{ALL}`, not {classes[:100]!r}")
        return [] if classes == ALL else classes

    @field_validator("classes")
    @classmethod
    def _distinct_classes(cls, classes: list[str]) -> list[str]:
        distinct(classes, "class")
        return classes

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
            raise ValueError("`verification` is for images that were drawn by a caption; labelled ones are known")
        if not labelled and self.language_model is None and not self.attributes:
            raise ValueError("give `language_model`, `attributes`, or both: without them there is nothing to test")
        known = {normalise(name) for name in self.attributes or {}}
        for name in self.templates:
            if labelled:
                raise ValueError("`templates` are for captions; labelled images have none")
            if self.language_model is None and normalise(name) not in known:
                raise ValueError(f"templates: no attribute is {name!r}; {nearest(name, self.attributes or {})}")
        if self.right == "among_classes" and len(self.classes) == 1:
            raise ValueError("right: among_classes needs two classes or more: of one, every answer would be right")
        if isinstance(self.label_map, dict) and self.classes:
            for name in self.label_map:
                if name not in self.classes:
                    raise ValueError(f"label_map has {name!r}, not in `classes`; {nearest(name, self.classes)}")
        return self

    @property
    def slots(self) -> int:
        """The number of captions of each cell: one for labelled images."""
        return 1 if self.images.sources == ("labelled",) else self.captions_per_cell

    @property
    def images_per_cell(self) -> int | None:
        """The number of distinct images that each cell wants from each source; None: all."""
        return None if self.images_per_caption is None else self.images_per_caption * self.slots

    @property
    def of_all_classes(self) -> bool:
        """Whether the classes are still to be read from the label map or the classifier."""
        return not self.classes

    @property
    def classifiers(self) -> tuple[str, ...]:
        """The classifiers' names in tables, pages and options: those of the config, else the specs."""
        return tuple(self.specs)

    @property
    def specs(self) -> dict[str, str]:
        """The spec of each classifier by its name."""
        return specs_by_name(self.classifier)
