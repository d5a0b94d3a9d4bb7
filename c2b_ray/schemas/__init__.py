"""The Arrow schema of every table, and the ids that tie them together. Nothing here reads or writes files.

path   the tables that audits share        c2b   scores, and what follows from them        ids   ids and seeds
"""

from c2b_ray.schemas.c2b import AGREEMENT, COMPARISON, COMPARISON_POOLED, INTERSECTIONS, POOLED, SCORES
from c2b_ray.schemas.ids import content_id, content_ids, seed_of
from c2b_ray.schemas.path import (
    CALIBRATION,
    CALIBRATION_ANSWERS,
    CAPTIONS,
    DRAWS,
    FAILURES,
    IMAGES,
    PREDICTIONS,
    PROPOSALS,
    REJECTED,
    RETRIEVED,
    SEARCHES,
    VERIFICATIONS,
    embeddings,
)

__all__ = [
    "AGREEMENT",
    "CALIBRATION",
    "CALIBRATION_ANSWERS",
    "CAPTIONS",
    "COMPARISON",
    "COMPARISON_POOLED",
    "DRAWS",
    "FAILURES",
    "IMAGES",
    "INTERSECTIONS",
    "POOLED",
    "PREDICTIONS",
    "PROPOSALS",
    "REJECTED",
    "RETRIEVED",
    "SCORES",
    "SEARCHES",
    "VERIFICATIONS",
    "content_id",
    "content_ids",
    "embeddings",
    "seed_of",
]
