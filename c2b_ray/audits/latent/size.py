"""Computes how many images a search of latent directions may generate, from its config alone. It loads no model."""

from __future__ import annotations

from math import ceil

from c2b_ray.config.latent import LatentConfig, Method

PLAIN: tuple[Method, ...] = ("consistent", "total-variation", "signed-penalty", "no-penalty")
"""Methods whose images follow from the config: others look along each axis, or have further settings."""
_LOOK_EVERY = 10
_GRADIENT = 256


def most_images(config: LatentConfig) -> int | None:
    """Returns an upper limit over all problems; None where it depends on a generator's dimension or on a table."""
    if not set(config.methods) <= set(PLAIN) or config.latents is not None:
        return None
    if any(problem.biased == "pseudo" for problem in config.each()):
        return None
    search, strips = config.search, config.strips
    walks = search.batch * search.walk
    looks = 1 + ceil(search.iterations / _LOOK_EVERY)
    of_direction = search.starts * (_GRADIENT + walks * (search.iterations + 2 * looks)) + walks
    of_direction += strips.latents * strips.positions + (2 * strips.named_by if config.captioner else 0)
    of_search = config.directions * of_direction + config.evidence.latents
    return len(config.each()) * len(config.methods) * of_search
