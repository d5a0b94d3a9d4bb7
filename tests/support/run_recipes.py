"""The contents of synthetic runs: classes, attributes, accuracies, errors, and a verifier's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ATTRIBUTES = {
    "weather": ("clear", "rain", "snow", "fog"),
    "lighting": ("day", "sunset", "night"),
    "size": ("small", "large"),
}
PLANTED, CONTROL = "world:resnet-planted-3", "world:resnet-control"


@dataclass
class Recipe:
    """The contents of a synthetic run. `accuracy`: (classifier, class, value) → share of right answers, else 0.95."""

    classes: tuple[str, ...] = ("bus", "boat", "umbrella")
    attributes: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(ATTRIBUTES))
    classifiers: tuple[str, ...] = (PLANTED, CONTROL)
    images_per_cell: int = 12
    accuracy: dict[tuple[str, str, str], float] = field(default_factory=dict)
    sizes: dict[tuple[str, str], int] = field(default_factory=dict)  # (class, value) → images
    bad_images: int = 0
    all_errors: bool = False
    rejected: int = 0
    retrieved: bool = True
    pictures: bool = True
    manifest: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    tau: float = 0.1
    # With a verifier: (class, value) → share of the images that show the value, else 1.
    shown: dict[tuple[str, str], float] | None = None
    calibrated: tuple[str, ...] = ()  # attributes with a calibration: the verifier is right 9 times in 10
    # With generated images too: (classifier, class, value) → accuracy on them, else that on the retrieved ones.
    generated: dict[tuple[str, str, str], float] | None = None


def showcase() -> Recipe:
    """Returns a recipe with strong and weak findings, clear, open and empty cells, errors and rejected replies."""
    accuracy = {
        (PLANTED, "bus", "snow"): 0.41,
        (PLANTED, "boat", "night"): 0.62,
        (PLANTED, "boat", "sunset"): 0.85,
        (PLANTED, "umbrella", "small"): 0.70,
        (PLANTED, "bus", "night"): 0.90,
        (PLANTED, "umbrella", "fog"): 0.82,
        (CONTROL, "umbrella", "rain"): 0.86,
        (CONTROL, "boat", "small"): 0.74,
        (CONTROL, "boat", "large"): 0.90,
    }
    sizes = {("umbrella", "fog"): 40, ("umbrella", "rain"): 40, ("umbrella", "clear"): 45, ("umbrella", "snow"): 0}
    return Recipe(images_per_cell=240, accuracy=accuracy, sizes=sizes, bad_images=5, rejected=7)
