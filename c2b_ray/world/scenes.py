"""What a scene of the embedded world consists of, and how scenes are drawn at random.

Knows the classes, the attributes and the nuisances; does not know how any of them looks or is worded.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

CLASSES: tuple[str, ...] = (
    "bus",
    "boat",
    "airplane",
    "house",
    "chair",
    "mug",
    "bird",
    "fish",
    "umbrella",
    "bicycle",
)

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "colour": ("red", "blue", "green", "yellow", "purple", "white"),
    "setting": ("street", "beach", "forest", "mountains"),
    "lighting": ("day", "sunset", "night"),
    "weather": ("clear", "rain", "snow", "fog"),
    "size": ("small", "large"),
    "pattern": ("plain", "striped", "dotted"),
    "companion": ("none", "dog", "person", "balloon"),
}

_VALUES: dict[str, tuple[str, ...]] = {"target_class": CLASSES, **ATTRIBUTES}
_JITTERS = 2**32


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene: a class, seven attributes, and nuisances that no attribute names."""

    target_class: str
    colour: str
    setting: str
    lighting: str
    weather: str
    size: str
    pattern: str
    companion: str
    horizon: float  # in [0, 1): 0 puts the skyline high in the frame, 1 a quarter of the frame lower
    x: float  # in [0, 1): the object's position from left to right
    jitter: int  # seeds hue, mirroring, scale and background detail

    def __post_init__(self) -> None:
        # A misspelt value would otherwise surface as a KeyError deep inside the renderer.
        for name, values in _VALUES.items():
            if getattr(self, name) not in values:
                raise _unknown(f"value of {name}", getattr(self, name), values)
        for name in ("horizon", "x"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must lie in [0, 1)")
        if self.jitter < 0:
            raise ValueError(f"jitter is {self.jitter!r}; it must not be negative")

    def attribute(self, name: str) -> str:
        """Returns the value of one of ATTRIBUTES."""
        if name not in ATTRIBUTES:
            raise _unknown("attribute", name, ATTRIBUTES)
        value: str = getattr(self, name)
        return value


def sample(n: int, seed: int, **fixed: str) -> list[Scene]:
    """Samples n independent scenes, uniform over everything that is not fixed; scene i depends only on (seed, i) and
    fixed."""
    for name, value in fixed.items():
        if name not in _VALUES:
            raise _unknown("attribute", name, _VALUES)
        if value not in _VALUES[name]:
            raise _unknown(f"value of {name}", value, _VALUES[name])
    # One row of uniforms per scene, filled row by row: a longer sample begins with the shorter one. Fixed columns are
    # drawn and ignored, so that fixing an attribute leaves everything else in the scene unchanged.
    rows = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).random((n, len(_VALUES) + 3))
    columns: list[list[str]] = []
    for column, (name, values) in enumerate(_VALUES.items()):
        if name in fixed:
            columns.append([fixed[name]] * n)
        else:
            columns.append([values[k] for k in (rows[:, column] * len(values)).astype(int).tolist()])
    horizon, x, jitter = rows[:, -3].tolist(), rows[:, -2].tolist(), (rows[:, -1] * _JITTERS).astype(int).tolist()
    return [Scene(*row) for row in zip(*columns, horizon, x, jitter, strict=True)]


def _unknown(noun: str, value: str, names_known: Iterable[str]) -> ValueError:
    names = list(names_known)
    nearest = difflib.get_close_matches(str(value), names, n=3, cutoff=0.4) or names
    return ValueError(f"unknown {noun} {value!r}; nearest: {', '.join(nearest)}")
