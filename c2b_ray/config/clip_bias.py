"""The fields of a file of `c2b clip-bias`, each checked by itself and together with related ones.

It knows fields and their limits, not what a run does with them, nor files.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from c2b_ray.config.strict import Name, SpecText, Strict, distinct

BAG_OF_WORDS = "bag-of-words"
COLUMNS = ("image", "caption", "key")
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Path = Annotated[str, Field(min_length=1, max_length=4000)]


class Dataset(Strict):
    """Images with captions and protected attributes, one row per image."""

    table: Path = Field(
        description="A Parquet or CSV table: `image` (a path relative to the table, or bytes), `caption` (a text or a "
        "list of texts), a column per attribute. An image without a value is left out for that attribute."
    )
    attributes: list[Name] = Field(min_length=1, description="The columns that are protected attributes.")
    columns: dict[Name, Name] = Field(
        default_factory=dict, description="What the table calls `image`, `caption` and `key`, where otherwise."
    )
    texts: list[Text] = Field(
        default_factory=list,
        description="Neutral descriptions, such as `a smart person`, of MaxSkew, or in a YAML file the path of a text "
        "file with one a line; none: no MaxSkew.",
    )
    mask: dict[Name, list[Name]] = Field(
        default_factory=dict,
        description="Attribute → words that LIC masks in captions, besides the words of the attribute's values.",
    )

    @field_validator("columns")
    @classmethod
    def _known(cls, columns: dict[str, str]) -> dict[str, str]:
        if unknown := [name for name in columns if name not in COLUMNS]:
            raise ValueError(f"{unknown[0]!r} is none of {', '.join(COLUMNS)}")
        return columns

    @field_validator("attributes")
    @classmethod
    def _distinct(cls, names: list[str]) -> list[str]:
        distinct(names, "attribute")
        return names

    @model_validator(mode="after")
    def _masks_of_attributes(self) -> Dataset:
        if unknown := [name for name in self.mask if name not in self.attributes]:
            raise ValueError(f"mask: {unknown[0]!r} is none of `attributes`")
        return self


class Downstream(Strict):
    """The answers of models that were built on the CLIP models, about the images of a dataset: `vqa` or `captions`."""

    dataset: Name = Field(description="The dataset whose images, captions and attributes these are.")
    vqa: dict[Name, Path] | None = Field(
        None,
        description="Model → a table with `image`, `question`, `answer`, `prediction`, and `accuracy` where answers "
        "are right by degrees.",
    )
    captions: dict[Name, Path] | None = Field(
        None, description="Model → a table with `image` and `caption`, which the model wrote."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Downstream:
        if (self.vqa is None) == (self.captions is None):
            raise ValueError("name the results: either `vqa` or `captions`, model → table")
        return self

    @property
    def results(self) -> dict[str, str]:
        return self.vqa or self.captions or {}


class Spaces(Strict):
    """Embedding spaces before and after downstream training."""

    dataset: Name = Field(description="The dataset whose images are embedded.")
    after: dict[Name, Path] = Field(description="Model → a table with `image` and `embedding`.")
    before: dict[Name, Path] | None = Field(
        None,
        description="The same before training, such as of the last layer but one; by default the run's embeddings.",
    )


class Groups(Strict):
    """Local views: clusters of images, matched across models."""

    k: int = Field(6, ge=1, le=1000, description="Clusters of each model's k-means; 1: no local view.")
    least: int = Field(100, ge=2, description="Images that a group has at least.")
    column: Name | None = Field(
        None, description="A column of every dataset whose values are the groups, in the place of clusters."
    )
    reuse: Literal["shared", "once"] = Field(
        "shared",
        description="shared: every combination of clusters, one of each model, that shares `least` images is a group, "
        "so that one cluster may serve two groups. once: of these the set without a common cluster that holds the most "
        "images.",
    )


class Leakage(Strict):
    """How LIC guesses attributes from captions."""

    guesser: SpecText = Field(
        BAG_OF_WORDS,
        description=f"`{BAG_OF_WORDS}`: a logistic regression on words, in the place of BERT where no weights are at "
        "hand; `bert:local-dir:PATH` or `bert:org/name`: a BERT of transformers, fine-tuned for each fold.",
    )
    folds: int = Field(5, ge=2, le=20)
    seeds: int = Field(3, ge=1, le=50, description="How often folds are drawn anew; the paper's code draws ten.")
    swaps: int = Field(
        20,
        ge=8,
        le=1000,
        description="How often captions of people and of the captioner change places at random, with guessers trained "
        "anew, for LIC's interval.",
    )


class Chance(Strict):
    """How many permutations and resamples estimate what happens by chance."""

    permutations: int = Field(2000, ge=100, le=100_000)
    resamples: int = Field(400, ge=50, le=100_000)


class ClipBiasConfig(Strict):
    """How biased CLIP models are, globally and locally, and whether it transfers to models built on them."""

    models: dict[Name, SpecText] = Field(
        min_length=1, description="Names of your own → specs of text-image encoders, such as `open_clip:…`."
    )
    datasets: dict[Name, Dataset] = Field(min_length=1)
    downstream: dict[Name, Downstream] = Field(default_factory=dict)
    spaces: Spaces | None = None
    performance: dict[Name, float] | None = Field(
        None, description="Model → its general performance, such as ImageNet accuracy; by default its recall@k."
    )
    window: tuple[float, float] | None = Field(
        None,
        description="Transfer is studied on models of a performance in this range, ends included, so that it does not "
        "only say that good models are good; the paper's is 0.60 to 0.65.",
    )
    recall_k: int = Field(5, ge=1, le=10_000)
    hit: Literal["share", "any"] = Field(
        "share",
        description="Of an image with several captions: the share of them among the first k, or whether any is.",
    )
    skew_k: int = Field(1000, ge=1, description="Images at the top of a ranking that MaxSkew looks at, at most.")
    skew_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="… and at most this share of the ranked images, as of all of them no group is more than its share. "
        "1: `skew_k` images, as the paper has it, where there are so many.",
    )
    skew_rule: Literal["formula", "from_zero", "absent_share", "ties", "usual"] = Field(
        "formula", description="MaxSkew as Eq. 2 has it; or as code in common use does, in one respect or in all."
    )
    groups: Groups = Groups()
    amplification: Literal["code", "formula"] = Field(
        "code",
        description="Of a pair of answer and attribute that is exactly independent: 0, as the authors' code has it, or "
        "−1, as the formula does.",
    )
    answers: int = Field(50, ge=1, description="Bias amplification looks at so many answers, the most frequent ones.")
    leakage: Leakage = Leakage()
    chance: Chance = Chance()
    alpha: float = Field(0.05, gt=0, lt=1, description="False discovery rate; intervals have confidence 1 − alpha.")
    seed: int = Field(0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _what_goes_together(self) -> ClipBiasConfig:
        for name, block in self.downstream.items():
            self._check_dataset(f"downstream.{name}.dataset", block.dataset)
            self._check_models(f"downstream.{name}", list(block.results))
        if self.spaces is not None:
            self._check_dataset("spaces.dataset", self.spaces.dataset)
            self._check_models("spaces.after", list(self.spaces.after))
            self._check_models("spaces.before", list(self.spaces.before or {}))
        if self.performance is not None:
            self._check_models("performance", list(self.performance))
            if lacking := [name for name in self.models if name not in self.performance]:
                raise ValueError(f"performance: {lacking[0]!r} is missing; name every model or none")
        if self.window is not None and not self.window[0] <= self.window[1]:
            raise ValueError("window: its lower end comes first")
        return self

    def _check_dataset(self, field: str, name: str) -> None:
        if name not in self.datasets:
            raise ValueError(f"{field}: {name!r} is none of `datasets` ({', '.join(self.datasets)})")

    def _check_models(self, field: str, names: list[str]) -> None:
        if unknown := [name for name in names if name not in self.models]:
            raise ValueError(f"{field}: {unknown[0]!r} is none of `models` ({', '.join(self.models)})")
