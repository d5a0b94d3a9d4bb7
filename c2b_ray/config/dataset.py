"""The fields of a dataset file (`c2b dataset build`), each checked by itself and together with related ones.

It knows fields and their limits, not what a build does with them, nor files.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from c2b_ray.config.classifiers import Classifiers, LabelMap, specs_by_name
from c2b_ray.config.failure_rule import FailureRule
from c2b_ray.config.strict import Name, SpecText, Strict, distinct
from c2b_ray.names import folded

_ONE_ORIGIN = "name one origin of captions: run, file, language_model with labels, or images with captioner"


class Captions(Strict):
    """The source of the captions."""

    run: str | None = Field(None, description="A run of `c2b failures`, whose failing captions are taken.")
    file: str | None = Field(None, description="A CSV or Parquet file with the columns `label` and `caption`.")
    language_model: SpecText | None = Field(
        None, description="A model spec. Writes `per_label` captions of each label."
    )
    labels: list[Name] | None = Field(None, description="The labels that the language model writes captions of.")
    per_label: int = Field(10, ge=1, le=10_000, description="Captions of each label by the language model.")
    images: str | None = Field(None, description="A labelled table or folder of hard images, which are captioned.")
    captioner: SpecText | None = Field(None, description="The spec of the captioner of `images`.")
    sentences: int = Field(2, ge=1, le=10, description="At most so many sentences of each image's caption are kept.")

    @model_validator(mode="after")
    def _one_origin(self) -> Captions:
        origins = [self.run, self.file, self.language_model, self.images]
        if sum(origin is not None for origin in origins) != 1:
            raise ValueError(_ONE_ORIGIN)
        if (self.language_model is None) != (self.labels is None):
            raise ValueError("`language_model` and `labels` go together: it writes captions of these labels")
        if (self.images is None) != (self.captioner is None):
            raise ValueError("`images` and `captioner` go together: it captions these images")
        distinct(self.labels or [], "label")
        return self


class Generate(Strict):
    model: SpecText | list[SpecText] = Field(
        description="The spec of an image generator, or several that draw in turn."
    )


class Labelled(Strict):
    table: str = Field(description="A labelled table or folder, whose images stand in for draws.")
    columns: dict[Name, Name] | None = Field(
        None, description="`image`, `target_class` or `key` → what the table calls it, where it calls it otherwise."
    )
    by: list[Name] = Field(
        default_factory=list,
        description="Columns whose values tell captions apart: a caption for each label and each of their values.",
    )


class DatasetImages(Strict):
    """The sources of a caption's images. Each source gives every caption `draws_per_caption` images."""

    generate: Generate | None = None
    index: str | None = Field(None, description="An index, whose nearest images of each caption are its draws.")
    labelled: Labelled | None = None

    @model_validator(mode="after")
    def _some_source(self) -> DatasetImages:
        if self.labelled is not None and (self.generate is not None or self.index is not None):
            raise ValueError("`labelled` images stand alone; `generate` and `index` go together")
        if self.labelled is None and self.generate is None and self.index is None:
            raise ValueError("name where images come from: generate, index or labelled")
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


class Verify(Strict):
    captioner: SpecText = Field(description="The spec of a captioner that says which label a failure shows.")


class DatasetConfig(Strict):
    """A dataset of failures: images of captions that a classifier, or one of several, takes for something else."""

    captions: Captions | None = Field(
        None, description="Where the captions come from; labelled images have those of their own columns."
    )
    classifier: Classifiers = Field(
        description="A model spec, or several that answer for the same images: a list, or short names of one's own → "
        "specs. An image is kept that one of them fails on.",
    )
    images: DatasetImages
    rule: FailureRule = Field("top1", description="Which answers are failures: top1, top1_parent, top3, top3_parent.")
    confidence: float = Field(
        0.0, ge=0, lt=1, description="A failure counts only where the likeliest label has at least this probability."
    )
    true_below: float = Field(
        1.0, gt=0, le=1, description="A failure counts only where the true label has at most this probability."
    )
    hierarchy: str | None = Field(
        None, description="`world`, `imagenet`, a YAML or CSV file of label → parent, or a folder of WordNet's files."
    )
    label_map: LabelMap | None = Field(
        None, description="Label → labels of the classifier (indices or names), or the path of a JSON file of them."
    )
    draws_per_caption: int = Field(1000, ge=1, le=1_000_000_000, description="Images of each caption, by each source.")
    cap_per_caption: int = Field(1000, ge=1, le=1_000_000_000, description="At most so many are kept of each caption.")
    verify: Verify | None = Field(
        None, description="Leaves out failures that do not show their label, as a captioner sees them."
    )
    near_duplicates: int | None = Field(
        4,
        ge=0,
        le=16,
        description="An image is left out where an earlier failure of its label has a perceptual hash that differs in "
        "at most so many of 64 bits, and looks alike at 8 × 8 cells; null: none is left out.",
    )
    shard_draws: int = Field(2000, ge=1, le=1_000_000, description="Draws of a shard, which is made whole or anew.")
    batch: int = Field(32, ge=1, le=65_536, description="Images that a model gets at once; its answers depend on it.")
    seed: int = Field(0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _what_goes_together(self) -> DatasetConfig:
        if self.captions is None and self.images.labelled is None:
            raise ValueError(f"`captions` is missing: {_ONE_ORIGIN}")
        if self.captions is not None and self.images.labelled is not None and self.captions.run is None:
            raise ValueError("`captions` of labelled images are those of their columns, or of a run on the same table")
        if self.rule.endswith("_parent") and self.hierarchy is None:
            raise ValueError(f"rule: {self.rule} compares parents; name a `hierarchy`, such as world or imagenet")
        return self

    @property
    def specs(self) -> dict[str, str]:
        """The spec of each classifier by its name."""
        return specs_by_name(self.classifier)
