"""Pictures of simple scenes, drawn by Pillow, for synthetic runs."""

from __future__ import annotations

import random
from io import BytesIO

from PIL import Image, ImageDraw

_SKIES = {"sunset": "#f2a65a", "night": "#1b2440", "fog": "#c9cdd0", "snow": "#c3d0da", "rain": "#9aa8b4"}
_GROUNDS = {"snow": "#eef1f4", "night": "#141a28", "fog": "#9aa09f"}
_COLOURS = ("#c0392b", "#2c6fb0", "#d8a11d", "#3d8b57", "#7d4a9c")
_pictures: dict[tuple[str, str, int], bytes] = {}


def draw_picture(target: str, value: str, number: int) -> bytes:
    """Draws a JPEG of a simple scene, the same for the same arguments."""
    key = (target, value, number)
    if key not in _pictures:
        buffer = BytesIO()
        _scene(target, value, random.Random(repr(key))).save(buffer, "JPEG", quality=80)
        _pictures[key] = buffer.getvalue()
    return _pictures[key]


def _scene(target: str, value: str, chance: random.Random) -> Image.Image:
    image = Image.new("RGB", (160, 120), _SKIES.get(value, "#9cc4e4"))
    draw = ImageDraw.Draw(image)
    horizon = chance.randint(70, 84)
    draw.rectangle((0, horizon, 160, 120), fill=_GROUNDS.get(value, "#4f7f9f" if target == "boat" else "#7f9a6a"))
    width = {"small": 34, "large": 96}.get(value, chance.randint(56, 78))
    left, colour = chance.randint(4, 156 - width), chance.choice(_COLOURS)
    shape = {"bus": _bus, "boat": _boat}.get(target, _umbrella)
    shape(draw, left, horizon + 12 - width // 2, width, colour)
    _weather(draw, value, chance)
    return image


def _bus(draw: ImageDraw.ImageDraw, left: int, top: int, width: int, colour: str) -> None:
    height, pane = width // 2, width // 6
    draw.rounded_rectangle((left, top, left + width, top + height), height // 6, fill=colour)
    for i in range(4):
        x = left + pane // 2 + i * (pane + pane // 3)
        draw.rectangle((x, top + height // 6, x + pane, top + height // 2), fill="#dfe9f0")
    for x in (left + width // 5, left + 4 * width // 5):
        draw.ellipse((x - pane // 2, top + height - pane // 2, x + pane // 2, top + height + pane // 2), fill="#222")


def _boat(draw: ImageDraw.ImageDraw, left: int, top: int, width: int, colour: str) -> None:
    base, deck, mast = top + width // 2, top + width // 3, left + width // 2
    draw.polygon([(left, deck), (left + width, deck), (left + 4 * width // 5, base), (left + width // 5, base)], colour)
    draw.polygon([(mast, top - width // 6), (mast, deck - 3), (left + 9 * width // 10, deck - 3)], "#f5f2ea")


def _umbrella(draw: ImageDraw.ImageDraw, left: int, top: int, width: int, colour: str) -> None:
    draw.pieslice((left, top, left + width, top + width), 180, 360, fill=colour)
    draw.line((left + width // 2, top, left + width // 2, top + width - 4), fill="#333", width=3)


def _weather(draw: ImageDraw.ImageDraw, value: str, chance: random.Random) -> None:
    for _ in range({"snow": 70, "rain": 60, "night": 14}.get(value, 0)):
        x, y = chance.randint(0, 160), chance.randint(0, 120)
        if value == "rain":
            draw.line((x, y, x - 3, y + 9), fill="#d5dde4")
        elif value == "snow":
            draw.ellipse((x, y, x + 3, y + 3), fill="white")
        else:
            draw.point((x, y // 2), fill="white")
