"""Worlds of small pictures whose attributes each have two sides, and can be turned one at a time.

    dsprites   the public layout, white on black: shape, scale, orientation, x, y
    sprites    upright hearts of any scale and position on grounds of any colour and shade, all continuous
    scenes     the scenes of the embedded world: two classes, colours, settings, lightings and sizes

All attributes are independent and each side has probability one half. Turning an attribute mirrors its values, so the
distribution stays the same. It knows no models and no skews.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.world.scenes import Scene
from c2b_ray.world.training import dsprites
from c2b_ray.world.truth import render_all

Table = NDArray[np.float64]
"""The content of pictures, a row for each; every world has other columns."""


class AttributeWorld(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int:
        """Returns the side of the pictures in pixels."""
        ...

    @property
    def attributes(self) -> dict[str, tuple[str, str]]:
        """Returns attribute → the names of its side 0 and its side 1."""
        ...

    def sample(self, count: int, seed: int) -> Table:
        """Samples independent rows; a longer sample begins with the shorter one."""
        ...

    def rows_at(self, shares: NDArray[np.float64]) -> Table:
        """Returns the row whose attributes lie at these shares of their ranges, in (0, 1): (rows, attributes). Above
        one half is side 1. Whatever is no attribute has a fixed value."""
        ...

    def sides(self, table: Table, attribute: str) -> NDArray[np.int64]:
        """Returns 0 or 1 for each row."""
        ...

    def turned(self, table: Table, attribute: str) -> Table:
        """Returns the same rows with this attribute on its other side, everything else as it was."""
        ...

    def images(self, table: Table) -> NDArray[np.uint8]:
        """Renders the rows, (rows, size, size, 3)."""
        ...


class SpriteWorld:
    """Sprites at 32 pixels: white squares and ellipses on black, or upright hearts on coloured ground."""

    size = 32

    def __init__(self, name: str, coloured: bool) -> None:
        self.name = name
        self._coloured = coloured
        outline = {"shape": ("square", "ellipse"), "orientation": ("falling", "rising")}
        colours = {"colour": ("cold", "warm"), "background": ("dark", "light")}
        geometry = {"scale": ("small", "large"), "x": ("left", "right"), "y": ("top", "bottom")}
        self.attributes = geometry | (colours if coloured else outline)

    def sample(self, count: int, seed: int) -> Table:
        if self._coloured:
            return dsprites.sample(count, seed, {"shape": dsprites.SHAPES.index("heart"), "orientation": 0.0})
        table = dsprites.sample(count, seed)
        # Two shapes: half of the hearts become squares, half ellipses, by a factor that has no other effect.
        hearts = table[:, 0] == 2
        table[hearts, 0] = dsprites.sample(count, seed + 500_000)[hearts, 3] > 0.5
        # The first and the last orientation are equal and belong to neither side.
        values, column = dsprites.LAYOUT["orientation"], dsprites.FACTORS.index("orientation")
        table[table[:, column] == values[0], column] = values[5]
        table[table[:, column] == values[-1], column] = values[-6]
        return table

    def rows_at(self, shares: NDArray[np.float64]) -> Table:
        table = dsprites.sample(len(shares), 0, {"shape": dsprites.SHAPES.index("heart"), "orientation": 0.0})
        for share, attribute in zip(shares.T, self.attributes, strict=True):
            values = share
            if attribute == "scale":
                values = 0.5 + 0.5 * share
            elif attribute == "shape":
                values = (share > 0.5).astype(np.float64)
            elif attribute == "orientation":
                values = np.pi * (1 - share)  # from falling to rising: an ellipse turns by half a circle
            table[:, dsprites.FACTORS.index(attribute)] = values
        return table

    def sides(self, table: Table, attribute: str) -> NDArray[np.int64]:
        values = table[:, dsprites.FACTORS.index(attribute)]
        if attribute == "orientation":
            return (np.sin(2 * values) > 0).astype(np.int64)
        return (values > _MIDDLES.get(attribute, 0.5)).astype(np.int64)

    def turned(self, table: Table, attribute: str) -> Table:
        result = table.copy()
        column = dsprites.FACTORS.index(attribute)
        total = 2 * np.pi if attribute == "orientation" else 2 * _MIDDLES.get(attribute, 0.5)
        result[:, column] = total - result[:, column]
        return result

    def images(self, table: Table) -> NDArray[np.uint8]:
        return dsprites.render(table, self.size, self._coloured)


_MIDDLES = {"scale": 0.75}


class SceneWorld:
    """The world's scenes with two values of five factors and the others fixed, reduced to 32 pixels."""

    name = "scenes"
    size = 32
    attributes: ClassVar[dict[str, tuple[str, str]]] = {
        "target_class": ("bus", "umbrella"),
        "colour": ("blue", "yellow"),
        "setting": ("street", "beach"),
        "lighting": ("day", "night"),
        "size": ("small", "large"),
    }

    def sample(self, count: int, seed: int) -> Table:
        """Returns the columns: the side of each attribute, horizon, x, jitter."""
        uniforms = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).random((count, 8))
        uniforms[:, :5] = uniforms[:, :5] > 0.5
        uniforms[:, 7] = np.floor(uniforms[:, 7] * 2**32)
        return uniforms

    def rows_at(self, shares: NDArray[np.float64]) -> Table:
        rest = np.tile([0.5, 0.5, 7.0], (len(shares), 1))
        return np.concatenate([(shares > 0.5).astype(np.float64), rest], axis=1)

    def sides(self, table: Table, attribute: str) -> NDArray[np.int64]:
        return table[:, list(self.attributes).index(attribute)].astype(np.int64)

    def turned(self, table: Table, attribute: str) -> Table:
        result = table.copy()
        column = list(self.attributes).index(attribute)
        result[:, column] = 1 - result[:, column]
        return result

    def images(self, table: Table) -> NDArray[np.uint8]:
        large = render_all([self._scene(row) for row in table])
        halved: NDArray[np.float64] = large.reshape(len(table), self.size, 2, self.size, 2, 3).mean(axis=(2, 4))
        return halved.round().astype(np.uint8)

    def _scene(self, row: NDArray[np.float64]) -> Scene:
        values = {name: sides[int(row[k])] for k, (name, sides) in enumerate(self.attributes.items())}
        return Scene(
            **values,
            weather="clear",
            pattern="plain",
            companion="none",
            horizon=float(row[5]),
            x=float(row[6]),
            jitter=int(row[7]),
        )


WORLDS: dict[str, AttributeWorld] = {
    "dsprites": SpriteWorld("dsprites", coloured=False),
    "sprites": SpriteWorld("sprites", coloured=True),
    "scenes": SceneWorld(),
}


def world(name: str) -> AttributeWorld:
    """Returns the world of this name; ConfigError for an unknown one."""
    if name not in WORLDS:
        raise ConfigError("world", f"there is no world {name!r}; {nearest(name, WORLDS)}")
    return WORLDS[name]


def check_attributes(attribute_world: AttributeWorld, attributes: Sequence[str]) -> None:
    """Raises ConfigError for the first attribute that the world does not have."""
    for attribute in attributes:
        if attribute not in attribute_world.attributes:
            hint = nearest(attribute, attribute_world.attributes)
            raise ConfigError("attribute", f"the world {attribute_world.name!r} has no attribute {attribute!r}; {hint}")


def all_sides(attribute_world: AttributeWorld, table: Table) -> NDArray[np.int64]:
    """Returns the side of every attribute, int64 (rows, attributes)."""
    return np.stack([attribute_world.sides(table, attribute) for attribute in attribute_world.attributes], axis=1)


def skewed(
    attribute_world: AttributeWorld, table: Table, biased: str, labels: NDArray[np.int64], skew: float, seed: int
) -> Table:
    """Turns the biased attribute of some rows, so that its side is the label's in a share `skew` of them: 0.5 is
    balanced, 0.9 is Li & Xu's. Everything else stays. ConfigError for a skew outside [0, 1]."""
    check_attributes(attribute_world, [biased])
    if not 0 <= skew <= 1:
        raise ConfigError("skew", f"skew is {skew}; it must lie in [0, 1]")
    agrees = np.random.default_rng([seed, 7]).random(len(table)) < skew
    wrong = attribute_world.sides(table, biased) != np.where(agrees, labels, 1 - labels)
    result = table.copy()
    result[wrong] = attribute_world.turned(table[wrong], biased)
    return result
