"""An image generator with hidden associations and without a model: links of words decide the attributes that prompts
omit.

    world:linked                  the links of `associations.LINKS`
    world:linked?links=FILE       the links of a YAML file
    world:linked?links=none       no links: a control

Knows the links, the reader of prompts and the renderer. It draws what the prompt names; a prompt that names no class of
the world gets one from the seed. It has no activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from c2b_ray.models.catalog import Spec
from c2b_ray.roles import GeneratedImage, GenerationRequest
from c2b_ray.tables import content_id, seed_of
from c2b_ray.world.associations import LINKS, Link, draw_hidden
from c2b_ray.world.linked_captions import words_of
from c2b_ray.world.links_file import read_links
from c2b_ray.world.reader import read
from c2b_ray.world.render import render
from c2b_ray.world.scenes import Scene, sample

_OPTIONS = ("links", "batch", "device")  # any generator's spec may hold batch and device
_PROBES = 8


class LinkedRenderer:
    """Renders prompts by planted links; implements `roles.ImageGenerator`."""

    def __init__(self, links: Sequence[Link] = LINKS) -> None:
        self._links = tuple(links)
        probes = [render(scene).tobytes() for scene in sample(_PROBES, 0)]
        self.revision = content_id("linked", *(astuple(link) for link in self._links), *probes)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        """Returns one picture per request."""
        return [GeneratedImage(render(self.scene(request.prompt, request.seed))) for request in requests]

    def scene(self, prompt: str, seed: int) -> Scene:
        """Returns the scene of one request; under one seed, similar prompts get similar scenes."""
        mentioned = read(prompt)
        row = seed_of("linked", seed)
        scene = sample(1, row, **mentioned)[0]
        words = {*words_of(prompt), scene.target_class}
        links = [link for link in self._links if link.attribute not in mentioned]
        return draw_hidden(scene, words, links, f"linked {row}")


def load(spec: Spec) -> LinkedRenderer:
    """Loads the generator of `world:linked`; SpecError for an unknown option, ConfigError for a wrong file."""
    file = spec.options_among(_OPTIONS).get("links")
    if file is None:
        return LinkedRenderer()
    return LinkedRenderer(() if file == "none" else read_links(file)[0])
