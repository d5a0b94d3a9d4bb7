"""The tables of Classifier-to-Bias audits and of comparisons between them: scores and what follows from scores."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.tables.path import PREDICTIONS

_text = pa.string()

SCORES = pa.schema(
    [
        pa.field("classifier", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_class", _text, nullable=False),
        # What `accuracy`, `phi` and all results of them are values of; null in runs of releases that had accuracy
        # alone. # `n` and `correct` count the cell's images and the right answers to them, whatever the metric.
        pa.field("metric", _text),
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
        # Of the test for |φ| ≤ τ, which `none` states; its false discovery rate is controlled as that of findings is.
        pa.field("none_p_value", pa.float64()),
        pa.field("none_q_value", pa.float64()),
        # Orders the findings: φ shrunk towards 0 by the noise of the classifier's cells, or φ on fresh images.
        pa.field("phi_shrunken", pa.float64()),
        # The smallest |φ| that two stages find in four of five audits; null without `screening`.
        pa.field("detectable", pa.float64()),
        pa.field("phi_confirmed", pa.float64()),  # on images drawn for confirmation alone; null without `confirm`
        pa.field("phi_confirmed_low", pa.float64()),
        pa.field("phi_confirmed_high", pa.float64()),
        # How the images' values are known. labels: from the images' labels; captions: from the captions that drew them,
        # unverified; verifier: from a verifier with its own certainty; calibrated: with its measured accuracy.
        pa.field("basis", _text),
        pa.field("captions", pa.int64()),  # captions whose images the cell holds; null for labelled images
        pa.field("caption_spread", pa.float64()),  # standard deviation between captions of one cell; NaN: not known
        pa.field("clusters", pa.int64()),  # clusters, such as cameras, that the images of n come from; null without
        pa.field("wanted", pa.int64()),  # distinct images that the cell should have; null for labelled images
        pa.field("undecided", pa.int64()),  # images of n without a single likeliest answer; they count as wrong
        pa.field("shared", pa.int64()),  # images of n that other values of the attribute hold as well
        # φ with the cells weighted to one distribution of all other attributes; null where it could not be computed.
        pa.field("phi_standardised", pa.float64()),
        # "attribute: value" of another attribute that nearly the same images show, as far as verified: no image
        # distinguishes their effects. Null where there is none.
        pa.field("same_as", _text),
        # If images were verified, `accuracy`, `phi` and all results of them are corrected for images that show
        # something else; `n` and `correct` count the drawn images, and these two are uncorrected too.
        pa.field("accuracy_observed", pa.float64()),
        pa.field("phi_observed", pa.float64()),
        pa.field("repeats", pa.int64(), nullable=False),  # near-duplicates of other images of the cell; not in n
        # Null without verification: shares of the cell's images that show its bias class, with limits, and its class.
        *[pa.field(name, pa.float64()) for name in ("shown", "shown_low", "shown_high", "class_shown")],
        # The share of the cell's images that do not show its class, with limits, as predicted from images of the
        # calibration that look like them. Null where images were not drawn from those that a calibrated verifier
        # accepted in an index; NaN where the calibration holds no such image.
        *[pa.field(name, pa.float64()) for name in ("false_accepts", "false_accepts_low", "false_accepts_high")],
        # φ that follows from how often each class has the attribute's values alone, if answers depended on the class
        # and # not on the value. Null for accuracy, which is of one class, and where φ is not beyond τ.
        pa.field("phi_of_mix", pa.float64()),
        pa.field("doubt", _text),  # why the verdict is withheld, regardless of the numbers; null where it is not
        # Why a cell is undetermined, in a sentence; null elsewhere.
        pa.field("undetermined_because", _text),
        # Images that each cell needs, with captions in the same proportion; null: settled, or no number suffices.
        pa.field("images_to_settle", pa.int64()),
        pa.field("mistaken_for", _text),  # the commonest wrong answer, null where there is none
        pa.field("mistaken", pa.int64(), nullable=False),  # the number of images with that answer
        # The number of images whose answer is the class that the bias class names (such as another class's
        # texture); null where it names none. For the target class itself these are the right answers.
        pa.field("answered_bias_class", pa.int64()),
        # Findings that share their images have one number; the largest |φ| is in group 1. Null where there is no
        # finding.
        pa.field("group", pa.int32()),
        pa.field(
            "group_reason", _text
        ),  # why the finding is in the group of another one; null for the first of a group
    ]
)

LABEL_ERRORS = pa.schema(
    [
        pa.field("classifier", _text, nullable=False),
        pa.field("key", _text),  # the image's name in its source
        pa.field("label", _text, nullable=False),  # the class that it is labelled with
        pa.field("answer", _text, nullable=False),  # the class that the classifier confidently takes it for
        pa.field("confidence", pa.float64(), nullable=False),  # the probability of that class
        pa.field("label_probability", pa.float64(), nullable=False),
        # Of its nearest images, by the encoder: the shares labelled as the answer, and as the image. Null without one.
        pa.field("neighbours_answer", pa.float64()),
        pa.field("neighbours_label", pa.float64()),
        pa.field("image_id", _text, nullable=False),
    ]
)

LABELLED_IMAGES = pa.schema(
    [
        pa.field("image_id", _text, nullable=False),
        pa.field("classes", pa.list_(_text), nullable=False),  # those of the audit that it shows, in their order
        pa.field("attributes", pa.list_(_text), nullable=False),  # of which it has a value
        pa.field("bias_classes", pa.list_(_text), nullable=False),  # the value of each
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
                "expected",  # the accuracy that the two attributes predict separately, in [0, 1]
                "interaction",  # accuracy − expected
                "interaction_low",
                "interaction_high",
                "p_value",  # of |interaction| ≤ τ; NaN where the cell is in doubt
                "q_value",  # over all cells of all pairs of all classifiers
            )
        ],
        pa.field("verdict", _text, nullable=False),  # of the interaction: for, against, none, undetermined
        pa.field("basis", _text),  # how the images' values are known, as in SCORES
        pa.field("captions", pa.int64()),  # captions whose images the cell holds; null for labelled images
        pa.field("caption_spread", pa.float64()),  # standard deviation between captions of one cell; NaN: not known
        pa.field("repeats", pa.int64()),  # near-duplicates of other images of the cell; not in n
        pa.field("shown", pa.float64()),  # estimated share of images that show both values; null without verification
        pa.field("doubt", _text),  # why the verdict is withheld, regardless of the numbers
        # The finding of the pair (its bias class) that explains this cell. `expected` and its results are computed
        # from cells without findings.
        pa.field("folded_into", _text),
    ]
)

POOLED = pa.schema(
    [
        pa.field("classifier", _text, nullable=False),
        pa.field("attribute", _text, nullable=False),
        pa.field("bias_class", _text, nullable=False),
        pa.field("classes", pa.int64(), nullable=False),  # the number of classes whose cells were pooled
        *[pa.field(name, pa.int64(), nullable=False) for name in ("n", "correct")],
        *[
            pa.field(name, pa.float64())
            for name in (
                "accuracy",  # mean of the classes' accuracies, weighted as `stats.pooled` says
                "phi",  # mean of the classes' φ, weighted alike
                "phi_low",
                "phi_high",
                "p_value",
                "q_value",  # over all pooled cells of all classifiers
            )
        ],
        pa.field("verdict", _text, nullable=False),  # for, against, none, undetermined
        pa.field("doubt", _text),
        pa.field("basis", _text),  # the weakest of the pooled cells, as in SCORES
        pa.field("captions", pa.int64()),  # captions whose images the pooled cells hold; null for labelled images
        pa.field("caption_spread", pa.float64()),  # the largest between captions of one cell; NaN: not known
        pa.field("clusters", pa.int64()),  # clusters that the images come from, each once; null without
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
        pa.field("n", pa.int64(), nullable=False),  # images drawn by both runs and answered by both classifiers
        pa.field("unshared", pa.int64(), nullable=False),  # images drawn by only one of the two runs; not in n
        pa.field(
            "unanswered", pa.int64(), nullable=False
        ),  # drawn by both runs, without an answer by one classifier or both; not in n
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
        pa.field("doubt", _text),  # why the change is withheld, regardless of the numbers
        pa.field("repeats", pa.int64()),  # shared images that are near-duplicates of others of the cell; not in n
        pa.field(
            "refused", pa.int64()
        ),  # shared images that do not show class and value according to a verifier; not in n
        # Independent images that would tell as much as the n, which came from few captions.
        pa.field("effective", pa.float64()),
        pa.field("captions", pa.int64()),  # captions whose images are in n; null for labelled images
        pa.field("caption_spread", pa.float64()),  # of the difference, between captions of a cell; NaN: not known
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
        pa.field("effective", pa.float64()),
        pa.field("captions", pa.int64()),
        pa.field("caption_spread", pa.float64()),  # the largest of a cell
    ]
)


# The tables of perturbations of an audit's images: which images, the answers to them, and what follows from these.


PERTURBED_IMAGES = pa.schema(
    [
        pa.field("image_id", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        # A near-duplicate of an earlier image of its class: answered, and left out of the counts. Null: not yet known.
        pa.field("repeat", pa.bool_()),
        pa.field("cluster", _text),  # such as the camera; null where it is not known
    ]
)

PERTURBED_PREDICTIONS = pa.schema(
    [
        PREDICTIONS.field("prediction_id"),  # hash of the perturbed picture, classifier, its revision and label map
        PREDICTIONS.field("image_id"),  # of the image as it is
        pa.field("perturbation", _text, nullable=False),  # such as blur; none: of the image reduced, but unperturbed
        pa.field("level", pa.int8(), nullable=False),  # 1 to 5; 0 unperturbed
        *[field for field in PREDICTIONS if field.name not in ("prediction_id", "image_id", "probabilities")],
    ]
)

PERTURBATIONS = pa.schema(
    [
        pa.field("classifier", _text, nullable=False),
        pa.field("target_class", _text, nullable=False),
        pa.field("perturbation", _text, nullable=False),
        pa.field("level", pa.int8(), nullable=False),  # 1 to 5
        pa.field("n", pa.int64(), nullable=False),  # images that were answered both ways
        pa.field("errors", pa.int64(), nullable=False),  # images without an answer one way or both; not in n
        pa.field("repeats", pa.int64(), nullable=False),  # near-duplicates of other images of the class; not in n
        pa.field("correct_unperturbed", pa.int64(), nullable=False),
        pa.field("correct", pa.int64(), nullable=False),  # perturbed
        pa.field("only_unperturbed", pa.int64(), nullable=False),  # images that are right unperturbed alone
        pa.field("only_perturbed", pa.int64(), nullable=False),
        *[
            pa.field(name, pa.float64())
            for name in (
                "accuracy_unperturbed",
                "accuracy_unperturbed_low",
                "accuracy_unperturbed_high",
                "accuracy",  # perturbed
                "accuracy_low",
                "accuracy_high",
                "difference",  # accuracy, perturbed minus unperturbed, on the same images
                "difference_low",
                "difference_high",
                "p_value",  # of |difference| ≤ τ
                "q_value",  # over all classes, perturbations, levels and classifiers
                "none_p_value",  # of |difference| ≥ τ, and its q, as in SCORES
                "none_q_value",
            )
        ],
        # for (better perturbed), against, none, undetermined; never none where the class has no more than τ to lose
        pa.field("verdict", _text, nullable=False),
        # Images of the class, in all, that would settle the verdict; null: settled, or no number suffices.
        pa.field("images_to_settle", pa.int64()),
        pa.field("clusters", pa.int64()),  # clusters that the images of n come from; null without
        pa.field("effective", pa.float64()),  # independent images that would tell as much as n
        pa.field("mistaken_for", _text),  # the commonest wrong answer to perturbed images; null where there is none
        pa.field("mistaken", pa.int64(), nullable=False),  # the number of images with that answer
    ]
)
"""Adjusted p-values and verdicts are of one family: all rows."""
