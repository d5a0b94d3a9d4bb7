"""The fields of a failures file (`c2b failures`), each checked by itself and together with related ones.

It knows fields and their limits, not what a run does with them, nor files.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from c2b_ray.config.classifiers import Classifiers, LabelMap, specs_by_name
from c2b_ray.config.failure_rule import FailureRule
from c2b_ray.config.strict import Name, SpecText, Strict, distinct

ALL, AUTO = "all", "auto"
ANY_LABEL = "any label"
"""For labelled images: all labels together."""
LABEL, PARENT = "{label}", "({parent})"
_LABELS = {"anyOf": [{"const": ALL}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_NO_IMAGES = "say where images come from: {generate: {model: spec}} or {labelled: {table: path}}"


class Generate(Strict):
    model: SpecText = Field(
        description="The spec of an image generator, such as `world:renderer` or `diffusers:org/name`."
    )


class Labelled(Strict):
    table: str = Field(description="A table or folder of labelled images; its other columns are what captions say.")
    columns: dict[Name, Name] | None = Field(
        None, description="`image`, `target_class` or `key` → what the table calls it, where it calls it otherwise."
    )


class Source(Strict):
    """The source of a caption's images: a generator, or labelled images that take the place of its draws."""

    generate: Generate | None = None
    labelled: Labelled | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Source:
        if (self.generate is None) == (self.labelled is None):
            raise ValueError(_NO_IMAGES)
        return self


class Generalise(Strict):
    """The other sources on which the captions of failures are tried."""

    generators: list[SpecText] = Field(default_factory=list, description="Specs of other image generators.")
    index: str | None = Field(None, description="An index of real images, by its path.")
    runs: int = Field(
        10,
        ge=4,
        le=100,
        description="Runs of each caption, and of its baseline, that are compared; of three a side the exact test "
        "could never give a p below 0.1.",
    )
    images: int = Field(100, ge=1, le=100_000, description="Images of each run.")


class DrawBudget(Strict):
    """The number of images that may be drawn, over all labels and captions."""

    draws: int = Field(200_000, ge=100, le=10_000_000_000, description="Images in all.")
    discovery: float = Field(
        0.6, gt=0, lt=1, description="The share that captions are chosen on; their rates are measured on the rest."
    )


class FailuresConfig(Strict):
    """A search for captions that make a classifier fail, and how often."""

    labels: Annotated[list[Name], WithJsonSchema(_LABELS)] = Field(
        description="The labels whose images are looked at, in the words of captions; `all`: the classes of "
        "`label_map`, or without one the classifier's labels.",
    )
    classifier: Classifiers = Field(
        description="A model spec, or several that answer for the same images: a list, or short names of one's own → "
        "specs.",
    )
    images: Source
    rule: FailureRule = Field(
        "top1",
        description="Which answers are failures. top1: the likeliest label is another; top1_parent: and does not share "
        "the label's parent; top3: the label is not among the three likeliest; top3_parent: none of them shares its "
        "parent.",
    )
    confidence: float = Field(
        0.0, ge=0, lt=1, description="A failure counts only where the likeliest label has at least this probability."
    )
    true_below: float = Field(
        1.0, gt=0, le=1, description="A failure counts only where the true label has at most this probability."
    )
    targets: dict[Name, list[Name]] | None = Field(
        None,
        description="Label → the wrong labels that are looked for; of labelled images also `any label`, for all "
        "together. By default those that failures are taken for.",
    )
    hierarchy: str | None = Field(
        None, description="`world`, `imagenet`, a YAML or CSV file of label → parent, or a folder of WordNet's files."
    )
    prompt: Name = Field(
        "a realistic photograph of a {label} ({parent}).",
        description='The baseline caption. "({parent})" falls away without a hierarchy.',
    )
    label_map: LabelMap | None = Field(
        None, description="Label → labels of the classifier (indices or names), or the path of a JSON file of them."
    )
    captioner: SpecText | None = Field(None, description="The spec of a captioner that describes failures.")
    encoder: SpecText | None = Field(
        None,
        description="The spec of a text-image encoder: groups failures by what they look like, and compares captions "
        "with images where the captioner gives captions no scores. Without it descriptions group failures.",
    )
    language_model: SpecText | None = Field(None, description="The spec of a language model that shortens captions.")
    verifier: SpecText | None = Field(
        None, description="The spec of a captioner that says whether generated images show their label."
    )
    captions: list[Name] = Field(
        default_factory=list, description="Captions of one's own, which name a label, such as `a fly on a leaf`."
    )
    generalise: Generalise | None = Field(None, description="Tries the captions of failures on other images.")
    labelled: str | None = Field(
        None, description="A table of labelled images, whose failure rates stand beside the baseline's."
    )
    budget: DrawBudget = DrawBudget()
    alpha: float = Field(0.05, gt=0, lt=1, description="False discovery rate; intervals have confidence 1 − alpha.")
    seed: int = Field(0, ge=0, lt=2**31)

    @field_validator("labels", mode="before")
    @classmethod
    def _some_labels(cls, labels: Any) -> Any:
        if labels == []:
            raise ValueError("name at least one label, or `all`")
        if isinstance(labels, str) and labels != ALL:
            raise ValueError(f"expected a list of names, or `{ALL}`, not {labels[:100]!r}")
        return [] if labels == ALL else labels

    @field_validator("targets", mode="before")
    @classmethod
    def _targets_or_auto(cls, targets: Any) -> Any:
        return None if targets == AUTO else targets

    @field_validator("labels", "captions")
    @classmethod
    def _distinct_names(cls, names: list[str]) -> list[str]:
        distinct(names, "name")
        return names

    @field_validator("prompt")
    @classmethod
    def _with_the_label(cls, prompt: str) -> str:
        if prompt.count(LABEL) != 1:
            raise ValueError(f"{prompt!r} must hold {LABEL} once, so that every caption names its label")
        return prompt

    @model_validator(mode="after")
    def _what_goes_together(self) -> FailuresConfig:
        if self.rule.endswith("_parent") and self.hierarchy is None:
            raise ValueError(f"rule: {self.rule} compares parents; name a `hierarchy`, such as world or imagenet")
        if self.images.generate is not None and self.captioner is None and not self.captions:
            raise ValueError("give `captioner`, `captions`, or both: without them there is nothing to test")
        if self.images.labelled is not None:
            self._check_labelled()
        for label in self.targets or {}:
            if label == ANY_LABEL and self.images.labelled is not None:
                continue
            if self.labels and label not in self.labels:
                raise ValueError(f"targets: {label!r} is none of `labels`")
        return self

    def _check_labelled(self) -> None:
        for name in ("captioner", "encoder", "language_model", "verifier", "generalise", "labelled"):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` is for generated images; what labelled ones show is in their table")
        if self.captions:
            raise ValueError("`captions` are for a generator; captions of labelled images are their columns' values")

    @property
    def specs(self) -> dict[str, str]:
        """The spec of each classifier by its name."""
        return specs_by_name(self.classifier)
