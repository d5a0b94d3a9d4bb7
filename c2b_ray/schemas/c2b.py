"""The tables of Classifier-to-Bias audits and of comparisons between them: scores and what follows from scores."""

from __future__ import annotations

import pyarrow as pa

_text = pa.string()

SCORES = pa.schema(
    [
        pa.field("classifier", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_class", _text, nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("correct", pa.int64(), nullable=False),
        pa.field("errors", pa.int64(), nullable=False),  # images of the cell without a prediction; not in n
        *[
            pa.field(name, pa.float64())
            for name in (
                "accuracy",
                "accuracy_low",
                "accuracy_high",
                "phi",
                "phi_low",
                "phi_high",
                "p_value",
                "q_value",
            )
        ],
        pa.field("verdict", _text, nullable=False),  # for, against, none, undetermined
        pa.field("paper_verdict", pa.int8(), nullable=False),  # 1, -1, 0: |φ| > τ alone
        # Of the claim that |φ| ≤ τ, which `none` makes; its false discovery rate is controlled as that of findings is.
        pa.field("none_p_value", pa.float64()),
        pa.field("none_q_value", pa.float64()),
        # What a ranking goes by: φ drawn towards 0 by the noise of the classifier's cells, or φ on fresh images.
        pa.field("phi_shrunken", pa.float64()),
        pa.field("phi_confirmed", pa.float64()),  # on images drawn for confirmation alone; null without `confirm`
        pa.field("phi_confirmed_low", pa.float64()),
        pa.field("phi_confirmed_high", pa.float64()),
        # What accuracies are counted on. labels: the images' labels are taken as they are; captions: what captions
        # drew, unverified; verifier: what a verifier says, as certain as it says; calibrated: as a calibration showed.
        pa.field("basis", _text),
        pa.field("captions", pa.int64()),  # captions whose images the cell holds; null for labelled images
        pa.field("caption_spread", pa.float64()),  # standard deviation between captions of one cell; NaN: not known
        pa.field("wanted", pa.int64()),  # distinct images that the cell wanted; null for labelled images
        pa.field("undecided", pa.int64()),  # images of n whose answer is no single one; they count as wrong
        pa.field("shared", pa.int64()),  # images of n that other values of the attribute hold as well
        # φ with the cells weighted to one distribution of all other attributes; null where it could not be computed.
        pa.field("phi_standardised", pa.float64()),
        # "attribute: value" of another attribute that nearly the same images show, as far as verified: neither explains
        # the other, and no images tell them apart. Null where there is none.
        pa.field("same_as", _text),
        # Where images were verified, `accuracy`, `phi` and all that follows from them are corrected for what images
        # show; `n` and `correct` are counts of the images as they were drawn, and so are these two.
        pa.field("accuracy_observed", pa.float64()),
        pa.field("phi_observed", pa.float64()),
        pa.field("repeats", pa.int64(), nullable=False),  # near-duplicates of other images of the cell; not in n
        # Null without verification: shares of the cell's images that show its bias class, with limits, and its class.
        *[pa.field(name, pa.float64()) for name in ("shown", "shown_low", "shown_high", "class_shown")],
        pa.field("doubt", _text),  # why a verdict was withheld whatever the numbers say; null where it was not
        # Why a cell is undetermined, in a sentence, also where its interval alone would say more; null elsewhere.
        pa.field("undetermined_because", _text),
        # Per cell, of as many captions more as images where captions drew them; null: settled, or no number would do.
        pa.field("images_to_settle", pa.int64()),
        pa.field("mistaken_for", _text),  # the commonest wrong answer, null where there is none
        pa.field("mistaken", pa.int64(), nullable=False),  # how many images got that answer
        # How many images were answered with the class that the bias class itself names (the texture of another class,
        # say); null where it names none. The target class's own cell counts its right answers.
        pa.field("answered_bias_class", pa.int64()),
        # Findings that say the same of the same images share a number; 1 is led by the largest |φ|. Null where nothing
        # was found.
        pa.field("group", pa.int32()),
        pa.field("group_reason", _text),  # why the finding belongs to another's group; null where it leads its own
    ]
)

INTERSECTIONS = pa.schema(
    [
        pa.field("classifier", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),  # "a × b"
        pa.field("bias_class", _text, nullable=False),  # "x, y"
        *[pa.field(name, _text, nullable=False) for name in ("attribute_a", "attribute_b", "value_a", "value_b")],
        *[pa.field(name, pa.int64(), nullable=False) for name in ("n", "correct", "errors")],
        *[
            pa.field(name, pa.float64())
            for name in (
                "accuracy",
                "accuracy_low",
                "accuracy_high",
                "phi",  # among all cells of the pair, as for an attribute
                "phi_low",
                "phi_high",
                "phi_p_value",
                "phi_q_value",
                "expected",  # the accuracy that the two attributes, taken alone, predict, in [0, 1]
                "interaction",  # accuracy − expected
                "interaction_low",
                "interaction_high",
                "p_value",  # of |interaction| ≤ τ; NaN where the cell is in doubt
                "q_value",  # over all cells of all pairs of all classifiers
            )
        ],
        pa.field("verdict", _text, nullable=False),  # of the interaction: for, against, none, undetermined
        pa.field("basis", _text),  # what accuracies are counted on, as in SCORES
        pa.field("repeats", pa.int64()),  # near-duplicates of other images of the cell; not in n
        pa.field("shown", pa.float64()),  # estimated share of images that show both values; null without verification
        pa.field("doubt", _text),  # why a verdict was withheld whatever the numbers say
        # The finding of the pair (its bias class) whose shadow this cell is. `expected` and what follows from it rest
        # on the cells that are no findings.
        pa.field("folded_into", _text),
    ]
)

POOLED = pa.schema(
    [
        pa.field("classifier", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_class", _text, nullable=False),
        pa.field("classes", pa.int64(), nullable=False),  # of the task, whose cells were taken together
        *[pa.field(name, pa.int64(), nullable=False) for name in ("n", "correct")],
        *[
            pa.field(name, pa.float64())
            for name in (
                "accuracy",  # mean of the classes' accuracies, weighted as `metrics.pooled` says
                "phi",  # mean of the classes' φ, weighted alike
                "phi_low",
                "phi_high",
                "p_value",
                "q_value",  # over all pooled cells of all classifiers
            )
        ],
        pa.field("verdict", _text, nullable=False),  # for, against, none, undetermined
        pa.field("doubt", _text),
    ]
)

AGREEMENT = pa.schema(
    [
        pa.field("classifier", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_class", _text, nullable=False),
        *[
            pa.field(f"{name}_{source}", kind)
            for source in ("retrieve", "generate")
            for name, kind in (
                ("n", pa.int64()),
                ("phi", pa.float64()),
                ("phi_low", pa.float64()),
                ("phi_high", pa.float64()),
            )
        ],
        *[
            pa.field(name, pa.float64())
            for name in ("difference", "difference_low", "difference_high", "p_value", "q_value")
        ],  # φ of generated images minus that of retrieved ones
        pa.field("agreement", _text, nullable=False),  # same, different, undetermined
    ]
)

COMPARISON = pa.schema(
    [
        pa.field("target_class", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_class", _text, nullable=False),
        pa.field("n", pa.int64(), nullable=False),  # images that both drew and both classifiers answered
        pa.field("unshared", pa.int64(), nullable=False),  # images that only one of the two drew; not in n
        pa.field("unanswered", pa.int64(), nullable=False),  # drawn by both, without an answer of either; not in n
        pa.field("only_a", pa.int64(), nullable=False),  # images that A alone got right
        pa.field("only_b", pa.int64(), nullable=False),
        *[
            pa.field(name, pa.float64())
            for name in (
                "accuracy_a",
                "accuracy_b",
                "difference",  # B minus A, as everywhere below
                "difference_low",
                "difference_high",
                "p_value",
                "q_value",
                "phi_a",
                "phi_b",
                "phi_difference",
                "phi_difference_low",
                "phi_difference_high",
                "phi_p_value",
                "phi_q_value",
            )
        ],
        pa.field("change", _text, nullable=False),  # better, worse, same, undetermined
        pa.field("doubt", _text),  # why a change was withheld whatever the numbers say
        pa.field("repeats", pa.int64()),  # shared images that are near-duplicates of others of the cell; not in n
        pa.field("refused", pa.int64()),  # shared images in which a verifier did not see class and value; not in n
    ]
)

COMPARISON_POOLED = pa.schema(
    [
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_class", _text, nullable=False),
        pa.field("classes", pa.int64(), nullable=False),
        *[pa.field(name, pa.int64(), nullable=False) for name in ("n", "only_a", "only_b")],
        *[
            pa.field(name, pa.float64())
            for name in ("difference", "difference_low", "difference_high", "p_value", "q_value")
        ],
        pa.field("change", _text, nullable=False),  # better, worse, same, undetermined
        pa.field("doubt", _text),
    ]
)
