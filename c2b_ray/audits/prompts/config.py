"""The fields of a prompts file (`c2b prompts`); checks each one, and combinations of them.

It knows fields and their limits, not what a run does with them, nor files.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from c2b_ray.config.named import (
    CaptionerSpec,
    EncoderSpec,
    GeneratorSpec,
    LanguageModelSpec,
    Name,
    Names,
    StrictModel,
    distinct,
)
from c2b_ray.config.reading import ConfigFile
from c2b_ray.storage.manifest import FileOrFields

Method = Literal["curated", "templates", "llm", "llm_biased", "pez", "bgps"]
SUBJECT = "{subject}"


class Attribute(StrictModel):
    """An attribute that a prompt may bring about without naming it."""

    values: list[Name] = Field(min_length=1, description="Its values, such as `day` and `night`.")
    targets: list[Name] | None = Field(None, min_length=1, description="The values to search for. Default: all.")
    question: Name | None = Field(None, description="The question to the judge. Default: which of the values it sees.")
    texts: dict[Name, Name] | None = Field(
        None, description="Value → a text that is true of its images, for judges that compare images with texts."
    )
    synonyms: dict[Name, list[Name]] = Field(
        default_factory=dict, description="Value → further words that name it; a prompt that holds one of them leaks."
    )

    @model_validator(mode="after")
    def _of_its_values(self) -> Attribute:
        distinct(self.values, "value")
        if len(self.values) < 2:
            raise ValueError(f"an attribute needs two values or more, not {', '.join(self.values)} alone")
        for field in ("targets", "texts", "synonyms"):
            for value in getattr(self, field) or ():
                if value not in self.values:
                    raise ValueError(f"{field}: {value!r} is none of the values {', '.join(self.values)}")
        if self.texts is not None and set(self.texts) != set(self.values):
            raise ValueError("texts: needs a text for each value")
        return self


class HeadsConfig(StrictModel):
    """How linear heads on the generator's activations are trained."""

    activation: Name = Field("unet.mid_block", description="The module of the denoiser whose output the heads read.")
    steps: list[int] | None = Field(
        None, description="Denoising steps, counted from 0. Default: eight from first to last."
    )
    prompts: int = Field(120, ge=8, le=100_000, description="Prompts of the training images.")
    images: int = Field(4, ge=1, le=1000, description="Images of each prompt.")
    held_out: float = Field(0.3, gt=0, lt=1, description="The share of the prompts on which accuracies are measured.")
    teacher: CaptionerSpec | None = Field(
        None,
        description="The spec of a captioner that labels the images. Default: the judge, which is then not "
        "independent of the guide.",
    )
    files: Annotated[str, Names.HEADS] | None = Field(
        None, description="A folder that `c2b prompts heads` wrote; then nothing is trained."
    )


class SearchConfig(StrictModel):
    """The beam search. The paper gives no values for K, B, E and E′; the defaults are ours."""

    weights: list[float] = Field([10.0, 100.0], min_length=1, description="The values of λ; each has its own search.")
    beams: int = Field(4, ge=1, le=100, description="B: prompts that each step keeps.")
    expansion: int = Field(4, ge=1, le=1000, description="E: candidates drawn from the continuations of a beam.")
    pool: int = Field(
        12, ge=1, le=100_000, description="E′: the most probable next tokens of a beam, from which E are drawn."
    )
    images: int = Field(8, ge=1, le=1000, description="K: seeds, shared by all candidates of a search.")
    least_tokens: int = Field(4, ge=1, le=1000, description="The fewest tokens of a prompt.")
    most_tokens: int = Field(24, ge=1, le=1000, description="The most tokens of a prompt.")
    raced: bool = Field(
        True, description="true: candidates that fall behind get no further images; false: each gets K images."
    )
    of_parent: int = Field(
        2,
        ge=1,
        le=100,
        description="The most candidates of one beam to keep, for diversity, as long as there are others.",
    )
    overlap: float = Field(
        0.8, gt=0, le=1, description="Prompts that share more than this part of their words count as one."
    )
    keep: int = Field(2, ge=1, le=100, description="Prompts in a search's result.")
    filtered: bool = Field(True, description="Discards candidates that name the value.")


class Evaluation(StrictModel):
    """How a method's prompts are judged, with fresh seeds."""

    prompts: int = Field(20, ge=1, le=10_000, description="Prompts of each method, value and generator.")
    images: int = Field(10, ge=1, le=10_000, description="Images of each prompt.")


class Associations(StrictModel):
    """The experiment that measures which words raise which value: each word is inserted into the same contexts under
    the same seeds."""

    prompts: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="Prompts of the language model that supply words and contexts, besides the results of searches.",
    )
    words: int = Field(60, ge=1, le=10_000, description="The most words; those that occur in most prompts come first.")
    contexts: int = Field(24, ge=4, le=1000, description="Prompts into which each word is first inserted.")
    follow_up: int | None = Field(
        None,
        ge=0,
        le=10_000,
        description="The most further prompts for a word if the first ones leave open whether it raises a value; then "
        "these alone decide. Default: four times `contexts`. 0: the first ones decide for all words.",
    )
    images: int = Field(2, ge=1, le=1000, description="Images of each word in each context.")
    least_effect: float = Field(
        0.05, ge=0, lt=1, description="A word raises a value if it adds more than this to the value's frequency."
    )
    generators: list[Name] | None = Field(None, description="Names of generators. Default: the first.")

    @property
    def most_followed(self) -> int:
        """The most contexts of a word in the second experiment; 0: there is none."""
        return 4 * self.contexts if self.follow_up is None else self.follow_up


class Modifiers(StrictModel):
    """Minimal edits, which measure the effect of each part of a prompt."""

    prompts: int = Field(3, ge=1, le=1000, description="The best prompts of each value and generator to edit.")
    images: int = Field(24, ge=1, le=10_000, description="Images with and without each part, under the same seeds.")


class PromptsConfig(StrictModel):
    """A search for natural prompts that expose a text-to-image model's hidden bias."""

    subjects: list[Name] = Field(min_length=1, description="The subjects of prompts: professions, objects, activities.")
    attributes: dict[Name, Attribute] = Field(
        min_length=1, description="Attribute → its values, as a list or as a mapping with further fields."
    )
    generators: dict[Name, GeneratorSpec] = Field(
        min_length=1, description="Your names → specs of image generators; the first is the base."
    )
    language_model: LanguageModelSpec = Field(description="The spec of a language model that proposes prompts.")
    judge: CaptionerSpec = Field(description="The spec of a captioner that judges images made with fresh seeds.")
    reader: LanguageModelSpec | None = Field(
        None,
        description="The spec of another language model, trained on other text, for perplexity; a base model such as "
        "GPT-2 suffices.",
    )
    encoder: EncoderSpec | None = Field(None, description="The spec of an open_clip encoder, for the method pez.")
    guide: Literal["heads", "judge"] = Field(
        "heads",
        description="heads: linear heads on the generator's activations. judge: the judge's answers on finished "
        "images with other seeds, for generators without activations.",
    )
    heads: HeadsConfig = Field(HeadsConfig(), description="How the heads are trained.")
    search: SearchConfig = Field(SearchConfig(), description="The beam search.")
    methods: list[Method] = Field(
        ["curated", "templates", "llm", "llm_biased", "bgps"], min_length=1, description="The methods to compare."
    )
    curated: list[Annotated[str, Field(min_length=1, max_length=500), Names.NOTHING]] = Field(
        default_factory=list, description=f"Prompts written by people, with or without {SUBJECT}. Default: a few."
    )
    intersections: list[list[Name]] = Field(
        default_factory=list,
        description="Lists of attributes whose values are searched for together, such as [age, gender].",
    )
    evaluation: Evaluation = Field(Evaluation(), description="How prompts are judged.")
    associations: Associations | None = Field(Associations(), description="The experiment on single words; null: none.")
    modifiers: Modifiers | None = Field(Modifiers(), description="The edits of prompts; null: none.")
    alpha: float = Field(0.05, gt=0, lt=1, description="False discovery rate; intervals have confidence 1 − alpha.")
    seed: int = Field(0, ge=0, lt=2**31, description="The seed of all random draws.")

    @field_validator("attributes", mode="before")
    @classmethod
    def _values_alone(cls, attributes: Any) -> Any:
        if not isinstance(attributes, dict):
            return attributes
        return {name: {"values": values} if isinstance(values, list) else values for name, values in attributes.items()}

    @field_validator("generators", mode="before")
    @classmethod
    def _one_generator(cls, generators: Any) -> Any:
        return {"base": generators} if isinstance(generators, str) else generators

    @field_validator("subjects")
    @classmethod
    def _distinct_subjects(cls, names: list[str]) -> list[str]:
        distinct(names, "subject")
        return names

    @model_validator(mode="after")
    def _what_goes_together(self) -> PromptsConfig:
        for names in self.intersections:
            if len(names) < 2 or len(set(names)) < len(names):
                raise ValueError(f"intersections: {names} needs two attributes or more, each once")
            for name in names:
                if name not in self.attributes:
                    raise ValueError(f"intersections: {name!r} is none of the attributes {', '.join(self.attributes)}")
        if "pez" in self.methods and self.encoder is None:
            raise ValueError("methods: pez needs an `encoder`, whose text tower gives the gradients")
        if self.reader == self.language_model:
            raise ValueError("reader: must differ from `language_model`, which would judge its own words")
        search = self.search
        if search.least_tokens > search.most_tokens or search.pool < search.expansion:
            raise ValueError(
                "search: least_tokens must not exceed most_tokens, and expansion (E) must not exceed pool (E′)"
            )
        for name in (self.associations.generators or ()) if self.associations else ():
            if name not in self.generators:
                raise ValueError(f"associations: {name!r} is none of the generators {', '.join(self.generators)}")
        return self


# Reads and checks a prompts file once, at the edge; its paths become absolute, relative to that file.


_FILE = ConfigFile(PromptsConfig, "c2b prompts")


def read_prompts_config(source: FileOrFields | PromptsConfig) -> PromptsConfig:
    """Returns the config of a run; see `ConfigFile.read`."""
    return _FILE.read(source)
