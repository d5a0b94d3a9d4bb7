"""The fields of a file of `c2b clip-bias`; checks each one, and combinations of them.

It knows fields and their limits, not what a run does with them, nor files.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from c2b_ray.config.named import EncoderSpec, GuesserSpec, Name, Names, StrictModel, distinct, known_columns

BAG_OF_WORDS = "bag-of-words"
COLUMNS = ("image", "caption", "key")
Text = Annotated[str, Field(min_length=1, max_length=2000), Names.NOTHING]
Path = Annotated[str, Field(min_length=1, max_length=4000)]
Results = Annotated[Path, Names.VALUES]


class Dataset(StrictModel):
    """Images with captions and protected attributes, one row per image."""

    table: Annotated[Path, Names.CAPTIONED] = Field(
        description="A Parquet or CSV table with `image` (a path relative to the table, or bytes), `caption` (a text "
        "or a list of texts; in CSV a JSON list) and a column per attribute. An image without a value is omitted for "
        "that attribute."
    )
    attributes: list[Name] = Field(min_length=1, description="The columns that are protected attributes.")
    columns: dict[Name, Name] = Field(
        default_factory=dict,
        description="`image`, `caption` or `key` → the table's name of this column, if it differs.",
    )
    texts: list[Text] = Field(
        default_factory=list,
        description="Neutral descriptions for MaxSkew, such as `a smart person`; in a YAML file also the path of a "
        "text file with one per line. Without any, MaxSkew is not computed.",
    )
    mask: dict[Name, list[Name]] = Field(
        default_factory=dict,
        description="Attribute → words that LIC masks in captions, besides the words of the attribute's values.",
    )

    @field_validator("columns")
    @classmethod
    def _known(cls, columns: dict[str, str]) -> dict[str, str]:
        known_columns(columns, COLUMNS)
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


class Downstream(StrictModel):
    """The results of models that were built on the CLIP models, for the images of a dataset: `vqa` or `captions`."""

    dataset: Name = Field(description="The dataset with the images, captions and attributes.")
    vqa: dict[Name, Results] | None = Field(
        None,
        description="Model → a table with `image`, `question`, `answer` and `prediction`; also `accuracy` if answers "
        "can be right in part.",
    )
    captions: dict[Name, Results] | None = Field(
        None, description="Model → a table with `image` and the `caption` that the model wrote."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Downstream:
        if (self.vqa is None) == (self.captions is None):
            raise ValueError("name the results: either `vqa` or `captions`, model → table")
        return self

    @property
    def results(self) -> dict[str, str]:
        return self.vqa or self.captions or {}


class Spaces(StrictModel):
    """Embedding spaces before and after downstream training."""

    dataset: Name = Field(description="The dataset whose images are embedded.")
    after: dict[Name, Results] = Field(description="Model → a table with `image` and `embedding`.")
    before: dict[Name, Results] | None = Field(
        None,
        description="The same before training, such as the embeddings of the last layer but one. Default: the "
        "embeddings that the run computes.",
    )


class Groups(StrictModel):
    """Local views: clusters of images, matched across models."""

    k: int = Field(6, ge=1, le=1000, description="The number of clusters in each model's k-means. 1: no local view.")
    least: int = Field(100, ge=2, description="The fewest images of a group.")
    column: Name | None = Field(
        None, description="A column of every dataset whose values are the groups; replaces the clusters."
    )
    reuse: Literal["shared", "once"] = Field(
        "shared",
        description="shared: every combination of one cluster from each model that has at least `least` images in "
        "common is a group, so a cluster may belong to several groups. once: the set of these groups with most images "
        "in which no two share a cluster.",
    )


class Leakage(StrictModel):
    """How LIC guesses attributes from captions."""

    guesser: GuesserSpec = Field(
        BAG_OF_WORDS,
        description=f"`{BAG_OF_WORDS}`: a logistic regression on words, which needs no weights and replaces BERT. "
        f"`bert:local-dir:PATH` or `bert:org/name`: a BERT model of transformers, fine-tuned for each fold.",
    )
    folds: int = Field(5, ge=2, le=20, description="The number of folds of cross-validation.")
    seeds: int = Field(
        3, ge=1, le=50, description="How often the folds are drawn anew; the paper's code draws ten times."
    )
    swaps: int = Field(
        20,
        ge=8,
        le=1000,
        description="How often captions of people and of the captioner are swapped at random, and the guessers "
        "trained anew, for the interval of LIC.",
    )


class Chance(StrictModel):
    """The number of permutations and resamples that estimate the effect of chance."""

    permutations: int = Field(2000, ge=100, le=100_000, description="The number of random permutations.")
    resamples: int = Field(400, ge=50, le=100_000, description="The number of bootstrap resamples.")


class ClipBiasConfig(StrictModel):
    """A comparison of CLIP models: how biased they are, globally and locally, and whether the bias transfers to models
    built on them."""

    models: dict[Name, EncoderSpec] = Field(
        min_length=1, description="Your names → specs of text-image encoders, such as `open_clip:…`."
    )
    datasets: dict[Name, Dataset] = Field(min_length=1, description="Your names → labelled datasets with captions.")
    downstream: dict[Name, Downstream] = Field(
        default_factory=dict, description="Your names → results of models that were built on the CLIP models."
    )
    spaces: Spaces | None = Field(None, description="Embeddings before and after downstream training.")
    performance: dict[Name, float] | None = Field(
        None, description="Model → its general performance, such as its ImageNet accuracy. Default: its recall@k."
    )
    window: tuple[float, float] | None = Field(
        None,
        description="Transfer is measured on models whose performance lies in this range, ends included; otherwise it "
        "might only say that good models are good. The paper uses 0.60 to 0.65.",
    )
    recall_k: int = Field(5, ge=1, le=10_000, description="k of recall@k.")
    hit: Literal["share", "any"] = Field(
        "share",
        description="How recall counts an image with several captions. share: the share of them among the first k. "
        "any: whether any of them is.",
    )
    skew_k: int = Field(1000, ge=1, description="k of MaxSkew@k: the most images at the top of a ranking.")
    skew_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="k is also at most this share of the ranked images: over all of them no group is "
        "over-represented. 1: `skew_k` images if there are as many, as in the paper.",
    )
    skew_rule: Literal["formula", "from_zero", "absent_share", "ties", "usual"] = Field(
        "formula",
        description="formula: MaxSkew as in Eq. 2. The others follow code in common use, in one respect each; usual: "
        "in all of them.",
    )
    groups: Groups = Groups()
    amplification: Literal["code", "formula"] = Field(
        "code",
        description="The bias amplification of an answer and an attribute that are exactly independent. code: 0, as "
        "in the authors' code. formula: −1.",
    )
    answers: int = Field(
        50, ge=1, description="The number of most frequent answers for which bias amplification is computed."
    )
    leakage: Leakage = Leakage()
    chance: Chance = Chance()
    alpha: float = Field(0.05, gt=0, lt=1, description="False discovery rate; intervals have confidence 1 − alpha.")
    margin: float = Field(
        0.05,
        ge=0,
        description="The difference of MaxSkew above which one model counts as more biased than another; 0.05: some "
        "group is over-represented by a twentieth more. For KL divergences it is margin² / 8: two groups whose rates "
        "differ as much. 0: any difference beyond chance counts.",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="The seed of all random draws.")

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
            if missing := [name for name in self.models if name not in self.performance]:
                raise ValueError(f"performance: {missing[0]!r} is missing; name every model or none")
        if self.window is not None and not self.window[0] <= self.window[1]:
            raise ValueError("window: its first number must not exceed its second")
        return self

    def _check_dataset(self, field: str, name: str) -> None:
        if name not in self.datasets:
            raise ValueError(f"{field}: {name!r} is none of `datasets` ({', '.join(self.datasets)})")

    def _check_models(self, field: str, names: list[str]) -> None:
        if unknown := [name for name in names if name not in self.models]:
            raise ValueError(f"{field}: {unknown[0]!r} is none of `models` ({', '.join(self.models)})")
