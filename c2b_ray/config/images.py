"""The sections `images` and `perturb` of an audit file: where images come from, and how they are perturbed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from c2b_ray.config.named import (
    CaptionerSpec,
    EncoderSpec,
    GeneratorSpec,
    IndexPath,
    Name,
    Names,
    RootPath,
    StrictModel,
    TablePath,
    distinct,
)

Source = Literal["retrieve", "generate", "labelled"]
CutBy = Literal["quantiles", "hour", "month", "year"]
"""How a column of numbers or dates is cut into values, where the file gives no edges."""
_NEEDS = {"retrieve": "index", "generate": "generator", "labelled": "table"}
LARGEST_POOL = 100_000


class Columns(StrictModel):
    """The table's names of the columns that every labelled table has."""

    image: Name | None = Field(None, description="The column of paths or bytes.")
    target_class: Name | None = Field(None, description="The column of classes.")
    key: Name | None = Field(
        None, description="The column that identifies an image, in the report and in a table of predictions."
    )


class ColumnsOfLabels(Columns):
    """`Columns` of a table whose images may show several classes."""

    target_class: Name | Annotated[list[Name], Field(min_length=1)] | None = Field(  # type: ignore[assignment]
        None,
        description="The column of classes; or, where an image may show several, a list of columns of 0 and 1, one for "
        "each class and called like it.",
    )


class Read(StrictModel):
    """The model that says which value of an attribute each labelled image shows, and how its accuracy is measured."""

    model: CaptionerSpec = Field(description="The spec of a captioner; `open_clip:` and `world:clip` are small ones.")
    calibration: TablePath | None = Field(
        None,
        description="A table of images with their annotated values, as for source: labelled, on which the model's "
        "errors are measured; a hundred images of each value suffice, of the same classes and kind as those audited. "
        "Scores are then corrected for these errors. Without it they rest on the model's word, and say so.",
    )


class Images(StrictModel):
    """The source of the images."""

    source: Source | list[Source] = Field(
        description="retrieve: the images of an index that are nearest to each caption. generate: images generated "
        "from each caption. [retrieve, generate]: both, and whether they agree. labelled: the rows of a table."
    )
    index: IndexPath | None = Field(
        None, description="An index directory that `c2b index build` wrote (for source: retrieve)."
    )
    generator: GeneratorSpec | None = Field(None, description="The spec of an image generator (for source: generate).")
    table: TablePath | None = Field(
        None,
        description="A Parquet or CSV table with `image` (a path relative to the table, or bytes), `target_class` and "
        "a column per attribute; or a folder with one folder of images per class, and metadata.csv if they have "
        "attributes; or a Hugging Face dataset, as Parquet or as `save_to_disk` writes it (for source: labelled).",
    )
    columns: ColumnsOfLabels | None = Field(
        None, description="The table's names of these columns, if they differ (for source: labelled)."
    )
    root: RootPath | None = Field(
        None,
        description="The folder below which the images of the table lie (for source: labelled). Paths in the table are "
        "then relative to it, or absolute and below it; one that leads out of it by `..` is taken from the table's "
        "folder, and must end below it. Default: the table's folder, which no path leads out of.",
    )
    separator: Annotated[str, Names.NOTHING] | None = Field(
        None,
        min_length=1,
        max_length=3,
        description="What separates the classes of an image in the column of classes, such as `;` in `car;person`, for "
        "classifiers that may give several labels (for source: labelled); an empty cell is an image without any of "
        "them. A Parquet column of lists needs none. Default: a cell is one class.",
    )
    cluster: Name | None = Field(
        None,
        description="The column that tells which images belong together, such as camera, patient or video; or "
        "`folder`: the folder that an image lies in (for source: labelled, a column of the table; for source: "
        "retrieve, of the index's metadata). Intervals and tests then take clusters, not images, as the independent "
        "samples. The column is no attribute. An image without a value is a cluster of its own.",
    )
    properties: bool | list[Name] | None = Field(
        None,
        description="Measures properties of each image, such as brightness and sharpness, and compares their values as "
        "attributes (for source: labelled). A list: these properties alone. Default: all of them where no column of "
        "the table can be compared, otherwise none.",
    )
    cut: dict[Name, CutBy | list[float]] | None = Field(
        None,
        description="Columns of numbers or dates that are cut into values (for source: labelled). Column → "
        "`quantiles`: the lowest fifth of each class, the middle and the highest fifth; edges, such as [18, 40, 65]; "
        "or the `hour`, `month` or `year` of its dates. Default: all such columns where no other column of the table "
        "can be compared, otherwise none.",
    )
    read: Read | None = Field(
        None,
        description="Reads values off each image (for source: labelled): of those of the audit's `attributes` that are "
        "no column of the table, and of what `language_model` proposes. The spec of a captioner, or {model: spec, "
        "calibration: a table of images with annotated values}.",
    )
    words: CaptionerSpec | None = Field(
        None,
        description="The spec of a captioner that describes each image (for source: labelled). Words that go with "
        "wrong answers in one half of the images are attributes, tested on the other half.",
    )
    slices: EncoderSpec | None = Field(
        None,
        description="The spec of an encoder whose embeddings of the images are clustered (for source: labelled). "
        "Clusters that are found in one half of the images, with the help of the answers there, are values of an "
        "attribute `slice`, tested on the other half.",
    )
    pool: int | None = Field(
        None,
        ge=1,
        le=LARGEST_POOL,
        description="Images in the pool of each caption: its nearest ones in the index, fixed before any of them is "
        "evaluated (for source: retrieve). Default: ten times the images of a cell, images_per_caption × "
        "captions_per_cell and those of a second stage, and at most 100,000.",
    )
    selection: Literal["accepted", "nearest"] | None = Field(
        None,
        description="Which images of the pool are drawn (for source: retrieve). accepted: images that the verifier "
        "says show class and value, checked in random order; the default with `verification`. nearest: the nearest "
        "ones, as in the paper; the default without it.",
    )

    @model_serializer(mode="wrap")
    def _without_default(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out fields that are not set: a run's id is made from these fields, and runs of releases without them
        are resumed."""
        fields: dict[str, Any] = serialise(self)
        for name in ("cluster", "root", "separator", "properties", "cut", "read", "words", "slices"):
            if fields.get(name) is None:
                fields.pop(name, None)
        return fields

    @field_validator("read", mode="before", json_schema_input_type=Read | str | None)
    @classmethod
    def _model_alone(cls, read: Any) -> Any:
        return {"model": read} if isinstance(read, str) else read

    @field_validator("cut")
    @classmethod
    def _ascending_edges(cls, cut: dict[str, CutBy | list[float]] | None) -> dict[str, CutBy | list[float]] | None:
        distinct(list(cut or {}), "column")
        for name, edges in (cut or {}).items():
            if isinstance(edges, str):
                continue
            if not edges or not all(map(isfinite, edges)) or any(a >= b for a, b in pairwise(edges)):
                raise ValueError(f"{name}: {edges} must be ascending numbers, one at least: the edges between values")
        return cut

    @field_validator("properties")
    @classmethod
    def _distinct_properties(cls, properties: bool | list[str] | None) -> bool | list[str] | None:
        if isinstance(properties, list):
            distinct(properties, "property")
        return properties

    @property
    def renamed(self) -> dict[str, str | list[str]]:
        """`image`, `target_class` or `key` → the table's name for it."""
        return {} if self.columns is None else self.columns.model_dump(exclude_none=True)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if isinstance(self.source, str) else tuple(self.source)

    @model_validator(mode="after")
    def _fields_of_the_source(self) -> Images:
        text = ", ".join(self.sources)
        if not self.sources or len(set(self.sources)) < len(self.sources):
            raise ValueError(f"source: [{text}] must name one or both of retrieve and generate, each once")
        if "labelled" in self.sources and len(self.sources) > 1:
            raise ValueError(f"source: [{text}]: labelled cannot be combined; retrieve and generate can")
        for source, field in _NEEDS.items():
            if source in self.sources and getattr(self, field) is None:
                raise ValueError(f"source: {source} needs `{field}`")
            if source not in self.sources and getattr(self, field) is not None:
                raise ValueError(f"`{field}` does not belong to source: {text}")
        if self.columns is not None and "labelled" not in self.sources:
            raise ValueError(f"`columns` does not belong to source: {text}; it names a table's columns")
        if self.separator is not None and "labelled" not in self.sources:
            raise ValueError(f"`separator` does not belong to source: {text}; it is of a table's column of classes")
        if self.separator is not None and self.columns is not None and isinstance(self.columns.target_class, list):
            raise ValueError("`separator` is of one column of classes, and columns.target_class lists several")
        if self.cluster is not None and self.sources == ("generate",):
            raise ValueError(
                f"`cluster` does not belong to source: {text}; it names a column of a labelled table, or of an index's "
                "metadata"
            )
        if self.root is not None and "labelled" not in self.sources:
            raise ValueError(f"`root` does not belong to source: {text}; it says where a table's images lie")
        for name in ("properties", "cut", "read", "words", "slices"):
            if getattr(self, name) is not None and "labelled" not in self.sources:
                raise ValueError(f"`{name}` does not belong to source: {text}; it makes attributes of labelled images")
        for name in ("pool", "selection"):
            if "retrieve" not in self.sources and getattr(self, name) is not None:
                raise ValueError(f"`{name}` does not belong to source: {text}; it says how to draw from an index")
        return self


# The section `perturb` of an audit file: which perturbations of the same images a classifier is asked about.


USUAL_LEVELS = (1, 3, 5)
"""The levels of a perturbation that is named without any: they show a curve, at three fifths of the cost of all."""

Levels = Annotated[list[Annotated[int, Field(ge=1, le=5)]], Field(min_length=1, max_length=5)]
OnlyLevel = Annotated[list[Annotated[int, Field(ge=1, le=1)]], Field(min_length=1, max_length=1)]
GivenPerturbations = bool | list[str] | dict[str, Any] | None


class Perturb(StrictModel):
    """Perturbations of the images themselves, each at levels from 1 (weak) to 5 (strong)."""

    images: int = Field(
        200,
        ge=2,
        le=100_000,
        description="Images of each class, chosen at random, or all where there are fewer. The same images are "
        "answered unperturbed and perturbed, so a few hundred suffice.",
    )
    blur: Levels | None = Field(None, description="Gaussian blur, ImageNet-C's.")
    noise: Levels | None = Field(None, description="Gaussian noise, ImageNet-C's.")
    jpeg: Levels | None = Field(None, description="JPEG compression of the whole picture, with ImageNet-C's qualities.")
    dark: Levels | None = Field(None, description="Less light: level 1 is half of it, 2 a fourth, … 5 a thirty-second.")
    bright: Levels | None = Field(None, description="Brightness, ImageNet-C's.")
    fog: Levels | None = Field(None, description="Fog, ImageNet-C's.")
    rotation: Levels | None = Field(None, description="Rotation by 5, 10, 20, 30 or 45 degrees, to either side.")
    crop: Levels | None = Field(None, description="A part of 90, 80, 70, 60 or 50 % of each side, enlarged.")
    grey: Levels | None = Field(None, description="Less colour: level 5 has none.")
    flip: OnlyLevel | None = Field(None, description="Mirrored left to right; has level 1 only.")

    @field_validator("*", mode="after")
    @classmethod
    def _ascending(cls, levels: Any) -> Any:
        """Puts levels in order: it changes nothing in which order they are written."""
        if not isinstance(levels, list):
            return levels
        if len(set(levels)) < len(levels):
            raise ValueError(f"{levels} names a level twice")
        return sorted(levels)

    @model_serializer(mode="wrap")
    def _only_named(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out perturbations that are not asked for: one that a later release adds changes no run's id."""
        return {name: value for name, value in serialise(self).items() if value is not None}

    @property
    def levels(self) -> dict[str, tuple[int, ...]]:
        """The levels of each perturbation that is asked for, in the order of the fields."""
        levels_of_name = {name: getattr(self, name) for name in PERTURBATIONS}
        return {name: tuple(levels) for name, levels in levels_of_name.items() if levels is not None}

    @property
    def pictures(self) -> int:
        """The number of pictures that each image becomes: itself, and one for each perturbation and level."""
        return 1 + sum(map(len, self.levels.values()))


PERTURBATIONS = tuple(name for name in Perturb.model_fields if name != "images")


def read_perturb(value: GivenPerturbations) -> Any:
    """Returns what `perturb` says as the fields of `Perturb`; None: nothing is perturbed.

    Raises ValueError for a name that a list holds twice. Unknown names become unknown fields, which `Perturb` refuses.
    """
    if value is None or value is False:
        return None
    if value is True:
        value = {}
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        if len(set(value)) < len(value):
            raise ValueError(f"{value} names a perturbation twice")
        value = {name: _usual(name) for name in value}
    if isinstance(value, Mapping) and not set(value) - {"images"}:
        value = {**value, **{name: _usual(name) for name in PERTURBATIONS}}
    return value


def _usual(name: str) -> list[int]:
    return [1] if name == "flip" else list(USUAL_LEVELS)
