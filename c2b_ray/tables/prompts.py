"""The tables of `c2b prompts`: searches and their prompts, values that prompts bring about, words that raise them."""

from __future__ import annotations

import pyarrow as pa

_text = pa.string()
_count = pa.int64()
_number = pa.float64()
_texts = pa.list_(_text)

PROMPTS = pa.schema(
    [
        pa.field("attribute", _text, nullable=False),  # "a + b" for an intersection
        pa.field("value", _text, nullable=False),
        pa.field("generator", _text, nullable=False),  # its name in the config
        pa.field("method", _text, nullable=False),  # curated, templates, llm, llm_biased, pez, bgps λ=10
        pa.field("prompt", _text, nullable=False),
        pa.field("log_prior", _number),  # log P(prompt and its end | instruction); null for prompts without a search
        pa.field("bias_score", _number),  # log mean P(value) over the search's seeds; null as above
        pa.field("frequency", _number),  # share of images under fresh seeds that the judge says show the value
        pa.field("frequency_low", _number),
        pa.field("frequency_high", _number),
        pa.field("perplexity", _number),  # measured by the reader; null without one
        pa.field("leaked", pa.bool_(), nullable=False),  # whether the prompt names the value
        pa.field("images_used", _count, nullable=False),  # of the search, divided among its prompts
        pa.field("subject", _text),
        pa.field("images", _count, nullable=False),  # judged
        pa.field("leaked_word", _text),
    ]
)

ASSOCIATIONS = pa.schema(
    [
        pa.field("word", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),
        pa.field("effect", _number),  # what the word adds to the value's frequency
        pa.field("low", _number),
        pa.field("high", _number),
        pa.field("q_value", _number),  # of "it raises the value by no more than the least effect", one-sided
        pa.field("generator", _text, nullable=False),
        pa.field("p_value", _number),
        pa.field("against", _text, nullable=False),  # the effect is the difference to: without it, other words
        pa.field("contexts", _count, nullable=False),
        pa.field("images", _count, nullable=False),  # with the word, in the look that the numbers describe
        pa.field("raises", pa.bool_(), nullable=False),  # q ≤ alpha
        # 2: numbers of the second look, in which values that the first one excluded have q = 1; null: an older run
        pa.field("look", pa.int32()),
        pa.field("images_used", _count),  # with the word, of both looks
    ]
)

PROMPTS_COMPARISON = pa.schema(
    [
        pa.field("measure", _text, nullable=False),  # gain, frequency, word
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),
        pa.field("name", _text, nullable=False),  # of the method, or the word
        *[pa.field(f"value_{side}", _number) for side in "ab"],  # null where that side has none
        *[pa.field(f"n_{side}", _count, nullable=False) for side in "ab"],  # images
        *[pa.field(f"verdict_{side}", _text) for side in "ab"],  # of a word: raises, none, undetermined
        *[
            pa.field(name, _number)  # null where they cannot be compared
            for name in ("difference", "difference_low", "difference_high", "p_value", "q_value")
        ],
        pa.field("change", _text, nullable=False),  # worse: more of B; better: less; undetermined
    ]
)

METHODS = pa.schema(
    [
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),
        pa.field("generator", _text, nullable=False),
        pa.field("method", _text, nullable=False),
        pa.field("prompts", _count, nullable=False),
        pa.field("frequency", _number),  # mean over prompts that do not leak
        pa.field("frequency_low", _number),
        pa.field("frequency_high", _number),
        pa.field("perplexity", _number),  # median
        pa.field("leaked", _number, nullable=False),  # share of the prompts
        pa.field("frequency_with_leaks", _number),
        pa.field("candidates", _count, nullable=False),
        pa.field("rejected", _count, nullable=False),  # candidates that were discarded because they name the value
        pa.field("images_used", _count, nullable=False),
    ]
)

GAINS = pa.schema(
    [
        pa.field("generator", _text, nullable=False),
        pa.field("method", _text, nullable=False),
        # mean over values of its frequency less that of the language model's own prompts about the same subjects
        pa.field("gain", _number),
        pa.field("low", _number),  # null where a value has prompts of only one search, or one prompt
        pa.field("high", _number),
        pa.field("values", _count, nullable=False),  # for which both have prompts that do not name a value
        pa.field("prompts", _count, nullable=False),  # of the method, about subjects of both
        pa.field("verdict", _text, nullable=False),  # above, below, nothing found (the interval holds 0), unknown
    ]
)

MODIFIERS = pa.schema(
    [
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),
        pa.field("generator", _text, nullable=False),
        pa.field("prompt", _text, nullable=False),
        pa.field("modifier", _text, nullable=False),  # the part that was removed
        pa.field("without", _text, nullable=False),  # the prompt without it
        pa.field("frequency_with", _number),
        pa.field("frequency_without", _number),
        pa.field("adds", _number),
        pa.field("low", _number),
        pa.field("high", _number),
        pa.field("q_value", _number),
        pa.field("images", _count, nullable=False),
    ]
)

HEADS = pa.schema(
    [
        pa.field("generator", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("activation", _text, nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("accuracy", _number),  # mean over values of the share of held-out images whose value it names
        pa.field("low", _number),
        pa.field("high", _number),
        pa.field("chance", _number, nullable=False),
        pa.field("prompts", _count, nullable=False),  # held out
        pa.field("images", _count, nullable=False),
        pa.field("guides", pa.bool_(), nullable=False),  # whether the search uses this one
        pa.field("verdict", _text, nullable=False),  # above chance, at chance, too few images
    ]
)

SEARCHES = pa.schema(
    [
        pa.field("search_id", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),
        pa.field("generator", _text, nullable=False),
        pa.field("method", _text, nullable=False),
        pa.field("subject", _text, nullable=False),
        pa.field("prompts", _texts, nullable=False),
        pa.field("log_priors", pa.list_(_number), nullable=False),
        pa.field("bias_scores", pa.list_(_number), nullable=False),
        pa.field("images_used", _count, nullable=False),
        pa.field("candidates", _count, nullable=False),
        pa.field("rejected", _count, nullable=False),
        pa.field("error", _text),
    ]
)

WRITTEN = pa.schema(
    [
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),
        pa.field("generator", _text),  # null: the same for all
        pa.field("method", _text, nullable=False),
        pa.field("subject", _text),
        pa.field("prompt", _text, nullable=False),
    ]
)

JUDGED = pa.schema(
    [
        pa.field("judged_id", _text, nullable=False),
        pa.field("generator", _text, nullable=False),
        pa.field("prompt", _text, nullable=False),
        pa.field("seeds", pa.list_(_count), nullable=False),
        pa.field("attributes", _texts, nullable=False),
        pa.field(
            "answers", _texts, nullable=False
        ),  # the first attribute's, an image each; then the next's. null: none
        pa.field("error", _text),  # why no image could be judged
    ]
)

EXAMPLES = pa.schema(
    [
        pa.field("example_id", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("value", _text, nullable=False),
        pa.field("generator", _text, nullable=False),
        pa.field("prompt", _text, nullable=False),
        pa.field("pictures", pa.list_(pa.binary()), nullable=False),  # PNG; null where there is none
        pa.field("error", _text),
    ]
)
