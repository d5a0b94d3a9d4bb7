"""The contents of synthetic runs of `c2b failures`: planted causes, classifiers, generators and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RESNET, VIT, CONTROL = "timm:resnet50.a1_in1k", "timm:vit_base_patch16_224", "world:resnet-control"


@dataclass(frozen=True)
class Cause:
    """A sentence with which classifiers answer `target` for a label at `rate`, and any wrong label at `anyhow`."""

    label: str
    target: str
    sentence: str
    rate: float
    anyhow: float
    baseline: float


FLY = Cause("fly", "bee", "it is on a flower", 0.0072, 0.0411, 0.000014)
CRAYFISH = Cause("crayfish", "chainlink fence", "it is in a net", 0.0173, 0.0631, 0.0)
CAT = Cause("Persian cat", "snow leopard", "the background is green", 0.0011, 0.0064, 0.0002)


@dataclass
class Recipe:
    """The contents of a synthetic run."""

    causes: tuple[Cause, ...] = (FLY, CRAYFISH, CAT)
    classifiers: tuple[str, ...] = (RESNET,)
    generator: str = "diffusers:stabilityai/sd-turbo"
    others: tuple[str, ...] = ()
    draws: int = 20_000
    baseline_draws: int = 200_000
    blind: tuple[str, ...] = ()  # classifiers on which the causes have no effect
    reliable: Mapping[str, float] = field(default_factory=dict)
    more_labels: tuple[str, ...] = ("boat",)
    doubts: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()  # labels of whose captions no image was left to measure a rate
    pictures: bool = True
    verified: bool = True
    manifest: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=lambda: {"fly": "insect", "crayfish": "crustacean"})

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys([*(cause.label for cause in self.causes), *self.more_labels]))


def showcase() -> Recipe:
    """Returns a recipe with everything that a page can show: several classifiers and generators, findings, doubts, open
    and hopeless hypotheses."""
    return Recipe(
        classifiers=(RESNET, VIT, CONTROL),
        blind=(CONTROL,),
        others=("diffusers:CompVis/stable-diffusion-v1-4", "index:/data/photographs"),
        reliable={"fly": 0.97, "crayfish": 0.6},
        doubts=("only 60 % of the generator's images of crayfish show one",),
        manifest={"estimate": {"draws": [240_000, 640_000], "seconds": [2_000.0, 5_400.0]}},
    )
