"""The fields of a failures file (`c2b failures`); checks each one, and combinations of them.

It knows fields and their limits, not what a run does with them, nor files.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from c2b_ray.config.classifiers import Classifiers, LabelMap, specs_by_name
from c2b_ray.config.images import Columns
from c2b_ray.config.named import (
    NAMES_OR_ALL,
    CaptionerSpec,
    EncoderSpec,
    GeneratorSpec,
    HierarchyName,
    IndexPath,
    LanguageModelSpec,
    Name,
    StrictModel,
    TablePath,
    distinct,
    known_columns,
    names_or_all,
)
from c2b_ray.config.reading import ConfigFile, search_words
from c2b_ray.storage.manifest import FileOrFields

# The names of the failure rules (Wiles et al. 2022), which are defined in `discovery/rounds.py`.


FailureRule = Literal["top1", "top1_parent", "top3", "top3_parent"]


AUTO = "auto"
ANY_LABEL = "any label"
"""Stands for all labels of labelled images together."""
LABEL = "{label}"
SMALLEST_RATIO = 2.0
"""The ratio of runs that do not choose one."""
_NO_IMAGES = "name a source of images: {generate: {model: spec}} or {labelled: {table: path}}"


class Generate(StrictModel):
    model: GeneratorSpec = Field(
        description="The spec of an image generator, such as `world:renderer` or `diffusers:org/name`."
    )


class Labelled(StrictModel):
    table: TablePath = Field(
        description="A table or folder of labelled images; captions consist of the values of its other columns."
    )
    columns: dict[Name, Name] | None = Field(
        None, description="`image`, `target_class` or `key` → the table's name of this column, if it differs."
    )
    cluster: Name | None = Field(
        None,
        description="The column that tells which images belong together, such as camera, patient or video; or "
        "`folder`: the folder that an image lies in. Whole clusters then choose captions, test them or measure them, "
        "and tests and intervals take clusters, not images, as the independent samples. The column is no cause. A row "
        "without a value is a cluster of its own.",
    )

    @model_serializer(mode="wrap")
    def _as_before(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out `cluster` where it is not set, so that runs from before there was one have their id."""
        fields: dict[str, Any] = serialise(self)
        if fields.get("cluster") is None:
            fields.pop("cluster", None)
        return fields

    @field_validator("columns")
    @classmethod
    def _known(cls, columns: dict[str, str] | None) -> dict[str, str] | None:
        known_columns(columns, tuple(Columns.model_fields))
        return columns


class Source(StrictModel):
    """The source of a caption's images: a generator, or labelled images instead of draws."""

    generate: Generate | None = Field(None, description="Generates the images of each caption.")
    labelled: Labelled | None = Field(None, description="Takes labelled images instead of draws.")

    @model_validator(mode="after")
    def _one_of_them(self) -> Source:
        if (self.generate is None) == (self.labelled is None):
            raise ValueError(_NO_IMAGES)
        return self


class Generalise(StrictModel):
    """Other sources of images, on which the captions of failures are tested."""

    generators: list[GeneratorSpec] = Field(default_factory=list, description="Specs of other image generators.")
    index: IndexPath | None = Field(None, description="The path of an index of real images.")
    runs: int = Field(
        10,
        ge=4,
        le=100,
        description="The number of runs of each caption, and of its baseline, to compare. With three on each side the "
        "exact test could never give p < 0.1.",
    )
    images: int = Field(100, ge=1, le=100_000, description="The images of each run.")


class DrawBudget(StrictModel):
    """The number of images to draw for all labels and captions."""

    draws: int = Field(200_000, ge=100, le=10_000_000_000, description="The number of images in total.")
    discovery: float = Field(
        0.6,
        gt=0,
        lt=1,
        description="The share of images for choosing captions; failure rates are measured on the rest.",
    )


class FailuresConfig(StrictModel):
    """A search for captions that make a classifier fail, and for how often each does."""

    labels: Annotated[list[Name], WithJsonSchema(NAMES_OR_ALL)] = Field(
        description="The labels to search, in the words of captions. `all`: the classes of `label_map`, or without "
        "one the labels of the classifier.",
    )
    classifier: Classifiers = Field(
        description="A model spec; or several that classify the same images: a list of specs, or a mapping of short "
        "names → specs.",
    )
    images: Source = Field(description="The source of the images.")
    rule: FailureRule = Field(
        "top1",
        description="Which answers are failures. top1: the most probable label is a wrong one. top1_parent: and it "
        "does not share the label's parent. top3: the label is not among the three most probable ones. top3_parent: "
        "none of these shares its parent.",
    )
    confidence: float = Field(
        0.0, ge=0, lt=1, description="A failure counts only if the most probable label has at least this probability."
    )
    true_below: float = Field(
        1.0, gt=0, le=1, description="A failure counts only if the true label has at most this probability."
    )
    targets: dict[Name, list[Name]] | None = Field(
        None,
        description="Label → the wrong labels to search for; for labelled images also `any label`, for all labels "
        "together. Default: the most frequent wrong labels.",
    )
    hierarchy: HierarchyName | None = Field(
        None,
        description="The labels' parents: `world`, `imagenet`, a YAML or CSV file of label → parent, or a folder of "
        "WordNet's files.",
    )
    prompt: Name = Field(
        "a realistic photograph of a {label} ({parent}).",
        description='The baseline caption. Without a hierarchy, "({parent})" is omitted.',
    )
    label_map: LabelMap | None = Field(
        None,
        description="Label → labels of the classifier (indices or names), or the path of a JSON file with this "
        "mapping.",
    )
    captioner: CaptionerSpec | None = Field(None, description="The spec of a captioner that describes failures.")
    encoder: EncoderSpec | None = Field(
        None,
        description="The spec of a text-image encoder. It groups failures by their appearance, and scores captions if "
        "the captioner does not. Without it, failures are grouped by their descriptions.",
    )
    language_model: LanguageModelSpec | None = Field(
        None, description="The spec of a language model that shortens captions."
    )
    verifier: CaptionerSpec | None = Field(
        None, description="The spec of a captioner that says whether generated images show their label."
    )
    captions: list[Name] = Field(
        default_factory=list, description="Your captions, each with a label in it, such as `a fly on a leaf`."
    )
    generalise: Generalise | None = Field(
        None, description="Tests the captions of failures on images of other sources."
    )
    labelled: TablePath | None = Field(
        None, description="A table of labelled images, whose failure rates are reported beside the baseline's."
    )
    budget: DrawBudget = Field(DrawBudget(), description="The number of images to draw.")
    alpha: float = Field(0.05, gt=0, lt=1, description="False discovery rate; intervals have confidence 1 − alpha.")
    smallest_ratio: float = Field(
        SMALLEST_RATIO,
        ge=1.1,
        le=20,
        description="The smallest ratio of a caption's failure rate to that of the bare prompt that is searched for: "
        "captions that seem to fail less often are given up. A smaller one takes more images.",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="The seed of all random draws.")

    @model_serializer(mode="wrap")
    def _as_before(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out a `smallest_ratio` that was not chosen, so that runs from before there was one have their id."""
        fields: dict[str, Any] = serialise(self)
        if fields.get("smallest_ratio") == SMALLEST_RATIO:
            del fields["smallest_ratio"]
        return fields

    @field_validator("labels", mode="before")
    @classmethod
    def _some_labels(cls, labels: Any) -> Any:
        return names_or_all(labels, "label")

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
                raise ValueError(f"`{name}` is for generated images; the table says what labelled ones show")
        if self.captions:
            raise ValueError("`captions` are for a generator; the columns' values are the captions of labelled images")

    @property
    def specs(self) -> dict[str, str]:
        """The spec of each classifier by its name."""
        return specs_by_name(self.classifier)


def most_images(config: FailuresConfig) -> int:
    """Returns the most images that a run draws."""
    return config.budget.draws


# Reads and checks a failures file once, at the edge; its paths become absolute, relative to that file.


FILE = ConfigFile(FailuresConfig, "c2b failures", classes="labels", worded=search_words)


def read_failures_config(
    source: FileOrFields | FailuresConfig, classifier: dict[str, str] | None = None
) -> FailuresConfig:
    """Returns the config of a run; see `ConfigFile.read`."""
    return FILE.read(source, classifier)
