"""The fields of a dataset file (`c2b dataset build`); checks each one, and combinations of them.

It knows fields and their limits, not what a build does with them, nor files.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from c2b_ray.audits.failures.config import FailureRule
from c2b_ray.config.classifiers import Classifiers, LabelMap, specs_by_name
from c2b_ray.config.images import Columns
from c2b_ray.config.named import (
    CaptionerSpec,
    GeneratorSpec,
    HierarchyName,
    IndexPath,
    LanguageModelSpec,
    Name,
    Names,
    RunPath,
    StrictModel,
    TablePath,
    distinct,
    known_columns,
)
from c2b_ray.config.reading import ConfigFile, dataset_words
from c2b_ray.names import folded
from c2b_ray.storage.manifest import FileOrFields

_ONE_ORIGIN = "name one origin of captions: run, file, language_model with labels, or images with captioner"


class Captions(StrictModel):
    """The source of the captions."""

    run: RunPath | None = Field(None, description="A run of `c2b failures`, which gives its failing captions.")
    file: Annotated[str, Names.CAPTIONS] | None = Field(
        None, description="A CSV or Parquet file with the columns `label` and `caption`."
    )
    language_model: LanguageModelSpec | None = Field(
        None, description="The spec of a language model that writes `per_label` captions of each label."
    )
    labels: list[Name] | None = Field(None, description="The labels for the language model.")
    per_label: int = Field(10, ge=1, le=10_000, description="Captions of each label by the language model.")
    images: TablePath | None = Field(
        None, description="A labelled table or folder of hard images, which the captioner describes."
    )
    captioner: CaptionerSpec | None = Field(None, description="The spec of the captioner of `images`.")
    sentences: int = Field(2, ge=1, le=10, description="The most sentences to keep of each image's caption.")

    @model_validator(mode="after")
    def _one_origin(self) -> Captions:
        origins = [self.run, self.file, self.language_model, self.images]
        if sum(origin is not None for origin in origins) != 1:
            raise ValueError(_ONE_ORIGIN)
        if (self.language_model is None) != (self.labels is None):
            raise ValueError("`language_model` and `labels` need each other: it writes captions of these labels")
        if (self.images is None) != (self.captioner is None):
            raise ValueError("`images` and `captioner` need each other: it describes these images")
        distinct(self.labels or [], "label")
        return self


class Generate(StrictModel):
    model: GeneratorSpec | list[GeneratorSpec] = Field(
        description="The spec of an image generator, or several, each of which draws images of every caption."
    )


class Labelled(StrictModel):
    table: TablePath = Field(description="A labelled table or folder, whose images replace draws.")
    columns: dict[Name, Name] | None = Field(
        None, description="`image`, `target_class` or `key` → the table's name of this column, if it differs."
    )
    by: list[Name] = Field(
        default_factory=list,
        description="Columns that distinguish captions: there is one caption for each label and each combination of "
        "their values.",
    )

    @field_validator("columns")
    @classmethod
    def _known(cls, columns: dict[str, str] | None) -> dict[str, str] | None:
        known_columns(columns, tuple(Columns.model_fields))
        return columns


class DatasetImages(StrictModel):
    """The sources of a caption's images. Each source gives every caption `draws_per_caption` images."""

    generate: Generate | None = Field(None, description="Generates the images of each caption.")
    index: IndexPath | None = Field(
        None, description="An index, from which the images nearest to each caption are drawn."
    )
    labelled: Labelled | None = Field(None, description="Takes labelled images instead of draws.")

    @model_validator(mode="after")
    def _some_source(self) -> DatasetImages:
        if self.labelled is not None and (self.generate is not None or self.index is not None):
            raise ValueError("`labelled` cannot be combined; `generate` and `index` can")
        if self.labelled is None and self.generate is None and self.index is None:
            raise ValueError("name a source of images: generate, index or labelled")
        distinct(self.generators, "generator", folded)
        return self

    @property
    def generators(self) -> list[str]:
        """The specs of the generators, in their order."""
        if self.generate is None:
            return []
        return [self.generate.model] if isinstance(self.generate.model, str) else list(self.generate.model)

    @property
    def sources(self) -> int:
        """The number of sources that give images of each caption."""
        return len(self.generators) + (self.index is not None) + (self.labelled is not None)


class Verify(StrictModel):
    captioner: CaptionerSpec = Field(description="The spec of a captioner that says which label a failure shows.")


class DatasetConfig(StrictModel):
    """A dataset of failures: images whose label a classifier, or one of several, predicts wrongly."""

    captions: Captions | None = Field(
        None, description="The source of the captions. Labelled images have captions from their columns."
    )
    classifier: Classifiers = Field(
        description="A model spec; or several that classify the same images: a list of specs, or a mapping of short "
        "names → specs. An image is kept if at least one of them fails on it.",
    )
    images: DatasetImages = Field(description="The sources of the images.")
    rule: FailureRule = Field("top1", description="Which answers are failures: top1, top1_parent, top3, top3_parent.")
    confidence: float = Field(
        0.0, ge=0, lt=1, description="A failure counts only if the most probable label has at least this probability."
    )
    true_below: float = Field(
        1.0, gt=0, le=1, description="A failure counts only if the true label has at most this probability."
    )
    hierarchy: HierarchyName | None = Field(
        None,
        description="The labels' parents, for the rules that compare them: `world`, `imagenet`, a YAML or CSV file of "
        "label → parent, or a folder of WordNet's files.",
    )
    label_map: LabelMap | None = Field(
        None,
        description="Label → labels of the classifier (indices or names), or the path of a JSON file with this "
        "mapping.",
    )
    draws_per_caption: int = Field(
        1000, ge=1, le=1_000_000_000, description="Images that each source draws of every caption."
    )
    cap_per_caption: int = Field(1000, ge=1, le=1_000_000_000, description="The most failures to keep of each caption.")
    verify: Verify | None = Field(
        None, description="Omits failures that do not show their label, according to a captioner."
    )
    near_duplicates: int | None = Field(
        4,
        ge=0,
        le=16,
        description="Omits an image if an earlier failure of its label has a perceptual hash that differs in at most "
        "this many of 64 bits and looks alike at 8 × 8 cells. null: omits none.",
    )
    shard_draws: int = Field(
        2000, ge=1, le=1_000_000, description="Draws in one shard; an interrupted shard is built again from its start."
    )
    batch: int = Field(
        32,
        ge=1,
        le=65_536,
        description="Images in one batch of a model; the rounding of its answers depends on it.",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="The seed of all random draws.")

    @model_validator(mode="after")
    def _what_goes_together(self) -> DatasetConfig:
        if self.captions is None and self.images.labelled is None:
            raise ValueError(f"`captions` is missing: {_ONE_ORIGIN}")
        if self.captions is not None and self.images.labelled is not None and self.captions.run is None:
            raise ValueError(
                "labelled images have captions from columns (`by`), or from a run on the same table (`captions.run`)"
            )
        if self.rule.endswith("_parent") and self.hierarchy is None:
            raise ValueError(f"rule: {self.rule} compares parents; name a `hierarchy`, such as world or imagenet")
        return self

    @property
    def specs(self) -> dict[str, str]:
        """The spec of each classifier by its name."""
        return specs_by_name(self.classifier)


# Reads and checks a dataset file once, at the edge; its paths become absolute, relative to that file.


FILE = ConfigFile(DatasetConfig, "c2b dataset build", worded=dataset_words)


def read_dataset_config(
    source: FileOrFields | DatasetConfig, classifier: dict[str, str] | None = None
) -> DatasetConfig:
    """Returns a dataset's config; see `ConfigFile.read`."""
    return FILE.read(source, classifier)
