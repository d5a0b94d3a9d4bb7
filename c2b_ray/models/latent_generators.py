"""Small generators by their directory, as latent spaces to be searched.

    vae:local-dir:PATH    gan:local-dir:PATH    style:local-dir:PATH

PATH holds config.json and model.safetensors as `latent_networks.write` makes them; a style-based generator's space is
that of w. Options: device. Only safetensors are read. It knows nothing of the search.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from c2b_ray.config.problems import first_problem
from c2b_ray.errors import InputError, SpecError, WeightsError
from c2b_ray.filesystems.documents import read_json
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.latent_networks import CONFIG, WEIGHTS, LatentNetwork, NetworkConfig, network
from c2b_ray.models.torch_runtime import device_of
from c2b_ray.roles import Description, Floats
from c2b_ray.schemas import content_id

_LOCAL = "local-dir:"
_ROWS = 4096


class NetworkGenerator:
    """A network with fixed weights; implements `roles.LatentGenerator`."""

    def __init__(self, model: LatentNetwork, config: NetworkConfig, revision: str, device: torch.device) -> None:
        self._model = model.eval().requires_grad_(False).to(device)
        self._device = device
        self.kind, self.dimension, self.revision = config.kind, config.dimension, revision

    def sample(self, count: int, seed: int) -> Floats:
        """Draws latents, float32 (count, dimension). A larger sample with the same seed begins with these, on any
        device."""
        noise = standard_normal(count, self._model.noise, seed)
        parts = []
        with torch.inference_mode():
            for first in range(0, count, _ROWS):
                part = torch.from_numpy(noise[first : first + _ROWS])
                parts.append(self._model.latent(part.to(self._device)).cpu().numpy())
        return np.concatenate(parts) if parts else np.zeros((0, self.dimension), np.float32)

    def images(self, latents: Any) -> torch.Tensor:
        """Returns images (rows, 3, size, size) in [0, 1] on the generator's device; differentiable in `latents`."""
        return self._model.decode(latents.to(self._device, torch.float32))

    def encode(self, images: Any) -> torch.Tensor:
        """Returns the means of the latents of images (rows, 3, size, size). Raises SpecError without an encoder."""
        if self._model.encoder is None:
            raise SpecError("this generator has no encoder: its directory was written with encoder: false")
        return self._model.encode(images.to(self._device))[0]


def standard_normal(count: int, dimension: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, dimension), np.float32)


def load(spec: Spec) -> NetworkGenerator:
    """Loads the generator of a spec. Raises SpecError where the directory is absent or of another kind, and
    WeightsError for files that cannot be used."""
    spec.options_among(("device",))
    directory = _directory(spec)
    config = read_config(directory, spec.scheme if spec.scheme != "world" else None)
    with torch.random.fork_rng(devices=[]):
        model = network(config)
    weights.load_into(model, weights.read_safetensors(directory / WEIGHTS), directory / WEIGHTS)
    return NetworkGenerator(model, config, _revision(directory), device_of(spec))


def describe(spec: Spec) -> Description:
    spec.options_among(("device",))
    directory = _directory(spec)
    config = read_config(directory, spec.scheme if spec.scheme != "world" else None)
    weights.checked(directory / WEIGHTS)
    return Description(_revision(directory), dimension=config.dimension)


def read_config(directory: Path, kind: str | None) -> NetworkConfig:
    """Reads config.json. `kind`: the kind that the spec's scheme names, None where it names none."""
    path = directory / CONFIG
    try:
        config = NetworkConfig.model_validate(read_json(path))
    except ValidationError as error:
        raise WeightsError(str(first_problem(error, str(path), NetworkConfig))) from error
    except (OSError, ValueError, InputError) as error:
        raise WeightsError(f"{path}: {error}") from error
    if kind is not None and kind != config.kind:
        raise SpecError(f"{directory}: its {CONFIG} says kind: {config.kind}; write {config.kind}:{_LOCAL}{directory}")
    return config


def _directory(spec: Spec) -> Path:
    if not spec.name.startswith(_LOCAL):
        raise SpecError(f"{spec.text}: expected {spec.scheme}:{_LOCAL}PATH, a directory with {CONFIG} and {WEIGHTS}")
    directory = Path(spec.name.removeprefix(_LOCAL))
    if not (directory / CONFIG).is_file():
        raise SpecError(f"{spec.text}: {directory} holds no {CONFIG}; expected it and {WEIGHTS}")
    return directory


def _revision(directory: Path) -> str:
    return content_id("latent network", weights.file_revision(directory / WEIGHTS, directory / CONFIG))
