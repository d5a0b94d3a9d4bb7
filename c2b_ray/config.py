"""What a user may write in an audit file, read and checked once, at the edge.

It knows fields and their limits, not what an audit does with them. Paths in a file are relative to that file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from c2b_ray.errors import ConfigError, InputError, SourceError, nearest
from c2b_ray.filesystems import refuse_keys
from c2b_ray.filesystems.documents import read_json, read_yaml
from c2b_ray.filesystems.spec_paths import located

Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic takes `true` for 1, where no field but those of type bool means it."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError(f"{str(value).lower()} is neither a number nor a text; quote it where a text is meant")
        return value


Right = Literal["top1", "among_classes", "top5"]
"""Which answers are right: see `AuditConfig.right`."""

ALL = "all"
_CLASSES = {"anyOf": [{"const": ALL}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}

Source = Literal["retrieve", "generate", "labelled"]
_NEEDS = {"retrieve": "index", "generate": "generator", "labelled": "table"}
IMAGES_PER_CAPTION = 40
"""Of images that are drawn; of labelled ones all are taken."""
POOL = 10
"""How many times the images that a cell asks for each caption's pool holds."""
LARGEST_POOL = 100_000


class Columns(_Strict):
    """What a labelled table calls the columns that every one has."""

    image: Name | None = None
    target_class: Name | None = None
    key: Name | None = Field(None, description="How each image is named, in the report and in a table of predictions.")


class Images(_Strict):
    """Where the images come from."""

    source: Source | list[Source] = Field(
        description="retrieve: the nearest images of each caption in an index; generate: images made from each "
        "caption; [retrieve, generate]: both, and whether they agree; labelled: the rows of a table."
    )
    index: str | None = Field(None, description="An index directory made by `c2b index build` (source: retrieve).")
    generator: Name | None = Field(None, description="The spec of an image generator (source: generate).")
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
        """`image`, `target_class` or `key` → what the table calls it."""
        return {} if self.columns is None else self.columns.model_dump(exclude_none=True)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if isinstance(self.source, str) else tuple(self.source)

    @model_validator(mode="after")
    def _one_place(self) -> Images:
        said = ", ".join(self.sources)
        if not self.sources or len(set(self.sources)) < len(self.sources):
            raise ValueError(f"source: [{said}] must name one or both of retrieve and generate, each once")
        if "labelled" in self.sources and len(self.sources) > 1:
            raise ValueError(f"source: [{said}]: labelled images stand alone; retrieve and generate go together")
        for source, place in _NEEDS.items():
            if source in self.sources and getattr(self, place) is None:
                raise ValueError(f"source: {source} needs `{place}`")
            if source not in self.sources and getattr(self, place) is not None:
                raise ValueError(f"`{place}` does not belong to source: {said}")
        if self.columns is not None and "labelled" not in self.sources:
            raise ValueError(f"`columns` does not belong to source: {said}; it says what a table calls its columns")
        for name in ("pool", "selection"):
            if "retrieve" not in self.sources and getattr(self, name) is not None:
                raise ValueError(f"`{name}` does not belong to source: {said}; it says how an index is drawn from")
        return self


class Verification(_Strict):
    """Whether images show what their captions say: who looks, and how it is known how well."""

    model: Name = Field(description="The spec of a captioner; `open_clip:` and `world:clip` serve as light ones.")
    calibration: str | None = Field(
        None,
        description="A table of labelled images, as of source: labelled, on which the captioner is measured; a hundred "
        "images of each value are plenty. Without it, its own certainty is taken for its accuracy, and the report says "
        "so.",
    )


class Budget(_Strict):
    """Images are drawn until every verdict is settled or the budget is spent."""

    images: int = Field(ge=1, le=100_000_000, description="Images to draw in all, over the whole audit.")
    first: int = Field(
        25, ge=2, le=100_000, description="Images per caption before the first look; twice as many before the next."
    )


class AuditConfig(_Strict):
    """An audit: a classifier, a sentence about its task, and where images of it can be found."""

    task: Name = Field(description="What the classifier is for, in a sentence.")
    classes: Annotated[list[Name], WithJsonSchema(_CLASSES)] = Field(
        description="The task's classes, in the words of captions; `all`: the classes of `label_map`, or without one "
        "the classifier's labels.",
    )
    classifier: Name | list[Name] | dict[Name, Name] = Field(
        description="A model spec, or several that are audited on the same images: a list, or short names of one's own "
        "→ specs, which every table, page and option then calls them by.",
    )
    images: Images
    verification: Verification | None = Field(
        None, description="Checks that images show what their captions say, and corrects scores for those that do not."
    )
    language_model: Name | None = Field(
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
    label_map: str | dict[Name, list[int | str]] | None = Field(
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
        _distinct(classes, "class")
        return classes

    @field_validator("classifier")
    @classmethod
    def _some_classifier(cls, classifier: str | list[str] | dict[str, str]) -> str | list[str] | dict[str, str]:
        if not classifier:
            raise ValueError("name at least one classifier")
        if isinstance(classifier, dict):
            _distinct(list(classifier), "classifier", _folded)
        if not isinstance(classifier, str):
            specs = list(classifier.values()) if isinstance(classifier, dict) else classifier
            twice = next((spec for place, spec in enumerate(specs) if spec in specs[:place]), None)
            if twice is not None:
                raise ValueError(f"classifier {twice!r} is given twice")
        return classifier

    @field_validator("label_map", mode="before")
    @classmethod
    def _labels_alone(cls, label_map: Any) -> Any:
        if isinstance(label_map, dict) and (strange := _no_label(label_map)) is not None:
            raise ValueError(strange)
        return label_map

    @field_validator("attributes")
    @classmethod
    def _values_to_compare(cls, attributes: dict[str, list[str]] | None) -> dict[str, list[str]] | None:
        _distinct(list(attributes or {}), "attribute")
        for name, values in (attributes or {}).items():
            _distinct(values, f"value of {name!r}")
            if len(values) < 2:
                raise ValueError(f"{name!r} has {len(values)} value(s); φ compares at least two")
        return attributes

    @field_validator("templates")
    @classmethod
    def _with_both_places(cls, templates: dict[str, str]) -> dict[str, str]:
        _distinct(list(templates), "attribute")
        for name, template in templates.items():
            for place in ("[CLASS]", "[VALUE]"):
                if template.count(place) != 1:
                    raise ValueError(f"{name}: {template!r} must hold {place} once")
        return templates

    @field_validator("intersections")
    @classmethod
    def _pairs_of_two(cls, intersections: list[tuple[str, str]]) -> list[tuple[str, str]]:
        for a, b in intersections:
            if _key(a) == _key(b):
                raise ValueError(f"{a!r} is paired with itself; name two attributes")
        _distinct([" × ".join(sorted(map(_key, pair))) for pair in intersections], "pair")
        return intersections

    @model_validator(mode="after")
    def _some_hypotheses(self) -> AuditConfig:
        labelled = self.images.sources == ("labelled",)
        if self.verification is not None and labelled:
            raise ValueError("`verification` is for images that were drawn by a caption; labelled ones are known")
        if not labelled and self.language_model is None and not self.attributes:
            raise ValueError("give `language_model`, `attributes`, or both: without them there is nothing to test")
        known = {_key(name) for name in self.attributes or {}}
        for name in self.templates:
            if labelled:
                raise ValueError("`templates` are for captions; labelled images have none")
            if self.language_model is None and _key(name) not in known:
                raise ValueError(f"templates: no attribute is {name!r}; {nearest(name, self.attributes or {})}")
        if self.right == "among_classes" and len(self.classes) == 1:
            raise ValueError("right: among_classes needs two classes or more: of one, every answer would be right")
        if isinstance(self.label_map, dict) and self.classes:
            for name in self.label_map:
                if name not in self.classes:
                    raise ValueError(f"label_map has {name!r}, not in `classes`; {nearest(name, self.classes)}")
        return self

    @model_validator(mode="after")
    def _what_depends(self) -> AuditConfig:
        """Fills in defaults that depend on other fields, so that a run's config says what was done."""
        if self.images.sources == ("labelled",):
            if self.confirm:
                raise ValueError("confirm: a labelled table has no fresh images; generate or retrieve some")
            return self
        if self.images_per_caption is None:
            object.__setattr__(self, "images_per_caption", IMAGES_PER_CAPTION)
        if "retrieve" in self.images.sources:
            object.__setattr__(self, "images", self._resolved(self.images))
        return self

    def _resolved(self, images: Images) -> Images:
        per_caption = self.images_per_caption or 1
        selection = images.selection or ("nearest" if self.verification is None else "accepted")
        if selection == "accepted" and self.verification is None:
            raise ValueError("images.selection: accepted needs `verification`: without it no image can be accepted")
        if images.pool is not None and images.pool < per_caption:
            raise ValueError(f"images.pool: {images.pool} images cannot give {per_caption} (images_per_caption)")
        if self.confirm and selection == "nearest":
            raise ValueError(
                "confirm: beyond the nearest images are others that show less of what the caption says; confirm needs "
                "`verification`, and images.selection: accepted"
            )
        pool = images.pool or min(POOL * per_caption * self.captions_per_cell, LARGEST_POOL)
        return images.model_copy(update={"pool": pool, "selection": selection})

    @property
    def slots(self) -> int:
        """Captions that each cell asks for: of labelled images, one."""
        return 1 if self.images.sources == ("labelled",) else self.captions_per_cell

    @property
    def images_per_cell(self) -> int | None:
        """Distinct images that each cell asks for, from each source; None: all there are."""
        return None if self.images_per_caption is None else self.images_per_caption * self.slots

    @property
    def of_all_classes(self) -> bool:
        """Whether the classes are still to be read from the label map or the classifier."""
        return not self.classes

    @property
    def classifiers(self) -> tuple[str, ...]:
        """What tables, pages and options call the classifiers: the names given, else the specs."""
        return tuple(self.specs)

    @property
    def specs(self) -> dict[str, str]:
        """The spec of each classifier by its name."""
        if isinstance(self.classifier, dict):
            return dict(self.classifier)
        specs = [self.classifier] if isinstance(self.classifier, str) else self.classifier
        return {spec: spec for spec in specs}


def _key(name: str) -> str:
    """The form in which names are compared, as `steps.propose.normalise` has it, which this room does not know."""
    return _folded(name.replace("_", " ").strip(" .,;:'\""))


def _folded(name: str) -> str:
    return " ".join(name.lower().split())


def _no_label(label_map: dict[Any, Any]) -> str | None:
    """What is wrong with a label map one of whose labels is neither a name nor an index: `true` is no 1."""
    for name, labels in label_map.items():
        for label in labels if isinstance(labels, list) else ():
            if isinstance(label, bool) or not isinstance(label, int | str):
                return f"{name}: {label!r} is neither a label's name nor its index"
    return None


def _distinct(names: list[str], what: str, key: Callable[[str], str] = _key) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if key(name) in seen:
            other = seen[key(name)]
            why = "" if _folded(other) == _folded(name) else f": {other!r} is compared as the same name"
            raise ValueError(f"{what} {name!r} is given twice{why}")
        seen[key(name)] = name


def read_audit(source: str | Path | dict[str, Any] | AuditConfig) -> AuditConfig:
    """An audit from a YAML file, a mapping, or one that is ready.

    ConfigError names the field. Relative paths of a file, those inside specs too, become relative to the file.
    """
    if isinstance(source, AuditConfig):
        return source
    if isinstance(source, dict):
        return _checked(source, Path.cwd(), None)
    if not isinstance(source, str | Path):
        raise ConfigError("", f"expected an audit file's path or a mapping of its fields, found {_kind(source)}")
    try:
        data = read_yaml(source)
    except SourceError as error:
        error.args = (f"{error}; c2b audit --print-schema shows what an audit file holds",)
        raise
    if not isinstance(data, dict):
        what = f"expected a mapping of fields such as task and classes, found {_kind(data)}"
        raise ConfigError("", what, location=str(source))
    return _checked(data, Path(source).parent, str(source))


def _kind(data: object) -> str:
    return "nothing" if data is None else f"a {type(data).__name__}"


def _checked(data: dict[str, Any], base: Path, file: str | None) -> AuditConfig:
    _refuse_keys(data, file)
    try:
        config = AuditConfig.model_validate(data)
    except ValidationError as error:
        raise _first_problem(error, file) from error
    except RecursionError as error:
        raise ConfigError("", "it is nested too deeply", location=file) from error
    images = config.images.model_copy(
        update={
            "index": _located(config.images.index, base),
            "table": _located(config.images.table, base),
            "generator": _located_spec(config.images.generator, base),
        }
    )
    verification = config.verification
    if verification is not None:
        places = {
            "model": _located_spec(verification.model, base),
            "calibration": _located(verification.calibration, base),
        }
        verification = verification.model_copy(update=places)
    label_map = config.label_map
    if isinstance(label_map, str):
        label_map = _read_label_map(_located(label_map, base) or "", config.classes)
    named = {name: located(spec, base) for name, spec in config.specs.items()}
    specs = list(named.values())
    changes = {
        "images": images,
        "verification": verification,
        "label_map": label_map,
        "classifier": named
        if isinstance(config.classifier, dict)
        else specs[0]
        if isinstance(config.classifier, str)
        else specs,
        "language_model": _located_spec(config.language_model, base),
    }
    return config.model_copy(update=changes)


def _refuse_keys(value: object, file: str | None, field: str = "", depth: int = 0) -> None:
    """Before anything is said of the fields, which would repeat what they hold; nor can a path hold NUL."""
    if isinstance(value, str):
        refuse_keys(value)
        if "\0" in value:
            raise ConfigError(field, f"{value[:100]!r} holds a NUL character", location=file)
    elif isinstance(value, dict | list) and depth < 8:
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_keys(item, file, f"{field}.{name}" if field else str(name), depth + 1)


def _located_spec(spec: str | None, base: Path) -> str | None:
    return None if spec is None else located(spec, base)


def _located(place: str | None, base: Path) -> str | None:
    if place is None or "://" in place or Path(place).is_absolute():
        return place
    if place.startswith("faiss:"):
        return located(place, base)
    return str((base / Path(place).expanduser()).resolve())


_NESTED: dict[str, type[BaseModel]] = {
    "images": Images,
    "images.columns": Columns,
    "verification": Verification,
    "budget": Budget,
}


def _first_problem(error: ValidationError, file: str | None) -> ConfigError:
    """Unknown keys first: a misspelt `task` is named as that, not as a `task` that is missing."""
    problems = error.errors()
    problem = next((found for found in problems if found["type"] == "extra_forbidden"), problems[0])
    if problem["type"] == "literal_error":  # one name or a list of them: of the two complaints, the nearer one
        same = [other for other in error.errors() if other["loc"][:2] == problem["loc"][:2]]
        problem = max(same, key=lambda other: len(other["loc"]))
    path = [
        str(part)
        for part in problem["loc"]
        if not str(part).startswith(("str", "list[", "dict[", "constrained", "literal["))
    ]
    field = ".".join(path)
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        model = _NESTED.get(".".join(path[:-1]), AuditConfig)
        message = f"unknown key; {nearest(path[-1], model.model_fields)}"
    elif problem["type"] == "literal_error" and isinstance(problem["input"], str):
        message += f", not {problem['input'][:100]!r}"
    more = sum(other["loc"][:2] != problem["loc"][:2] for other in error.errors())
    return ConfigError(field, message + (f" (and {more} more)" if more else ""), location=file)


def _read_label_map(path: str, classes: list[str]) -> dict[str, list[int | str]]:
    try:
        data = read_json(path)
    except InputError as error:
        raise ConfigError("label_map", str(error)) from error
    if not isinstance(data, dict) or not all(isinstance(v, list) and v for v in data.values()):
        raise ConfigError("label_map", f"{path}: expected an object of class → list of label indices or names")
    if (strange := _no_label(data)) is not None:
        raise ConfigError("label_map", f"{path}: {strange}")
    # A map of a whole label space may hold more classes than this task asks about.
    return {name: labels for name, labels in data.items() if name in classes or not classes}
