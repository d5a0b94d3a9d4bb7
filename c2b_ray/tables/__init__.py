"""The Arrow schema of every table, and the ids that connect them. Nothing here reads or writes files.

path       the tables that audits share            c2b        scores and their results
failures   captions, rounds and hypotheses         dataset    rows and drops of a dataset of failures
perturb    answers to perturbed images, and their effects
ids        ids and seeds
"""

from c2b_ray.tables.c2b import AGREEMENT, COMPARISON, COMPARISON_POOLED, INTERSECTIONS, LABEL_ERRORS, POOLED, SCORES
from c2b_ray.tables.dataset import ANSWER, DATASET_ROWS, DROPS
from c2b_ray.tables.failures import (
    ANSWERS,
    CANDIDATES,
    DESCRIPTIONS,
    EXAMPLE,
    HYPOTHESES,
    RELIABILITY,
    ROUNDS,
    TRANSFERS,
)
from c2b_ray.tables.ids import IdPieces, content_id, content_ids, content_of, has_content, seed_of, texts
from c2b_ray.tables.path import (
    CALIBRATION,
    CALIBRATION_ANSWERS,
    CAPTIONS,
    CLUSTERS,
    DRAWS,
    FAILURES,
    IMAGE_CAPTIONS,
    IMAGE_EMBEDDINGS,
    IMAGE_VECTORS,
    IMAGES,
    NEGATIVES,
    PREDICTIONS,
    PROPERTIES,
    PROPOSALS,
    READINGS,
    REJECTED,
    RETRIEVED,
    SEARCHES,
    VERIFICATIONS,
    embeddings,
)
from c2b_ray.tables.perturb import PERTURBATIONS, PERTURBED_IMAGES, PERTURBED_PREDICTIONS

__all__ = [
    "AGREEMENT",
    "ANSWER",
    "ANSWERS",
    "CALIBRATION",
    "CALIBRATION_ANSWERS",
    "CANDIDATES",
    "CAPTIONS",
    "CLUSTERS",
    "COMPARISON",
    "COMPARISON_POOLED",
    "DATASET_ROWS",
    "DESCRIPTIONS",
    "DRAWS",
    "DROPS",
    "EXAMPLE",
    "FAILURES",
    "HYPOTHESES",
    "IMAGES",
    "IMAGE_CAPTIONS",
    "IMAGE_EMBEDDINGS",
    "IMAGE_VECTORS",
    "INTERSECTIONS",
    "LABEL_ERRORS",
    "NEGATIVES",
    "PERTURBATIONS",
    "PERTURBED_IMAGES",
    "PERTURBED_PREDICTIONS",
    "POOLED",
    "PREDICTIONS",
    "PROPERTIES",
    "PROPOSALS",
    "READINGS",
    "REJECTED",
    "RELIABILITY",
    "RETRIEVED",
    "ROUNDS",
    "SCORES",
    "SEARCHES",
    "TRANSFERS",
    "VERIFICATIONS",
    "IdPieces",
    "content_id",
    "content_ids",
    "content_of",
    "embeddings",
    "has_content",
    "seed_of",
    "texts",
]
