"""The tables of perturbations of an audit's images: which images, the answers to them, and what follows from these."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.tables.path import PREDICTIONS

_text = pa.string()

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
