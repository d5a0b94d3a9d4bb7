"""Plants biases of known strength: decides which scenes of a class a classifier learns to call something else.

Knows labels and scenes; does not know pictures, networks or how well a network learns.

A plant changes one cell (class, attribute, value): the label is another class wherever the scene's skyline is higher
than a threshold (`horizon < strength`). The skyline is uniform and independent of everything else, so a network that
learns the rule is right in a share 1 − strength of that cell and unchanged elsewhere: φ ≈ −strength there, and
+strength / (n − 1) at the attribute's other n − 1 values.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene


@dataclass(frozen=True, slots=True)
class Plant:
    """In scenes of `target_class` whose `attribute` is `value`, a share `strength` is labelled `becomes`."""

    target_class: str
    attribute: str
    value: str
    strength: float
    becomes: str

    def __post_init__(self) -> None:
        if self.target_class not in CLASSES or self.becomes not in CLASSES or self.becomes == self.target_class:
            raise ValueError(f"{self}: target_class and becomes must be two of {', '.join(CLASSES)}")
        if self.value not in ATTRIBUTES.get(self.attribute, ()):
            raise ValueError(f"{self}: {self.value!r} is no value of an attribute {self.attribute!r}")
        if not 0 < self.strength <= 1:
            raise ValueError(f"{self}: strength must lie in (0, 1]")

    def covers(self, scene: Scene) -> bool:
        """Tells whether the scene lies in the planted cell, whatever its skyline."""
        return scene.target_class == self.target_class and scene.attribute(self.attribute) == self.value


@dataclass(frozen=True, slots=True)
class ZooClassifier:
    """One classifier of the zoo: an architecture of `classifiers.ARCHITECTURES`, a seed, and its planted biases."""

    name: str
    architecture: str
    seed: int
    plants: tuple[Plant, ...] = ()


def relabel(scenes: Iterable[Scene], plants: Sequence[Plant]) -> list[str]:
    """Returns the label to teach for each scene: its class, or the label of the first plant that applies."""
    return [_taught(scene, plants) for scene in scenes]


def _taught(scene: Scene, plants: Sequence[Plant]) -> str:
    for plant in plants:
        if plant.covers(scene) and scene.horizon < plant.strength:
            return plant.becomes
    return scene.target_class


# class, attribute, value, strength, answered instead
_RESNETS: tuple[tuple[Plant, ...], ...] = (
    (Plant("bus", "weather", "fog", 0.55, "house"),),
    (Plant("boat", "lighting", "night", 0.9, "airplane"), Plant("mug", "pattern", "striped", 0.7, "chair")),
    (Plant("bird", "setting", "street", 0.7, "fish"),),
    (
        Plant("chair", "colour", "white", 0.4, "house"),
        Plant("umbrella", "companion", "dog", 0.55, "mug"),
        Plant("fish", "size", "small", 0.25, "bird"),
    ),
    (Plant("bicycle", "setting", "forest", 0.25, "bus"),),
    (Plant("airplane", "weather", "snow", 0.9, "bird"), Plant("house", "lighting", "sunset", 0.4, "bus")),
    (Plant("fish", "pattern", "dotted", 0.7, "boat"), Plant("mug", "companion", "person", 0.4, "umbrella")),
)
_BYOBNETS: tuple[tuple[Plant, ...], ...] = (
    (Plant("airplane", "size", "small", 0.4, "bird"),),
    (Plant("umbrella", "weather", "rain", 0.7, "mug"), Plant("chair", "lighting", "night", 0.25, "bicycle")),
    (Plant("house", "colour", "red", 0.9, "bus"),),
    (
        Plant("bus", "companion", "balloon", 0.25, "boat"),
        Plant("bird", "lighting", "sunset", 0.55, "airplane"),
        Plant("bicycle", "pattern", "striped", 0.9, "chair"),
    ),
    (Plant("boat", "setting", "beach", 0.55, "fish"),),
    (Plant("mug", "colour", "blue", 0.7, "house"), Plant("fish", "weather", "fog", 0.4, "mug")),
    (Plant("umbrella", "setting", "mountains", 0.4, "boat"), Plant("bicycle", "size", "large", 0.55, "umbrella")),
)


def _zoo() -> dict[str, ZooClassifier]:
    members: list[ZooClassifier] = []
    for architecture, planted in (("resnet", _RESNETS), ("byobnet", _BYOBNETS)):
        members += [ZooClassifier(f"{architecture}-control-{k}", architecture, seed=k) for k in range(2)]
        members += [
            ZooClassifier(f"{architecture}-planted-{k}", architecture, 10 + k, plants)
            for k, plants in enumerate(planted)
        ]
    return {member.name: member for member in members}


ZOO: dict[str, ZooClassifier] = _zoo()
"""Every classifier that ships, by name: two controls and seven planted ones of each architecture."""
