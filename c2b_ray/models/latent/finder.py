"""One name for every method of `c2b latent`: searches and baselines. It knows which function a name stands for."""

from __future__ import annotations

from c2b_ray.config.latent import Search
from c2b_ray.models.latent import baselines, search
from c2b_ray.models.latent.search import Constraints, Direction
from c2b_ray.models.latent.space import Space


def find(space: Space, method: str, settings: Search, constraints: Constraints, seed: int) -> Direction:
    """A direction by the method. Baselines know no attribute; of theirs, the target's own direction is left out."""
    if method == "axes":
        return baselines.axes(space, settings, constraints, seed)
    if method == "hessian":
        return baselines.hessian(space, settings, constraints, seed)
    if method == "random":
        return baselines.random(space, constraints.kept, seed)
    return search.find(space, method, settings, constraints, seed)
