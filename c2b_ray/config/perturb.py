"""The section `perturb` of an audit file: which perturbations of the same images a classifier is asked about.

`true`: all of them; a list: these; a mapping: these, at these levels. It knows names and levels, not pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from c2b_ray.config.strict import StrictModel

USUAL_LEVELS = (1, 3, 5)
"""The levels of a perturbation that is named without any: they show a curve, at three fifths of the cost of all."""

Levels = Annotated[list[Annotated[int, Field(ge=1, le=5)]], Field(min_length=1, max_length=5)]
OnlyLevel = Annotated[list[Annotated[int, Field(ge=1, le=1)]], Field(min_length=1, max_length=1)]
GivenPerturbations = bool | list[str] | dict[str, Any] | None


class Perturb(StrictModel):
    """Perturbations of the images themselves, each at levels from 1 (weak) to 5 (strong)."""

    images: int = Field(
        200,
        ge=2,
        le=100_000,
        description="Images of each class, chosen at random, or all where there are fewer. The same images are "
        "answered unperturbed and perturbed, so a few hundred suffice.",
    )
    blur: Levels | None = Field(None, description="Gaussian blur, ImageNet-C's.")
    noise: Levels | None = Field(None, description="Gaussian noise, ImageNet-C's.")
    jpeg: Levels | None = Field(None, description="JPEG compression of the whole picture, with ImageNet-C's qualities.")
    dark: Levels | None = Field(None, description="Less light: level 1 is half of it, 2 a fourth, … 5 a thirty-second.")
    bright: Levels | None = Field(None, description="Brightness, ImageNet-C's.")
    fog: Levels | None = Field(None, description="Fog, ImageNet-C's.")
    rotation: Levels | None = Field(None, description="Rotation by 5, 10, 20, 30 or 45 degrees, to either side.")
    crop: Levels | None = Field(None, description="A part of 90, 80, 70, 60 or 50 % of each side, enlarged.")
    grey: Levels | None = Field(None, description="Less colour: level 5 has none.")
    flip: OnlyLevel | None = Field(None, description="Mirrored left to right; has level 1 only.")

    @field_validator("*", mode="after")
    @classmethod
    def _ascending(cls, levels: Any) -> Any:
        """Puts levels in order: it changes nothing in which order they are written."""
        if not isinstance(levels, list):
            return levels
        if len(set(levels)) < len(levels):
            raise ValueError(f"{levels} names a level twice")
        return sorted(levels)

    @model_serializer(mode="wrap")
    def _only_named(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out perturbations that are not asked for: one that a later release adds changes no run's id."""
        return {name: value for name, value in serialise(self).items() if value is not None}

    @property
    def levels(self) -> dict[str, tuple[int, ...]]:
        """The levels of each perturbation that is asked for, in the order of the fields."""
        levels_of_name = {name: getattr(self, name) for name in PERTURBATIONS}
        return {name: tuple(levels) for name, levels in levels_of_name.items() if levels is not None}

    @property
    def pictures(self) -> int:
        """The number of pictures that each image becomes: itself, and one for each perturbation and level."""
        return 1 + sum(map(len, self.levels.values()))


PERTURBATIONS = tuple(name for name in Perturb.model_fields if name != "images")


def read_perturb(value: GivenPerturbations) -> Any:
    """Returns what `perturb` says as the fields of `Perturb`; None: nothing is perturbed.

    Raises ValueError for a name that a list holds twice. Unknown names become unknown fields, which `Perturb` refuses.
    """
    if value is None or value is False:
        return None
    if value is True:
        value = {}
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        if len(set(value)) < len(value):
            raise ValueError(f"{value} names a perturbation twice")
        value = {name: _usual(name) for name in value}
    if isinstance(value, Mapping) and not set(value) - {"images"}:
        value = {**value, **{name: _usual(name) for name in PERTURBATIONS}}
    return value


def _usual(name: str) -> list[int]:
    return [1] if name == "flip" else list(USUAL_LEVELS)
