"""Small generators by their directory, as latent spaces to be searched.

    vae:local-dir:PATH    gan:local-dir:PATH    style:local-dir:PATH

PATH holds config.json and model.safetensors as `write` makes them; a style-based generator's space is
that of w. Options: device. Only safetensors are read. It knows nothing of the search.
"""

from __future__ import annotations

import json
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, JsonValue, ValidationError
from safetensors.torch import save_file
from torch import Tensor, nn

from c2b_ray.config.named import StrictModel
from c2b_ray.config.reading import first_problem
from c2b_ray.errors import InputError, SpecError, WeightsError
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.torch_runtime import device_of
from c2b_ray.roles import Description, Floats
from c2b_ray.storage.manifest import read_json
from c2b_ray.tables import content_id

# Small generators for latent-space searches: a VAE, a GAN, and a style-based one with its W space.


CONFIG, WEIGHTS = "config.json", "model.safetensors"


class NetworkConfig(StrictModel):
    """A generator's architecture. `dimension`: of the searched latents. `width`: channels of the largest layers.
    `noise`: the dimension of a style generator's z; 0: the same as `dimension`. `about`: its author's notes (data,
    seed, recipe); not read."""

    kind: Literal["vae", "gan", "style"]
    dimension: int = Field(ge=2, le=4096)
    size: Literal[16, 32, 64, 128] = 64
    width: int = Field(32, ge=4, le=512)
    hidden: int = Field(256, ge=4, le=4096)
    norm: Literal["none", "batch"] = "none"
    encoder: bool = False
    noise: int = Field(0, ge=0, le=4096)
    mapping_layers: int = Field(4, ge=1, le=16)
    about: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """Returns how often the side doubles from 4 pixels."""
        return round(log2(self.size / 4))

    @property
    def channels(self) -> tuple[int, ...]:
        """Returns the channels of each resolution, from 4 pixels to the whole image."""
        half = (self.blocks + 1) // 2
        return (2 * self.width,) * half + (self.width,) * (self.blocks + 1 - half)


class LatentNetwork(nn.Module):
    """A generator network. `decode` maps latents to images; `latent` maps standard normal noise (rows, `noise`) to
    latents."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        style = config.kind == "style"
        self.noise = (config.noise or config.dimension) if style else config.dimension
        self.mapping = Mapping(config) if style else nn.Identity()
        self.decoder: nn.Module = Synthesis(config) if style else Decoder(config)
        self.encoder = Encoder(config) if config.encoder else None

    def latent(self, noise: Tensor) -> Tensor:
        result: Tensor = self.mapping(noise)
        return result

    def decode(self, latents: Tensor) -> Tensor:
        """Returns images (rows, 3, size, size) in [0, 1]."""
        return torch.sigmoid(self.decoder(latents))

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and log variance of the latents of images in [0, 1], each (rows, dimension). Needs `encoder:
        true`."""
        if self.encoder is None:
            raise ValueError("this generator has no encoder")
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        return mean, log_variance


class Decoder(nn.Sequential):
    """Two linear layers, then transposed convolutions that double the side."""

    def __init__(self, config: NetworkConfig) -> None:
        channels = config.channels
        layers: list[nn.Module] = [nn.Linear(config.dimension, config.hidden), nn.ReLU()]
        layers += [nn.Linear(config.hidden, channels[0] * 16), nn.ReLU(), nn.Unflatten(1, (channels[0], 4, 4))]
        for n_in, n_out in pairwise(channels[:-1]):
            layers.append(nn.ConvTranspose2d(n_in, n_out, 4, 2, 1))
            layers += [nn.BatchNorm2d(n_out)] if config.norm == "batch" else []
            layers.append(nn.ReLU())
        layers.append(nn.ConvTranspose2d(channels[-2], 3, 4, 2, 1))
        super().__init__(*layers)


class Encoder(nn.Sequential):
    """The decoder's mirror image, with an output of twice the dimension."""

    def __init__(self, config: NetworkConfig) -> None:
        channels = (3, *reversed(config.channels[:-1]))
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(channels):
            layers += [nn.Conv2d(n_in, n_out, 4, 2, 1), nn.ReLU()]
        layers += [nn.Flatten(), nn.Linear(channels[-1] * 16, config.hidden), nn.ReLU()]
        super().__init__(*layers, nn.Linear(config.hidden, 2 * config.dimension))


class Mapping(nn.Module):
    """Maps z, scaled to the unit sphere times √d, to w."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        widths = [config.noise or config.dimension] + [config.dimension] * config.mapping_layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, noise: Tensor) -> Tensor:
        w = noise * torch.rsqrt(noise.square().mean(dim=1, keepdim=True) + 1e-8)
        for layer in self.layers[:-1]:
            w = F.leaky_relu(layer(w), 0.2)
        result: Tensor = self.layers[-1](w)
        return result


class Synthesis(nn.Module):
    """A learned constant of 4 × 4, then convolutions whose input channels w scales (Karras et al. 2020, section 2.2),
    one before each doubling and one after, and the sum of what each resolution adds to the picture. Without noise, so
    that an image depends on w alone."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        channels, d = config.channels, config.dimension
        self.constant = nn.Parameter(torch.randn(1, channels[0], 4, 4))
        self.first = StyledConvolution(channels[0], channels[0], d)
        pairs = list(pairwise(channels))
        self.up = nn.ModuleList(StyledConvolution(a, b, d) for a, b in pairs)
        self.again = nn.ModuleList(StyledConvolution(b, b, d) for _, b in pairs)
        self.colour = nn.ModuleList(nn.Conv2d(c, 3, 1) for c in channels)

    def forward(self, w: Tensor) -> Tensor:
        values = self.first(self.constant.expand(len(w), -1, -1, -1), w)
        picture: Tensor = self.colour[0](values)
        for enlarge, convolve, colour in zip(self.up, self.again, list(self.colour)[1:], strict=True):
            values = convolve(enlarge(_doubled(values), w), w)
            picture = _doubled(picture) + colour(values)
        return picture


class StyledConvolution(nn.Module):
    """Input channels times 1 + A(w), a 3 × 3 convolution, output channels brought back to unit scale."""

    def __init__(self, before: int, after: int, dimension: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(after, before, 3, 3) / (before * 9) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(after))
        self.style = nn.Linear(dimension, before)

    def forward(self, values: Tensor, w: Tensor) -> Tensor:
        scale = 1 + self.style(w)
        power = scale.square() @ self.weight.square().sum(dim=(2, 3)).T
        convolved = F.conv2d(values * scale[:, :, None, None], self.weight, padding=1)
        result = convolved * torch.rsqrt(power + 1e-8)[:, :, None, None] + self.bias[:, None, None]
        return F.leaky_relu(result, 0.2) * 2**0.5


def network(config: NetworkConfig) -> LatentNetwork:
    """Builds a network with random weights, drawn from torch's random state."""
    return LatentNetwork(config)


def write(model: LatentNetwork, config: NetworkConfig, directory: str | Path, half: bool = True) -> None:
    """Writes the directory that `KIND:local-dir:DIRECTORY` loads; `half`: float16 weights, half the bytes."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    state: dict[str, Any] = model.state_dict()
    tensors = {
        name: (value.half() if half and value.is_floating_point() and "running_" not in name else value).contiguous()
        for name, value in state.items()
    }
    save_file(tensors, directory / WEIGHTS)
    (directory / CONFIG).write_text(json.dumps(config.model_dump(), indent=2) + "\n", encoding="utf-8")


def _doubled(values: Tensor) -> Tensor:
    return F.interpolate(values, scale_factor=2, mode="bilinear", align_corners=False)


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
