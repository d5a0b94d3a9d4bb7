"""Finds directions by any method of `c2b latent`, searches and baselines. It maps the method's name to a function."""

from __future__ import annotations

from c2b_ray.config.latent import Search
from c2b_ray.models.latent import baselines, search
from c2b_ray.models.latent.search import Constraints, Direction
from c2b_ray.models.latent.space import Space


def find(space: Space, method: str, settings: Search, constraints: Constraints, seed: int) -> Direction:
    """Finds a direction by the method. Baselines know no attribute; the direction nearest to the target's is left out
    of them."""
    if method == "axes":
        return baselines.axes(space, settings, constraints, seed)
    if method == "hessian":
        return baselines.hessian(space, settings, constraints, seed)
    if method == "random":
        return baselines.random(space, constraints.kept, seed)
    return search.find(space, method, settings, constraints, seed)
