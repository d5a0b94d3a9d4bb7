"""The tables of `c2b prompts`: searches and their prompts, values that prompts bring about, words that raise them."""

from typing import TypedDict

from c2b_ray.tables.rows import Int32, Measured, schema_of


class PromptRow(TypedDict):
    """A prompt and how often its images show the value."""

    attribute: str  # "a + b" for an intersection
    value: str
    generator: str  # its name in the config
    method: str  # curated, templates, llm, llm_biased, pez, bgps λ=10
    prompt: str
    log_prior: float | None  # log P(prompt and its end | instruction); null for prompts without a search
    bias_score: float | None  # log mean P(value) over the search's seeds; null as above
    frequency: float | None  # share of images under fresh seeds that the judge says show the value
    frequency_low: float | None
    frequency_high: float | None
    perplexity: float | None  # measured by the reader; null without one
    leaked: bool  # whether the prompt names the value
    images_used: int  # of the search, divided among its prompts
    subject: str | None
    images: int  # judged
    leaked_word: str | None


PROMPTS = schema_of(PromptRow)


class AssociationRow(TypedDict):
    """A word and what it adds to the frequency of a value."""

    word: str
    attribute: str
    value: str
    effect: Measured  # what the word adds to the value's frequency
    low: Measured
    high: Measured
    q_value: Measured  # of "it raises the value by no more than the least effect", one-sided
    generator: str
    p_value: Measured
    against: str  # the effect is the difference to: without it, other words
    contexts: int
    images: int  # with the word, in the look that the numbers describe
    raises: bool  # q ≤ alpha
    # 2: numbers of the second look, in which values that the first one excluded have q = 1; null: an older run
    look: Int32 | None
    images_used: int | None  # with the word, of both looks


ASSOCIATIONS = schema_of(AssociationRow)


class ComparisonRow(TypedDict):
    """A measure of two runs, A and B."""

    measure: str  # gain, frequency, word
    attribute: str
    value: str
    name: str  # of the method, or the word
    value_a: float | None  # null where that side has none
    value_b: float | None
    n_a: int  # images
    n_b: int
    verdict_a: str | None  # of a word: raises, none, undetermined
    verdict_b: str | None
    difference: float | None  # null where they cannot be compared
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    change: str  # worse: more of B; better: less; undetermined


PROMPTS_COMPARISON = schema_of(ComparisonRow)


class MethodRow(TypedDict):
    """The prompts of one method for a value."""

    attribute: str
    value: str
    generator: str
    method: str
    prompts: int
    frequency: Measured  # mean over prompts that do not leak
    frequency_low: Measured
    frequency_high: Measured
    perplexity: float | None  # median
    leaked: float  # share of the prompts
    frequency_with_leaks: Measured
    candidates: int
    rejected: int  # candidates that were discarded because they name the value
    images_used: int


METHODS = schema_of(MethodRow)


class GainRow(TypedDict):
    """What a method gains over the language model alone."""

    generator: str
    method: str
    # mean over values of its frequency less that of the language model's own prompts about the same subjects
    gain: float | None
    low: float | None  # null where a value has prompts of only one search, or one prompt
    high: float | None
    values: int  # for which both have prompts that do not name a value
    prompts: int  # of the method, about subjects of both
    verdict: str  # above, below, nothing found (the interval holds 0), unknown


GAINS = schema_of(GainRow)


class ModifierRow(TypedDict):
    """A part of a prompt and what it adds."""

    attribute: str
    value: str
    generator: str
    prompt: str
    modifier: str  # the part that was removed
    without: str  # the prompt without it
    frequency_with: float | None
    frequency_without: float | None
    adds: float | None
    low: float | None
    high: float | None
    q_value: float | None
    images: int


MODIFIERS = schema_of(ModifierRow)


class HeadRow(TypedDict):
    """How well an activation tells the values of an attribute apart."""

    generator: str
    attribute: str
    activation: str
    step: Int32
    accuracy: Measured  # mean over values of the share of held-out images whose value it names
    low: Measured
    high: Measured
    chance: float
    prompts: int  # held out
    images: int
    guides: bool  # whether the search uses this one
    verdict: str  # above chance, at chance, too few images


HEADS = schema_of(HeadRow)


class SearchRow(TypedDict):
    """The result of a search."""

    search_id: str
    attribute: str
    value: str
    generator: str
    method: str
    subject: str
    prompts: list[str]
    log_priors: list[float]
    bias_scores: list[float]
    images_used: int
    candidates: int
    rejected: int
    error: str | None


SEARCHES = schema_of(SearchRow)


class WrittenRow(TypedDict):
    """A prompt that no search found: written by a person, a template or a language model."""

    attribute: str
    value: str
    generator: str | None  # null: the same for all
    method: str
    subject: str | None
    prompt: str


WRITTEN = schema_of(WrittenRow)


class JudgedRow(TypedDict):
    """What the judge says of the images of a prompt."""

    judged_id: str
    generator: str
    prompt: str
    seeds: list[int]
    attributes: list[str]
    answers: list[str]  # the first attribute's, an image each; then the next's. null: none
    error: str | None  # why no image could be judged


JUDGED = schema_of(JudgedRow)


class ExampleRow(TypedDict):
    """The pictures of a prompt that the report shows."""

    example_id: str
    attribute: str
    value: str
    generator: str
    prompt: str
    pictures: list[bytes]  # PNG; null where there is none
    error: str | None


EXAMPLES = schema_of(ExampleRow)
