"""Models that compute as a placement says, whichever process loads them: a driver, an actor, a replica of Ray Serve.

It knows the catalogue, and no library of models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from c2b_ray.config.placement import Computing
from c2b_ray.models import catalog, devices
from c2b_ray.roles import Pixels

Decoded = Callable[[bytes | None], tuple[Pixels | None, str | None]]
"""The decoder for what a GPU cannot decode: pixels, or the reason for none."""


def load(role: str, computing: Computing, spec: str, by_cpu: Decoded) -> Any:
    """Loads the model of a role so that it computes as its stage says, with the same revision in every process.

    Raises what loading raises; SpecError where a GPU is to decode for a model that has none, or for one that cannot be
    given a GPU's pixels.
    """
    with devices.computing_in(computing):
        model = catalog.load(role, spec)
        if not decodes_there(role, computing):
            return model
        from c2b_ray.models.gpu_files import decoding_files  # imports torch, which not every process needs

        return decoding_files(model, spec, by_cpu)


def decodes_there(role: str, computing: Computing) -> bool:
    """Tells whether the model's own GPU decodes files for it."""
    return computing.decode == "gpu" and role in ("classifier", "encoder")
