"""Strips of images along a direction from the same latents, and what changes from end to end according to a captioner.

The captioner takes the role of the people whom Li & Xu (2021, App. G) asked to name directions. A word names a
direction where it occurs in captions of more images at one end than at the other: McNemar's exact test on pairs from
the same latent, with the false discovery rate controlled at 5 % over all words. It knows images and captions, not how a
direction was found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from c2b_ray.config.latent import LatentConfig
from c2b_ray.roles import Captioner, Floats, Pixels
from c2b_ray.stats.multiplicity import benjamini_hochberg
from c2b_ray.stats.paired import mcnemar_p_values
from c2b_ray.steps.generate import png
from c2b_ray.tables import seed_of
from c2b_ray.tables.latent_rows import StripRow

_LEVEL = 0.05
_WORDS = 2


class PicturedStrip(Protocol):
    label: str
    centre: NDArray[np.float64]
    scale: float

    def sample(self, count: int, seed: int) -> Floats: ...

    def probabilities(self, latents: NDArray[Any]) -> NDArray[np.float64]: ...

    def pixels(self, latents: NDArray[Any]) -> list[Pixels]: ...


@dataclass(frozen=True)
class StripEnds:
    """How strips are drawn and named. `captioner`: None where there is none."""

    config: LatentConfig
    captioner: Captioner | None


def strip(
    space: PicturedStrip, normal: NDArray[np.float64], direction_id: str, ends: StripEnds
) -> tuple[list[StripRow], str | None]:
    """Returns rows of `tables.latent.STRIPS`, and the direction's name; None without a captioner or a word that
    differs."""
    config = ends.config
    name = None
    if ends.captioner is not None and config.strips.latents:
        low, high = (
            [reply.text for reply in ends.captioner.caption(space.pixels(part), [space.label] * len(part))]
            for part in _two_ends(space, normal, config)
        )
        name = name_of(low, high)
    if not config.strips.latents:
        return [], name
    positions = np.linspace(-config.strips.reach, config.strips.reach, config.strips.positions)
    # The same latents whatever the problem and the method: only the direction differs between strips.
    walk = walks(space, space.sample(config.strips.latents, seed_of("strips", config.seed)), normal, positions)
    flat = walk.reshape(-1, walk.shape[-1])
    answers, images = space.probabilities(flat), space.pixels(flat)
    rows: list[StripRow] = []
    for index, (probability, image) in enumerate(zip(answers.tolist(), images, strict=True)):
        latent, position = divmod(index, len(positions))
        rows.append(
            {
                "direction_id": direction_id,
                "latent": latent,
                "position": float(positions[position]),
                "probability": probability,
                "caption": None,
                "image": png(image, level=9),
            }
        )
    return rows, name


def walks(
    space: PicturedStrip, latents: Floats, normal: NDArray[np.float64], positions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns (latents, positions, d): each latent, moved along the unit normal to `positions` of the prior's standard
    deviations from its mean."""
    across = latents - ((latents - space.centre) @ normal)[:, None] * normal
    moved: NDArray[np.float64] = across[:, None, :] + space.scale * positions[:, None] * normal
    return moved


def _two_ends(space: PicturedStrip, normal: NDArray[np.float64], config: LatentConfig) -> list[NDArray[np.float64]]:
    latents = space.sample(config.strips.named_by, seed_of("names", config.seed))
    both = walks(space, latents, normal, np.array([-config.strips.reach, config.strips.reach]))
    return [both[:, 0], both[:, 1]]


def name_of(low: Sequence[str | None], high: Sequence[str | None]) -> str | None:
    """Returns the direction's name; None where there is none.

    `low` and `high`: captions of the two ends of the same latents, in the same order.
    """
    pairs = [(_words(a), _words(b)) for a, b in zip(low, high, strict=True) if a is not None and b is not None]
    words = sorted({word for pair in pairs for words in pair for word in words})
    only_low = np.array([sum(word in a and word not in b for a, b in pairs) for word in words])
    only_high = np.array([sum(word in b and word not in a for a, b in pairs) for word in words])
    if not words:
        return None
    telling = benjamini_hochberg(mcnemar_p_values(only_low, only_high)) <= _LEVEL
    sides = []
    for sign in (1, -1):
        excess = sign * (only_low - only_high)
        best = [at for at in np.argsort(-excess, kind="stable") if telling[at] and excess[at] > 0][:_WORDS]
        sides.append(", ".join(words[at] for at in best))
    return f"{sides[0] or '…'} → {sides[1] or '…'}" if any(sides) else None


def _words(caption: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d_]{2,}", caption.casefold()))
