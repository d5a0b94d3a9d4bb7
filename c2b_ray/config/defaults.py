"""Fills in defaults that depend on other fields, so that a run's config records what was done."""

from __future__ import annotations

from math import ceil

from c2b_ray.config.audit import (
    ALL_IMAGES,
    IMAGES_PER_CAPTION,
    RETRIEVED_BESIDES,
    SCREENING_IMAGES,
    AuditConfig,
    Screening,
)
from c2b_ray.config.images import LARGEST_POOL, Images
from c2b_ray.errors import ConfigError

POOL = 10
"""The size of each caption's pool, as a multiple of the images that a cell wants."""


def with_defaults(config: AuditConfig, file: str | None = None) -> AuditConfig:
    """Returns the config with all defaults filled in. Raises ConfigError, which names the `file`, for fields that
    exclude each other."""
    if config.images.sources == ("labelled",):
        if config.confirm:
            raise ConfigError(
                "confirm", "a labelled table has no further images; generate or retrieve some", location=file
            )
        if config.screening is not None:
            raise ConfigError(
                "screening",
                "a labelled table has no fresh images; all of its rows are examined at once. Leave it out",
                location=file,
            )
        return config
    screening = config.screening or _screening(config)
    on_fresh = screening is not None and not screening.tests_all
    screened = ceil(SCREENING_IMAGES / config.captions_per_cell)
    per_caption = config.images_per_caption or (screened if on_fresh else IMAGES_PER_CAPTION)
    changes: dict[str, object] = {"images_per_caption": per_caption, "screening": screening}
    config = config.model_copy(update={"screening": screening})
    if "retrieve" in config.images.sources:
        changes["images"] = _images(config, per_caption, file)
    return config.model_copy(update=changes)


def _screening(config: AuditConfig) -> Screening | None:
    """Returns the two stages that images have by default; None where the config names a size or a budget, or needs all
    images at once.

    An index may hold too few further images to be tested alone, and which it holds is known only once they are
    verified: so retrieved images are tested on those of both stages. Without a verifier, images beyond the nearest ones
    match the caption less.
    """
    names_size = config.images_per_caption is not None or config.budget is not None
    is_single_stage = config.confirm or bool(config.intersections)
    if names_size or is_single_stage:
        return None
    if config.images.sources == ("generate",):
        return Screening()
    accepts = config.verification is not None and config.images.selection != "nearest"
    retrieved = config.images.sources == ("retrieve",) and config.images.cluster is None
    return Screening(fresh=RETRIEVED_BESIDES, tested=ALL_IMAGES) if retrieved and accepts else None


def _images(config: AuditConfig, per_caption: int, file: str | None) -> Images:
    images, verified = config.images, config.verification is not None
    selection = images.selection or ("accepted" if verified else "nearest")
    if selection == "accepted" and not verified:
        raise ConfigError(
            "images.selection", "accepted needs `verification`: without it no image can be accepted", location=file
        )
    if images.pool is not None and images.pool < per_caption:
        raise ConfigError(
            "images.pool", f"{images.pool:,} images cannot give {per_caption:,} (images_per_caption)", location=file
        )
    for name in ("confirm", "screening"):
        if getattr(config, name) and selection == "nearest":
            raise ConfigError(
                name,
                f"images beyond the nearest ones match the caption less; {name} needs "
                "`verification`, and images.selection: accepted",
                location=file,
            )
    design = config.screening
    # Tested with the others, further images may be few: a pool of ten times the first ones holds many that match.
    fresh = 0 if design is None or design.tests_all else design.fresh
    pool = images.pool or min(POOL * (per_caption * config.captions_per_cell + fresh), LARGEST_POOL)
    return images.model_copy(update={"pool": pool, "selection": selection})
