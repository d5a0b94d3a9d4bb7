"""An image generator that is always right: it reads the prompt and renders what it says.

    world:renderer                 attributes that the prompt omits are drawn from the seed
    world:renderer?mislabel=0.2    a fifth of the pictures show other attribute values than the prompt names

Knows the reader of prompts, scenes and their renderer; it trains nothing and loads nothing. A prompt that names no
class of the world cannot be drawn: its row is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from c2b_ray.errors import SpecError
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import GeneratedImage, GenerationRequest
from c2b_ray.tables import content_id, seed_of
from c2b_ray.world.reader import read
from c2b_ray.world.render import render
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene, sample

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
    return random.choice([other for other in ATTRIBUTES[name] if other != value])
