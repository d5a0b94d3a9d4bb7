"""Fills in defaults that depend on other fields, so that a run's config records what was done."""

from __future__ import annotations

from c2b_ray.config.audit import IMAGES_PER_CAPTION, AuditConfig
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
        return config
    per_caption = config.images_per_caption or IMAGES_PER_CAPTION
    changes: dict[str, object] = {"images_per_caption": per_caption}
    if "retrieve" in config.images.sources:
        changes["images"] = _images(config, per_caption, file)
    return config.model_copy(update=changes)


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
    if config.confirm and selection == "nearest":
        raise ConfigError(
            "confirm",
            "images beyond the nearest ones match the caption less; confirm needs "
            "`verification`, and images.selection: accepted",
            location=file,
        )
    pool = images.pool or min(POOL * per_caption * config.captions_per_cell, LARGEST_POOL)
    return images.model_copy(update={"pool": pool, "selection": selection})
