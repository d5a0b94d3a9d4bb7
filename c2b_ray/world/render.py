"""Renders a scene to a 64 by 64 picture, always the same one.

Knows positions and how a shape is filled; does not know how scenes are chosen or worded.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from c2b_ray.errors import SpecError
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import GeneratedImage, GenerationRequest
from c2b_ray.tables import content_id, seed_of
from c2b_ray.world.backgrounds import CANVAS, SCALE, SIDE, Colour, Surroundings, foreground, mix, surroundings, tone
from c2b_ray.world.objects import COMPANIONS, INKS, SHAPES, Points, Shape
from c2b_ray.world.reader import read
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene, sample

# Hue in degrees, saturation, value. Yellow is far more saturated than white, which a sunset warms.
_COLOURS = {
    "red": (358.0, 0.86, 0.86),
    "blue": (218.0, 0.84, 0.86),
    "green": (140.0, 0.78, 0.66),
    "yellow": (50.0, 0.92, 0.98),
    "purple": (280.0, 0.68, 0.70),
    "white": (220.0, 0.01, 0.97),
}
_SIZES = {"small": 22.0, "large": 40.0}  # pixels along the object's longer side
_FEET = {"small": 53.0, "large": 58.0}  # the row on which an object stands: far objects stand higher in the frame
_PITCH = {"small": 5.0, "large": 7.5}  # pixels from one stripe or dot to the next
_DARK_PATTERN: Colour = (40, 40, 52)
_LIGHT_PATTERN: Colour = (250, 248, 240)


@dataclass(frozen=True, slots=True)
class _Placement:
    """Position, scale and mirroring of a shape, in canvas pixels."""

    x: float
    y: float
    scale: float
    mirrored: bool

    def points(self, points: Points) -> list[tuple[float, float]]:
        x_scale = -self.scale if self.mirrored else self.scale
        return [(self.x + x_scale * px, self.y + self.scale * py) for px, py in points]


def render(scene: Scene) -> np.ndarray:
    """Returns the scene's picture, uint8 (64, 64, 3)."""
    random = Random(scene.jitter)  # noqa: S311 (no secret)
    background = surroundings(scene.setting, scene.lighting, scene.weather, scene.horizon, random)
    shape = SHAPES[scene.target_class]
    size = _SIZES[scene.size] * random.uniform(0.95, 1.05)
    foot = _FEET[scene.size] + random.uniform(-1.5, 1.5)
    margin = shape.half_width * size + 1
    middle = margin + scene.x * (SIDE - 2 * margin)
    _shadow(background, middle, foot, shape.half_width * size)
    placement = _Placement(middle * SCALE, (foot - shape.lift * size) * SCALE, size * SCALE, random.random() < 0.5)
    pattern = _pattern_mask(scene.pattern, _PITCH[scene.size]) if scene.pattern != "plain" else None
    _paint(background, shape, placement, _object_colour(scene.colour, random), pattern)
    if scene.companion != "none":
        _companion(background, scene.companion, middle, foot, margin)
    picture = background.image.reduce(SCALE)
    foreground(picture, scene.lighting, scene.weather, random)
    return np.array(picture)


def _object_colour(name: str, random: Random) -> Colour:
    hue, saturation, value = _COLOURS[name]
    r, g, b = colorsys.hsv_to_rgb(
        ((hue + random.uniform(-7, 7)) % 360) / 360,
        min(1.0, saturation * random.uniform(0.92, 1.08)),
        min(1.0, value * random.uniform(0.95, 1.03)),
    )
    return round(255 * r), round(255 * g), round(255 * b)


def _companion(background: Surroundings, name: str, middle: float, foot: float, margin: float) -> None:
    """Paints the companion beside the object, on the side with more room; in front of an object that leaves too little
    room."""
    shape, size, colour = COMPANIONS[name]
    half = shape.half_width * size
    side = 1 if middle < SIDE / 2 else -1
    x = min(max(middle + side * (margin + half + 0.5), half + 0.5), SIDE - half - 0.5)
    placement = _Placement(x * SCALE, (foot + 1.5) * SCALE, size * SCALE, side > 0)
    _paint(background, shape, placement, colour, None)


def _shadow(background: Surroundings, middle: float, foot: float, half: float) -> None:
    box = ((middle - half) * SCALE, (foot - 1.2) * SCALE, (middle + half) * SCALE, (foot + 2.2) * SCALE)
    left, top, right, bottom = (round(edge) for edge in box)
    mask = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(mask).ellipse((0, 0, right - left - 1, bottom - top - 1), 90)
    background.image.paste((0, 0, 0), (left, top), mask)


def _paint(
    background: Surroundings, shape: Shape, placement: _Placement, colour: Colour, pattern: Image.Image | None
) -> None:
    """Paints layer by layer; an outline under the body separates any colour from any background."""
    paint = tone(colour, background.lighting, background.weather, "object")
    inks = {
        "paint": paint,
        "shade": mix(paint, (0, 0, 0), 0.35),
        **_fixed_inks(background.lighting, background.weather),
    }
    for part in shape.under:
        _part(background.draw, placement, part.points, part.width, inks[part.ink])
    bodies = [placement.points(part.points) for part in shape.body]
    for points in bodies:
        background.draw.line([*points, points[0]], inks["outline"], width=2 * SCALE)
    left, top, mask = _mask(bodies)
    background.image.paste(paint, (left, top), mask)
    if pattern is not None:
        # A light pattern would vanish on white and yellow, a dark one on the other colours at night.
        light = sum(colour[:2]) < 400
        ink = tone(_LIGHT_PATTERN if light else _DARK_PATTERN, background.lighting, background.weather, "object")
        pattern_part = pattern.crop((left, top, left + mask.width, top + mask.height))
        background.image.paste(ink, (left, top), ImageChops.darker(mask, pattern_part))
    for part in shape.over:
        _part(background.draw, placement, part.points, part.width, inks[part.ink])


def _mask(polygons: list[list[tuple[float, float]]]) -> tuple[int, int, Image.Image]:
    """Returns the union of the polygons in the smallest mask: pasting through a mask takes the most time of a
    picture."""
    xs = [x for points in polygons for x, _ in points]
    ys = [y for points in polygons for _, y in points]
    left, top = max(0, int(min(xs))), max(0, int(min(ys)))
    mask = Image.new("L", (int(max(xs)) + 2 - left, int(max(ys)) + 2 - top))
    draw = ImageDraw.Draw(mask)
    for points in polygons:
        draw.polygon([(x - left, y - top) for x, y in points], 255)
    return left, top, mask


@lru_cache(maxsize=16)
def _fixed_inks(lighting: str, weather: str) -> dict[str, Colour]:
    return {name: tone(ink, lighting, weather, "object") for name, ink in INKS.items()}


def _part(draw: ImageDraw.ImageDraw, placement: _Placement, points: Points, width: float, ink: Colour) -> None:
    if width:
        draw.line(placement.points(points), ink, width=max(SCALE, round(width * placement.scale)))
    else:
        draw.polygon(placement.points(points), ink)


@lru_cache(maxsize=4)
def _pattern_mask(pattern: str, pitch: float) -> Image.Image:
    """Returns a mask of stripes that lean against the rain, or of dots on a hexagonal grid, over the whole canvas."""
    rows, columns = np.mgrid[0:CANVAS, 0:CANVAS] / (SCALE * pitch)
    if pattern == "striped":
        mask = (columns - 0.7 * rows) % 1.22 < 0.47
    else:
        offset = 0.5 * (np.floor(rows / 0.87) % 2)
        dx, dy = (columns + offset) % 1 - 0.5, (rows / 0.87 % 1 - 0.5) * 0.87
        mask = dx**2 + dy**2 < 0.29**2
    return Image.fromarray((mask * 255).astype(np.uint8))


# An image generator that is always right: it reads the prompt and renders what it says.


_OPTIONS = ("mislabel", "batch", "device")  # any generator's spec may hold batch and device
_PROBES = 8


class Renderer:
    """Renders prompts without a model; implements `roles.ImageGenerator`."""

    def __init__(self, mislabel: float = 0.0) -> None:
        self._mislabel = mislabel
        probes = [render(scene).tobytes() for scene in sample(_PROBES, 0)]
        self.revision = content_id("renderer", mislabel, *probes)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        """Returns one picture per request; a prompt without a class of the world is an error."""
        return [self._one(request) for request in requests]

    def _one(self, request: GenerationRequest) -> GeneratedImage:
        mentioned = read(request.prompt)
        if "target_class" not in mentioned:
            return GeneratedImage(None, f"the prompt names none of the world's classes ({', '.join(CLASSES)})")
        return GeneratedImage(render(self.scene(request.seed, mentioned)))

    def scene(self, seed: int, mentioned: dict[str, str]) -> Scene:
        """Returns the scene of one request: with the values it names, or others where mislabelled; the rest from the
        seed."""
        random = Random(f"mislabel {seed}")  # noqa: S311 (no secret)
        if random.random() < self._mislabel:
            mentioned = {name: _other(name, value, random) for name, value in sorted(mentioned.items())}
        # Hashed, so that no request's seed equals a seed from which training drew its scenes.
        return sample(1, seed_of("renderer", seed), **mentioned)[0]


def load(spec: Spec) -> Renderer:
    """Loads the generator of `world:renderer`; SpecError for an unknown option."""
    text = spec.options_among(_OPTIONS).get("mislabel", "0")
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise SpecError(f"{spec.text}: mislabel={text!r} is not a number between 0 and 1")
    return Renderer(share)


def _other(name: str, value: str, random: Random) -> str:
    """Returns another value of an attribute; a class stays."""
    if name == "target_class":
        return value
    return random.choice([candidate for candidate in ATTRIBUTES[name] if candidate != value])
