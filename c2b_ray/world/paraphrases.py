"""Ground truth of the world in other words, with decoys: so that comparing strings cannot match detected biases to it.

It knows scenes, words and chance. A decoy is a made-up attribute whose name looks like a value of another attribute and
means something else. It is planted to occur with the other values, so its bias has the opposite direction: a matcher
that compares spelling counts it as found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from c2b_ray.world.scenes import ATTRIBUTES, Scene

_WORDS: dict[str, dict[str, str]] = {
    "colour": {
        "red": "crimson", "blue": "azure blue", "green": "emerald green", "yellow": "golden yellow",
        "purple": "violet", "white": "whitish",
    },
    "setting": {
        "street": "city street", "beach": "seaside beach", "forest": "woodland", "mountains": "mountain landscape",
    },
    "lighting": {"day": "daytime", "sunset": "sundown", "night": "nighttime"},
    "weather": {"clear": "clear skies", "rain": "rainy", "snow": "snowy", "fog": "foggy"},
    "size": {"small": "tiny", "large": "big"},
    "pattern": {"plain": "plain surface", "striped": "stripes", "dotted": "polka dots"},
    "companion": {"none": "without company", "dog": "puppy", "person": "human being", "balloon": "balloons"},
}  # fmt: skip

PARAPHRASES: dict[str, str] = {
    f"{attribute}: {value}": text for attribute, values in _WORDS.items() for value, text in values.items()
}
""" "attribute: value" → the ground truth's words for it."""


@dataclass(frozen=True)
class DecoyAttribute:
    """`name`: an attribute that images have or lack. A share `often` of the scenes without the value have it, and a
    share `seldom` of those with it."""

    name: str
    attribute: str
    value: str
    often: float = 0.8
    seldom: float = 0.1


DECOYS = (
    DecoyAttribute("fog horn", "weather", "fog"),
    DecoyAttribute("night shift", "lighting", "night"),
    DecoyAttribute("snow white", "weather", "snow"),
    DecoyAttribute("street market", "setting", "street"),
    DecoyAttribute("forest green", "setting", "forest"),
    DecoyAttribute("hot dog", "companion", "dog"),
    DecoyAttribute("small print", "size", "small"),
    DecoyAttribute("rain check", "weather", "rain"),
)


def decoy_columns(scenes: Sequence[Scene], seed: int, decoys: Sequence[DecoyAttribute] = DECOYS) -> dict[str, pa.Array]:
    """Returns a column of "present" and "absent" for each decoy. ValueError for an attribute or value that
    scenes lack."""
    columns = {}
    for number, decoy in enumerate(decoys):
        if decoy.value not in ATTRIBUTES.get(decoy.attribute, ()):
            raise ValueError(f"{decoy.name}: scenes have no {decoy.attribute}: {decoy.value}")
        chance = np.random.default_rng((seed, number)).random(len(scenes))
        limits = [decoy.seldom if scene.attribute(decoy.attribute) == decoy.value else decoy.often for scene in scenes]
        columns[decoy.name] = pa.array(
            ["present" if c < limit else "absent" for c, limit in zip(chance, limits, strict=True)]
        )
    return columns
