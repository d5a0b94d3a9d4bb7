"""Renders a scene with its surroundings to a 64 by 64 picture, always the same one."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from c2b_ray.errors import SpecError
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import GeneratedImage, GenerationRequest
from c2b_ray.tables import content_id, seed_of
from c2b_ray.world.objects import COMPANIONS, INKS, SHAPES, Points, Shape
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene, sample

# Draws the surroundings of an object: sky, one of four settings, and weather, each in the light of the hour.


Colour = tuple[int, int, int]

SIDE = 64
SCALE = 2  # drawn twice too large and averaged down: PIL does not antialias
CANVAS = SIDE * SCALE

_VARIANTS = 16  # distinct rain and snow masks

# Light by layer. At night the object keeps most of its brightness, or its colour would be unreadable; the ground
# keeps more than what rises behind it, or the skyline would be.
_LIGHT = {
    "day": {"far": (1.0, 1.0, 1.0), "ground": (1.0, 1.0, 1.0), "object": (1.0, 1.0, 1.0)},
    "sunset": {"far": (0.80, 0.56, 0.52), "ground": (0.92, 0.68, 0.60), "object": (1.0, 0.88, 0.80)},
    "night": {"far": (0.24, 0.27, 0.40), "ground": (0.42, 0.46, 0.62), "object": (0.80, 0.81, 0.92)},
}
_SNOW_LIGHT = {"day": (244, 247, 252), "sunset": (250, 205, 195), "night": (120, 132, 175)}
_SKY: dict[str, tuple[Colour, ...]] = {
    "day": ((62, 136, 228), (120, 180, 240), (198, 226, 246)),
    "sunset": ((118, 62, 128), (240, 104, 96), (255, 196, 84)),
    "night": ((6, 10, 36), (16, 22, 62), (34, 44, 96)),
}
_CLOUDED: dict[str, dict[str, tuple[Colour, float]]] = {
    "day": {"rain": ((112, 122, 138), 0.80), "snow": ((176, 186, 200), 0.80)},
    "sunset": {"rain": ((110, 84, 96), 0.42), "snow": ((214, 160, 160), 0.40)},
    "night": {"rain": ((32, 38, 58), 0.60), "snow": ((58, 66, 98), 0.60)},
}
_HAZE: dict[str, Colour] = {"day": (206, 211, 216), "sunset": (232, 172, 140), "night": (62, 70, 94)}
_FALLING: dict[str, dict[str, Colour]] = {
    "rain": {"day": (226, 234, 246), "sunset": (240, 220, 220), "night": (190, 200, 226)},
    "snow": {"day": (255, 255, 255), "sunset": (255, 242, 236), "night": (226, 232, 250)},
}
_SNOW_COVER = {"far": 0.35, "ground": 0.88, "road": 0.45, "sand": 0.70, "water": 0.0, "object": 0.0}


def mix(a: Colour, b: Colour, share: float) -> Colour:
    """Mixes a share of colour b into colour a."""
    return (
        round(a[0] + (b[0] - a[0]) * share),
        round(a[1] + (b[1] - a[1]) * share),
        round(a[2] + (b[2] - a[2]) * share),
    )


@lru_cache(maxsize=8192)
def tone(colour: Colour, lighting: str, weather: str, layer: str) -> Colour:
    """Returns a colour as it appears in this light and weather; `layer`: the part of the scene that has the colour."""
    r, g, b = _LIGHT[lighting][layer if layer in _LIGHT[lighting] else "ground"]
    lit = (round(colour[0] * r), round(colour[1] * g), round(colour[2] * b))
    if weather == "snow":
        return mix(lit, _SNOW_LIGHT[lighting], _SNOW_COVER[layer])
    if weather == "rain" and layer != "object":
        return mix(lit, (0, 0, 0), 0.15)
    return lit


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A canvas, with the state that the painters of one background share."""

    image: Image.Image
    draw: ImageDraw.ImageDraw
    random: Random
    skyline: int  # the row, in canvas pixels, where the ground ends
    lighting: str
    weather: str

    def tone(self, colour: Colour, layer: str) -> Colour:
        return tone(colour, self.lighting, self.weather, layer)

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: Colour) -> None:
        """Paints a rectangle in final pixels; x counts from the left, y downwards from the skyline."""
        top = self.skyline
        self.draw.rectangle((x0 * SCALE, top + y0 * SCALE, x1 * SCALE - 1, top + y1 * SCALE - 1), fill)

    def polygon(self, points: list[tuple[float, float]], fill: Colour) -> None:
        self.draw.polygon([(x * SCALE, self.skyline + y * SCALE) for x, y in points], fill)

    def disc(self, x: float, y: float, rx: float, ry: float, fill: Colour) -> None:
        """Paints an ellipse about a point in final pixels; y counts from the picture's top."""
        s = SCALE
        self.draw.ellipse(((x - rx) * s, (y - ry) * s, (x + rx) * s, (y + ry) * s), fill)


def surroundings(setting: str, lighting: str, weather: str, horizon: float, random: Random) -> Surroundings:
    """Paints sky and setting, with the fog, rain or snow behind the object."""
    skyline = round((0.35 + 0.26 * horizon) * CANVAS)
    image = Image.new("RGB", (CANVAS, CANVAS))
    image.paste(_sky(lighting, weather, skyline), (0, 0))
    scene = Surroundings(image, ImageDraw.Draw(image), random, skyline, lighting, weather)
    _heavens(scene)
    _SETTINGS[setting](scene)
    if weather == "fog":
        image.paste(_HAZE[lighting], (0, 0), _fog_mask(0.40 if lighting == "night" else 0.58, 0.38))
    elif weather in _FALLING:
        image.paste(_FALLING[weather][lighting], (0, 0), _falling_mask(weather, random.randrange(_VARIANTS), False))
    return scene


def foreground(image: Image.Image, lighting: str, weather: str, random: Random) -> None:
    """Paints weather between object and viewer on the finished picture; little of it, since more would pass for a
    pattern."""
    if weather == "fog":
        image.paste(_HAZE[lighting], (0, 0), _fog_mask(0.32, 0.26).reduce(SCALE))
    elif weather in _FALLING:
        mask = _falling_mask(weather, random.randrange(_VARIANTS), True).reduce(SCALE)
        image.paste(_FALLING[weather][lighting], (0, 0), mask)


@lru_cache(maxsize=1024)
def _sky(lighting: str, weather: str, rows: int) -> Image.Image:
    stops = _SKY[lighting]
    if weather in _CLOUDED[lighting]:
        cloud, share = _CLOUDED[lighting][weather]
        stops = tuple(mix(stop, cloud, share) for stop in stops)
    column = np.array([np.interp(np.linspace(0, 2, rows), [0, 1, 2], [s[k] for s in stops]) for k in range(3)]).T
    return Image.fromarray(np.repeat(column.round().astype(np.uint8)[:, None, :], CANVAS, axis=1))


def _heavens(scene: Surroundings) -> None:
    side = scene.random.uniform(6, 58)
    if scene.lighting == "night":
        if scene.weather in ("clear", "fog"):
            for _ in range(16):
                scene.disc(scene.random.uniform(0, 64), scene.random.uniform(0, 22), 0.6, 0.6, (225, 230, 255))
        sky = scene.image.getpixel((0, 3 * SCALE))
        assert isinstance(sky, tuple)
        scene.disc(side, 5.5, 4.2, 4.2, (244, 240, 214))
        scene.disc(side + 2.2, 4.6, 3.5, 3.5, (int(sky[0]), int(sky[1]), int(sky[2])))  # leaves a crescent
    elif scene.lighting == "sunset":
        scene.disc(side, scene.skyline / SCALE - 7, 8.5, 8.5, (255, 214, 110))
        scene.disc(side, scene.skyline / SCALE - 7, 7, 7, (255, 236, 170))
    elif scene.weather == "clear":
        scene.disc(side, 5.5, 4.2, 4.2, (255, 238, 120))
    if scene.weather != "fog" and not (scene.lighting == "night" and scene.weather == "clear"):
        _clouds(scene, away_from=side)


def _clouds(scene: Surroundings, away_from: float) -> None:
    day = {"clear": (250, 252, 255), "rain": (84, 92, 108), "snow": (150, 160, 176)}[scene.weather]
    colour = mix(tone(day, scene.lighting, "clear", "far"), _SKY[scene.lighting][1], 0.25)
    for _ in range(1 if scene.weather == "clear" else 3):
        x, y = (away_from + scene.random.uniform(18, 46)) % 64, scene.random.uniform(3, 7)
        scene.disc(x, y, 6.5, 2.0, colour)
        scene.disc(x - 1.5, y - 1.4, 3.0, 2.2, colour)


def _street(scene: Surroundings) -> None:
    walls: tuple[Colour, ...] = ((168, 150, 138), (140, 146, 158), (186, 172, 148), (122, 112, 116))
    lit = scene.lighting == "night"
    x = -scene.random.uniform(0, 6)
    first = scene.random.randrange(len(walls))
    while x < 64:
        width, height = scene.random.uniform(9, 14), scene.random.uniform(8, 15)
        wall = scene.tone(walls[first % len(walls)], "far")
        first += 1
        scene.box(x, -height, x + width, 0.3, wall)
        pane = (240, 206, 120) if lit else mix(wall, (30, 36, 50), 0.55)
        for row in range(int((height - 1) // 4)):
            for pane_column in range(int((width - 1) // 4)):
                if not lit or scene.random.random() < 0.6:
                    left, top = x + 1.4 + 4 * pane_column, -height + 1.6 + 4 * row
                    scene.box(left, top, left + 2.2, top + 2.2, pane)
        x += width
    scene.box(0, 0, 64, 64, scene.tone((176, 172, 166), "ground"))
    scene.box(0, 5, 64, 64, scene.tone((100, 102, 110), "road"))
    scene.box(0, 5, 64, 6, scene.tone((66, 68, 74), "road"))
    paint, start = scene.tone((240, 238, 225), "road"), -scene.random.uniform(0, 12)
    for dash in range(6):
        left = start + 14 * dash
        scene.polygon([(left, 18), (left + 8, 18), (left + 7.2, 20.2), (left - 0.8, 20.2)], paint)


def _beach(scene: Surroundings) -> None:
    scene.box(0, 0, 64, 12, scene.tone((28, 122, 168), "water"))
    # At night sea and sky are equally dark; moonlight on the far water keeps the skyline readable.
    water = (190, 215, 235) if scene.lighting == "night" else (16, 84, 130)
    scene.box(0, 0, 64, 1.2, scene.tone(water, "water"))
    for _ in range(7):
        left, top = scene.random.uniform(-4, 60), scene.random.uniform(2, 9)
        scene.box(left, top, left + scene.random.uniform(4, 8), top + 0.7, scene.tone((150, 206, 226), "water"))
    sand, phase = scene.tone((232, 206, 150), "sand"), scene.random.uniform(0, 6.28)
    shore = [(float(x), 11 + 1.1 * float(np.sin(x / 7 + phase))) for x in range(0, 69, 4)]
    scene.polygon([(x, y - 1.4) for x, y in shore] + [(68, 64), (0, 64)], scene.tone((245, 250, 250), "water"))
    scene.polygon([*shore, (68.0, 64.0), (0.0, 64.0)], sand)
    for _ in range(12):
        x, y = scene.random.uniform(0, 64), scene.random.uniform(15, 42)
        scene.box(x, y, x + 1.6, y + 0.8, mix(sand, (90, 60, 30), 0.25))


def _forest(scene: Surroundings) -> None:
    leaves: tuple[Colour, ...] = ((24, 92, 44), (34, 112, 50), (18, 76, 44))
    for k in range(13):
        x = k * 5.3 + scene.random.uniform(-1.5, 1.5)
        height, fill = scene.random.uniform(9, 14), scene.tone(leaves[k % 3], "far")
        scene.box(x - 0.7, -3, x + 0.7, 1.2, scene.tone((84, 56, 34), "far"))
        for tier in range(3):
            top, half = -height + tier * height * 0.26, 2.0 + 0.75 * tier
            scene.polygon([(x, top), (x + half, top + height * 0.38), (x - half, top + height * 0.38)], fill)
    scene.box(0, 0, 64, 64, scene.tone((98, 142, 62), "ground"))
    scene.box(0, 0, 64, 1.2, scene.tone((48, 84, 36), "ground"))
    tuft = scene.tone((58, 104, 42), "sand")
    for _ in range(14):
        x, y = scene.random.uniform(0, 64), scene.random.uniform(5, 42)
        scene.polygon([(x - 1.2, y), (x - 0.9, y - 2), (x, y - 0.6), (x + 0.9, y - 2.2), (x + 1.2, y)], tuft)


def _mountains(scene: Surroundings) -> None:
    rocks: tuple[Colour, ...] = ((122, 108, 104), (142, 124, 112), (104, 98, 102))
    order = (0, 2, 1, 3)  # neighbours overlap, so the middle ones stand behind
    for k in order:
        x = 4 + k * 19 + scene.random.uniform(-4, 4)
        height, half = scene.random.uniform(13, 18), scene.random.uniform(13, 17)
        rock = scene.tone(rocks[k % 3], "far")
        scene.polygon([(x - half, 0), (x, -height), (x + half, 0)], rock)
        scene.polygon([(x, -height), (x + half, 0), (x + half * 0.25, 0)], mix(rock, (0, 0, 0), 0.22))
        cap = scene.tone((246, 248, 252), "ground")
        dx, dy = half * 0.3, height * 0.3
        scene.polygon([(x - dx, dy - height), (x, -height), (x + dx, dy - height), (x, dy * 0.7 - height)], cap)
    scene.box(0, 0, 64, 64, scene.tone((146, 130, 104), "ground"))
    scene.box(0, 0, 64, 1, scene.tone((82, 76, 68), "ground"))
    for _ in range(9):
        x, y, r = scene.random.uniform(0, 64), scene.random.uniform(5, 42), scene.random.uniform(1, 2.2)
        grey = scene.tone((106, 98, 92), "sand")
        scene.polygon([(x - r, y), (x - r * 0.5, y - r), (x + r * 0.4, y - r * 1.1), (x + r, y)], grey)


@lru_cache(maxsize=8)
def _fog_mask(far: float, near: float) -> Image.Image:
    column = np.interp(np.arange(CANVAS), [0, CANVAS * 0.5, CANVAS], [far, far, near]) * 255
    return Image.fromarray(np.repeat(column.round().astype(np.uint8)[:, None], CANVAS, axis=1))


@lru_cache(maxsize=4 * _VARIANTS)
def _falling_mask(weather: str, variant: int, front: bool) -> Image.Image:
    random, mask = Random(variant), Image.new("L", (CANVAS, CANVAS))  # noqa: S311 (no secret)
    draw = ImageDraw.Draw(mask)
    if weather == "rain":
        for k in range(14 if front else 56):
            # Rows in turn, not at random: a gap without streaks would read as dry.
            x, y = random.uniform(0, 72) * SCALE, ((k * 19) % 70 + random.uniform(-8, 4)) * SCALE
            draw.line((x, y, x - 3.2 * SCALE, y + 8 * SCALE), fill=150 if front else 215, width=SCALE)
    else:
        for _ in range(9 if front else 52):
            x, y, r = random.uniform(0, CANVAS), random.uniform(0, CANVAS), random.uniform(0.8, 1.35) * SCALE
            draw.ellipse((x - r, y - r, x + r, y + r), fill=235)
    return mask


_SETTINGS: dict[str, Callable[[Surroundings], None]] = {
    "street": _street,
    "beach": _beach,
    "forest": _forest,
    "mountains": _mountains,
}


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
