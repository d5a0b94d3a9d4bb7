"""The shapes of the world's objects and companions: polygons and lines in a unit frame, each with the name of its ink.

Knows silhouettes and the inks that never vary; does not know scenes, light, patterns or positions in a picture.
"""

import math
from typing import NamedTuple

Points = tuple[tuple[float, float], ...]


class Part(NamedTuple):
    """A polygon or, where width is positive, a line: x from the object's middle; y from its foot, negative upwards."""

    ink: str
    points: Points
    width: float = 0.0


class Shape(NamedTuple):
    """Layers in drawing order; only the body has the object's colour and pattern. The longer side measures 1."""

    under: tuple[Part, ...]
    body: tuple[Part, ...]
    over: tuple[Part, ...]
    half_width: float
    lift: float = 0.0  # how far the foot floats above the ground


def _box(x0: float, y0: float, x1: float, y1: float) -> Points:
    return ((x0, y0), (x1, y0), (x1, y1), (x0, y1))


def _arc(x: float, y: float, rx: float, ry: float, start: float = 0, stop: float = 360) -> Points:
    """Returns an ellipse's points from start to stop degrees; 0 is right, 90 is down."""
    steps = max(6, round(abs(stop - start) / 15))
    angles = [math.radians(start + (stop - start) * k / steps) for k in range(steps + 1)]
    return tuple((x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles)


def _wheel(x: float, radius: float) -> tuple[Part, ...]:
    return (
        Part("dark", _arc(x, -radius, radius, radius)),
        Part("metal", _arc(x, -radius, radius * 0.45, radius * 0.45)),
    )


_BUS = Shape(
    under=(),
    body=(Part("", ((-0.5, -0.1), (-0.5, -0.6), (-0.46, -0.64), (0.46, -0.64), (0.5, -0.58), (0.5, -0.1))),),
    over=(
        *(Part("glass", _box(x, -0.56, x + 0.15, -0.38)) for x in (-0.45, -0.26, -0.07, 0.12)),
        Part("glass", _box(0.32, -0.56, 0.47, -0.14)),
        Part("dark", _box(0.385, -0.56, 0.405, -0.14)),
        *_wheel(-0.27, 0.12),
        *_wheel(0.2, 0.12),
    ),
    half_width=0.5,
)
_BOAT = Shape(
    under=(
        Part("wood", _box(-0.03, -0.98, 0.02, -0.25)),
        Part("outline", ((0.02, -1.0), (0.02, -0.32), (0.44, -0.32))),
        Part("outline", ((-0.03, -0.92), (-0.03, -0.32), (-0.38, -0.32))),
        Part("cloth", ((0.05, -0.92), (0.05, -0.35), (0.38, -0.35))),
        Part("cloth", ((-0.06, -0.82), (-0.06, -0.35), (-0.32, -0.35))),
    ),
    body=(Part("", ((-0.5, -0.32), (0.5, -0.32), (0.36, 0.0), (-0.34, 0.0))),),
    over=(),
    half_width=0.5,
)
_AIRPLANE = Shape(
    under=(Part("shade", ((0.1, -0.36), (-0.06, -0.36), (-0.2, -0.6), (-0.1, -0.6))),),
    body=(
        Part("", (*_arc(0.3, -0.34, 0.2, 0.12, -90, 90), (-0.25, -0.22), (-0.5, -0.36), (-0.5, -0.42), (-0.25, -0.46))),
        Part("", ((-0.5, -0.72), (-0.4, -0.72), (-0.22, -0.44), (-0.48, -0.38))),
        Part("", ((0.14, -0.3), (-0.08, -0.3), (-0.3, -0.02), (-0.16, -0.02))),
    ),
    over=(
        Part("dark", ((0.14, -0.3), (-0.08, -0.3), (-0.3, -0.02)), 0.025),
        Part("dark", ((0.14, -0.3), (-0.16, -0.02)), 0.025),
        Part("glass", ((0.34, -0.44), (0.44, -0.41), (0.46, -0.36), (0.34, -0.36))),
        *(Part("dark", _box(x, -0.41, x + 0.045, -0.35)) for x in (-0.16, -0.05, 0.06, 0.17)),
    ),
    half_width=0.5,
    lift=0.18,
)
_HOUSE = Shape(
    under=(Part("brick", _box(0.18, -0.98, 0.3, -0.6)),),
    body=(Part("", _box(-0.4, -0.56, 0.4, 0.0)),),
    over=(
        Part("roof", ((-0.5, -0.54), (0.0, -1.0), (0.5, -0.54))),
        Part("wood", _box(-0.09, -0.32, 0.09, 0.0)),
        Part("glass", _box(-0.33, -0.44, -0.17, -0.28)),
        Part("glass", _box(0.17, -0.44, 0.33, -0.28)),
    ),
    half_width=0.5,
)
_CHAIR = Shape(
    under=(
        Part("wood", _box(-0.2, -0.4, -0.12, -0.1)),
        Part("wood", _box(0.24, -0.4, 0.32, -0.1)),
        Part("wood", _box(-0.2, -0.7, -0.12, -0.48)),
        Part("wood", _box(0.22, -0.7, 0.3, -0.48)),
    ),
    body=(
        Part("", ((-0.24, -1.0), (0.34, -1.0), (0.34, -0.64), (-0.24, -0.64))),
        Part("", ((-0.22, -0.54), (0.36, -0.54), (0.3, -0.34), (-0.4, -0.34))),
    ),
    over=(
        Part("outline", _box(-0.41, -0.33, -0.27, 0.0)),
        Part("outline", _box(0.17, -0.33, 0.31, 0.0)),
        Part("wood", _box(-0.38, -0.34, -0.3, -0.02)),
        Part("wood", _box(0.2, -0.34, 0.28, -0.02)),
    ),
    half_width=0.41,
)
_MUG = Shape(
    under=(),
    body=(
        Part("", (*_arc(0.2, -0.44, 0.3, 0.28, -90, 90), *_arc(0.2, -0.44, 0.17, 0.16, 90, -90))),
        Part("", (*_arc(-0.1, -0.82, 0.36, 0.09, 180, 360), (0.23, -0.08), *_arc(-0.1, -0.08, 0.33, 0.08, 0, 180))),
    ),
    over=(
        Part("shade", _arc(-0.1, -0.82, 0.36, 0.09)),
        Part("coffee", _arc(-0.1, -0.81, 0.29, 0.055)),
        Part("steam", ((-0.2, -0.92), (-0.24, -0.97), (-0.18, -1.03), (-0.22, -1.08)), 0.035),
        Part("steam", ((0.0, -0.92), (-0.04, -0.97), (0.02, -1.03), (-0.02, -1.08)), 0.035),
    ),
    half_width=0.48,
)
_BIRD = Shape(
    under=(
        Part("accent", ((-0.04, -0.25), (-0.04, 0.0), (0.06, 0.0)), 0.045),
        Part("accent", ((0.1, -0.25), (0.1, 0.0), (0.2, 0.0)), 0.045),
        Part("accent", ((0.36, -0.74), (0.54, -0.64), (0.36, -0.6))),
    ),
    body=(
        Part("", _arc(0.0, -0.42, 0.32, 0.22)),
        Part("", _arc(0.24, -0.68, 0.17, 0.17)),
        Part("", ((-0.28, -0.4), (-0.5, -0.62), (-0.54, -0.44), (-0.22, -0.26))),
    ),
    over=(
        Part("shade", ((0.12, -0.5), (0.04, -0.28), (-0.14, -0.26), (-0.34, -0.42), (-0.1, -0.54))),
        Part("eye", _arc(0.28, -0.71, 0.045, 0.045)),
    ),
    half_width=0.52,
)
_FISH = Shape(
    under=(
        Part("shade", ((-0.14, -0.5), (0.02, -0.72), (0.2, -0.5))),
        Part("shade", ((-0.04, -0.14), (-0.12, 0.0), (0.12, -0.14))),
    ),
    body=(
        Part("", _arc(0.1, -0.34, 0.4, 0.24)),
        Part("", ((-0.2, -0.34), (-0.5, -0.62), (-0.42, -0.34), (-0.5, -0.06))),
    ),
    over=(
        Part("light", _arc(0.32, -0.4, 0.075, 0.075)),
        Part("eye", _arc(0.33, -0.4, 0.04, 0.04)),
        Part("dark", _arc(0.2, -0.34, 0.06, 0.17, -80, 80), 0.03),
        Part("dark", ((0.5, -0.3), (0.38, -0.27)), 0.03),
    ),
    half_width=0.5,
    lift=0.06,
)
_CANOPY = (*_arc(0.0, -0.5, 0.5, 0.46, 180, 360), *_arc(0.375, -0.5, 0.125, 0.07, 0, -180))
_UMBRELLA = Shape(
    under=(
        Part("dark", ((0.0, -0.6), (0.0, -0.1)), 0.05),
        Part("dark", _arc(-0.08, -0.1, 0.08, 0.09, 0, 180), 0.05),
        Part("dark", ((0.0, -1.0), (0.0, -0.9)), 0.05),
    ),
    body=(
        Part(
            "",
            (*_CANOPY, *(p for x in (0.125, -0.125, -0.375) for p in _arc(x, -0.5, 0.125, 0.07, 0, -180))),
        ),
    ),
    over=(
        Part("dark", _arc(0.0, -0.5, 0.25, 0.45, 180, 360), 0.02),
        Part("dark", ((0.0, -0.95), (0.0, -0.5)), 0.02),
    ),
    half_width=0.5,
)
_BICYCLE = Shape(
    under=(Part("dark", _arc(-0.28, -0.22, 0.23, 0.23)), Part("dark", _arc(0.28, -0.22, 0.23, 0.23))),
    # Disc wheels: between spokes neither colour nor pattern would show at this size.
    body=(Part("", _arc(-0.28, -0.22, 0.18, 0.18)), Part("", _arc(0.28, -0.22, 0.18, 0.18))),
    over=(
        Part("outline", ((-0.28, -0.22), (-0.1, -0.5), (0.2, -0.5), (0.0, -0.2), (-0.28, -0.22)), 0.1),
        Part("outline", ((0.28, -0.22), (0.17, -0.62)), 0.1),
        Part("paint", ((-0.28, -0.22), (-0.1, -0.5), (0.2, -0.5), (0.0, -0.2), (-0.28, -0.22)), 0.06),
        Part("paint", ((0.0, -0.2), (-0.12, -0.58)), 0.06),
        Part("paint", ((0.28, -0.22), (0.17, -0.62)), 0.06),
        Part("dark", ((0.06, -0.68), (0.17, -0.64), (0.27, -0.66)), 0.06),
        Part("dark", ((-0.22, -0.6), (-0.03, -0.6)), 0.08),
    ),
    half_width=0.5,
)
SHAPES: dict[str, Shape] = {
    "bus": _BUS,
    "boat": _BOAT,
    "airplane": _AIRPLANE,
    "house": _HOUSE,
    "chair": _CHAIR,
    "mug": _MUG,
    "bird": _BIRD,
    "fish": _FISH,
    "umbrella": _UMBRELLA,
    "bicycle": _BICYCLE,
}

_DOG = Shape(
    under=(),
    body=(
        Part("", _box(-0.34, -0.48, 0.26, -0.22)),
        Part("", ((0.14, -0.72), (0.38, -0.72), (0.38, -0.6), (0.52, -0.58), (0.52, -0.44), (0.14, -0.4))),
        Part("", ((-0.34, -0.3), (-0.5, -0.72), (-0.42, -0.74), (-0.24, -0.46))),
        *(Part("", _box(x, -0.3, x + 0.1, 0.0)) for x in (-0.34, -0.2, 0.04, 0.17)),
    ),
    over=(
        Part("dark", ((0.12, -0.74), (0.24, -0.72), (0.2, -0.48), (0.1, -0.52))),
        Part("dark", _box(0.46, -0.6, 0.53, -0.52)),
    ),
    half_width=0.5,
)
_PERSON = Shape(
    under=(
        Part(
            "trousers",
            ((-0.12, -0.44), (0.12, -0.44), (0.14, 0.0), (0.03, 0.0), (0.0, -0.3), (-0.03, 0.0), (-0.14, 0.0)),
        ),
    ),
    body=(
        Part("", ((-0.15, -0.78), (0.15, -0.78), (0.12, -0.42), (-0.12, -0.42))),
        Part("", ((-0.13, -0.78), (-0.25, -0.46), (-0.17, -0.44), (-0.08, -0.66))),
        Part("", ((0.13, -0.78), (0.25, -0.46), (0.17, -0.44), (0.08, -0.66))),
    ),
    over=(
        Part("dark", _arc(0.0, -0.89, 0.13, 0.125)),
        Part("skin", _arc(0.0, -0.88, 0.12, 0.12, -25, 205)),
    ),
    half_width=0.24,
)
_BALLOON = Shape(
    under=(Part("string", ((0.0, -0.6), (0.04, -0.42), (-0.04, -0.22), (0.0, 0.0)), 0.035),),
    body=(Part("", _arc(0.0, -0.8, 0.19, 0.23)), Part("", ((0.0, -0.6), (0.06, -0.53), (-0.06, -0.53)))),
    over=(Part("light", _arc(-0.06, -0.88, 0.04, 0.06)),),
    half_width=0.2,
)
# Each companion's shape, its size in final pixels and the colour of its body, which no object has.
COMPANIONS: dict[str, tuple[Shape, float, tuple[int, int, int]]] = {
    "dog": (_DOG, 14.0, (166, 104, 54)),
    "person": (_PERSON, 20.0, (30, 170, 175)),
    "balloon": (_BALLOON, 25.0, (255, 132, 24)),
}

# Inks that do not depend on the object's colour.
INKS: dict[str, tuple[int, int, int]] = {
    "outline": (28, 28, 38),
    "dark": (34, 34, 44),
    "metal": (176, 180, 188),
    "glass": (164, 204, 226),
    "wood": (112, 74, 42),
    "cloth": (226, 222, 210),
    "brick": (140, 74, 58),
    "roof": (86, 70, 70),
    "coffee": (70, 40, 22),
    "steam": (225, 228, 232),
    "accent": (240, 140, 30),
    "light": (250, 250, 250),
    "eye": (12, 12, 16),
    "skin": (232, 184, 148),
    "trousers": (44, 48, 84),
    "string": (60, 60, 66),
}
