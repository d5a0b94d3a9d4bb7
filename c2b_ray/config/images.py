"""The section `images` of an audit file: the source of the images, and how images are drawn from an index."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from c2b_ray.config.strict import Name, SpecText, Strict

Source = Literal["retrieve", "generate", "labelled"]
_NEEDS = {"retrieve": "index", "generate": "generator", "labelled": "table"}
LARGEST_POOL = 100_000


class Columns(Strict):
    """The names that a labelled table uses for the columns that every one has."""

    image: Name | None = None
    target_class: Name | None = None
    key: Name | None = Field(None, description="How each image is named, in the report and in a table of predictions.")


class Images(Strict):
    """The source of the images."""

    source: Source | list[Source] = Field(
        description="retrieve: the nearest images of each caption in an index; generate: images made from each "
        "caption; [retrieve, generate]: both, and whether they agree; labelled: the rows of a table."
    )
    index: str | None = Field(None, description="An index directory made by `c2b index build` (source: retrieve).")
    generator: SpecText | None = Field(None, description="The spec of an image generator (source: generate).")
    table: str | None = Field(
        None,
        description="Parquet or CSV with `image` (a path relative to the table, or bytes), `target_class` and a column "
        "per attribute (source: labelled); or a folder of images, one folder a class, with metadata.csv where they "
        "have attributes; or a dataset of Hugging Face's, as Parquet or as `save_to_disk` wrote it.",
    )
    columns: Columns | None = Field(
        None, description="What the table calls its columns, where it calls them otherwise (source: labelled)."
    )
    pool: int | None = Field(
        None,
        ge=1,
        le=LARGEST_POOL,
        description="Images in each caption's pool: its nearest in the index, fixed before any is looked at (source: "
        "retrieve). By default ten times as many as a class, attribute and value ask for in all.",
    )
    selection: Literal["accepted", "nearest"] | None = Field(
        None,
        description="Which images of the pool are drawn (source: retrieve). accepted: those that the verifier says "
        "show class and value, looked at in random order, the default with `verification`. nearest: the nearest, as in "
        "the paper, the default without.",
    )

    @property
    def renamed(self) -> dict[str, str]:
        """`image`, `target_class` or `key` → the table's name for it."""
        return {} if self.columns is None else self.columns.model_dump(exclude_none=True)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if isinstance(self.source, str) else tuple(self.source)

    @model_validator(mode="after")
    def _fields_of_the_source(self) -> Images:
        said = ", ".join(self.sources)
        if not self.sources or len(set(self.sources)) < len(self.sources):
            raise ValueError(f"source: [{said}] must name one or both of retrieve and generate, each once")
        if "labelled" in self.sources and len(self.sources) > 1:
            raise ValueError(f"source: [{said}]: labelled images stand alone; retrieve and generate go together")
        for source, field in _NEEDS.items():
            if source in self.sources and getattr(self, field) is None:
                raise ValueError(f"source: {source} needs `{field}`")
            if source not in self.sources and getattr(self, field) is not None:
                raise ValueError(f"`{field}` does not belong to source: {said}")
        if self.columns is not None and "labelled" not in self.sources:
            raise ValueError(f"`columns` does not belong to source: {said}; it says what a table calls its columns")
        for name in ("pool", "selection"):
            if "retrieve" not in self.sources and getattr(self, name) is not None:
                raise ValueError(f"`{name}` does not belong to source: {said}; it says how an index is drawn from")
        return self
